/**
 * Bodies that arrive in pieces. Their memory is bounded while they are made, because a list is as long as anyone makes it on the chain.
 */
import { createHash, type Hash } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Fault } from '../../core/fault.ts';

/** Each piece is hashed in a separate turn of the event loop while the next ones are read. */
export type LargeBody = {
  /**
   * Appends a piece. It is converted and hashed in one go, so it should be small.
   * @throws Fault `unavailable` if the body is too large, with the reason TOO_LARGE, or if it had to make room for smaller ones
   */
  add(piece: string): void;
  /** All pieces as bytes, and their digest. Call it once, after the last `add`. @throws Fault as `add` does */
  finish(): Promise<{ pieces: readonly Buffer[]; digest: string }>;
  /** Gives the memory of a body back that is not finished. */
  drop(): void;
};

export type LargeBodies = { readonly bytesMax: number; open(): LargeBody };

/** All bodies that are being made, and so each of them. As much as the cache, which stores no larger response. */
export const LARGE_BYTES_MAX = 256 * 1024 * 1024;
/** The reason of the Fault for a body that is too large by itself. */
export const TOO_LARGE = 'too_large';
const DIGEST_CHARACTERS = 22;

type Growing = { pieces: Buffer[]; bytes: number; isCut: boolean };

/** When the bodies that are being made take more than `bytesMax`, the largest one fails, so that it doesn't displace ordinary lists. */
export function createLargeBodies(bytesMax: number): LargeBodies {
  const growing = new Set<Growing>();
  let bytes = 0;

  function release(body: Growing): void {
    if (growing.delete(body)) bytes -= body.bytes;
  }

  function cut(body: Growing): void {
    body.isCut = true;
    body.pieces.length = 0;
    release(body);
  }

  function grow(body: Growing, more: number): void {
    body.bytes += more;
    bytes += more;
    if (body.bytes > bytesMax) {
      cut(body);
      throw tooLarge();
    }
    while (bytes > bytesMax) {
      const [largest = body] = [...growing].sort((one, other) => other.bytes - one.bytes);
      cut(largest);
    }
  }

  return {
    bytesMax,
    open() {
      const body: Growing = { pieces: [], bytes: 0, isCut: false };
      growing.add(body);
      const hash = createHash('sha256');
      let hashed = Promise.resolve();
      const requireRoom = () => {
        if (body.isCut) throw noRoom();
      };
      return {
        add(text) {
          requireRoom();
          grow(body, Buffer.byteLength(text));
          requireRoom();
          hashed = hashed
            .then(() => nextTurn())
            .then(() => {
              if (body.isCut) return;
              const piece = bytesOf(text);
              hash.update(piece);
              body.pieces.push(piece);
            });
        },
        async finish() {
          try {
            await hashed;
            requireRoom();
          } finally {
            release(body);
          }
          return { pieces: body.pieces, digest: digestOf(hash) };
        },
        drop: () => cut(body),
      };
    },
  };
}

/** The first 132 bits of the digest, in base64url. */
export const digestOf = (hash: Hash): string => hash.digest('base64url').slice(0, DIGEST_CHARACTERS);

export function bytesOf(text: string): Buffer {
  const bytes = Buffer.allocUnsafeSlow(Buffer.byteLength(text));
  bytes.write(text);
  return bytes;
}

const unavailable = (message: string, reason?: string) =>
  new Fault('unavailable', message, {
    problems: [{ path: '/limit', message }],
    ...(reason !== undefined && { reason }),
  });

const tooLarge = () => unavailable('this list is too large. Use limit to read it in pages', TOO_LARGE);

const noRoom = () =>
  unavailable('too many large lists are being computed. Use limit to read this one in pages, or try again');
