/**
 * The protocol between a command and the service that has the embedded database. Each value is serialized with the structured
 * clone algorithm, which preserves bytes, times and integers, and is preceded by its length. A connection carries one statement,
 * one script or one transaction.
 */
import type { Socket } from 'node:net';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { deserialize, serialize } from 'node:v8';
import { abortOf } from '../../core/abort.ts';
import { waitMs } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Sql } from './sql.ts';

/** Both sides must have the same version. The program may have been updated while the service was running. */
export const PROTOCOL = 2;

/** A request of a command. `begin` is followed by statements until `commit` or the end of the connection. */
export type SocketRequest =
  | { ask: 'query'; protocol: number; statement: Sql }
  | { ask: 'script'; protocol: number; text: string }
  | { ask: 'begin'; protocol: number }
  | { ask: 'statement'; statement: Sql }
  | { ask: 'commit' };

/** How often the service says that it is still working on a request. */
export const WORKING_MS = 1_000;

/**
 * `working` is sent any number of times before the actual reply. `sqlState` is PostgreSQL's, or the code of a socket or file
 * error.
 */
export type Reply =
  | { working: true }
  | { rows: unknown[] }
  | { error: { message: string; fault: Fault['code'] | undefined; sqlState: string | undefined } };

export type Frames<In, Out> = {
  /** The next value; undefined when the other side has ended, or after `timeoutMs`. */
  read(timeoutMs?: number): Promise<In | undefined>;
  write(value: Out): void;
  /** Whether the other side has ended. */
  isOver(): boolean;
  close(): void;
};

/** Far above the largest frames: a batch of an import has about a megabyte. */
const FRAME_BYTES_MAX = 64 * 1024 * 1024;
const LENGTH_BYTES = 4;

/** Where the service that has the folder listens. */
export const socketPathOf = (dataDir: string) => path.join(path.resolve(dataDir), 'socket');

/** The path length of sockaddr_un without its final zero byte: 108 bytes on Linux, 104 on macOS and BSD. */
const PATH_BYTES_MAX = process.platform === 'linux' ? 107 : 103;

const NOT_LISTENING: ReadonlySet<unknown> = new Set(['ENOENT', 'ENOTDIR', 'ECONNREFUSED', 'ENOTSOCK']);

/** Whether an error of a connection shows that no process listens: no socket or folder, its process ended, or another kind of file. */
export const isUnserved = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && NOT_LISTENING.has(error.code);

/** Why the folder can't have a socket, and what to do about it; undefined if it can. */
export function pathProblem(dataDir: string): string | undefined {
  if (process.platform === 'win32')
    return 'On Windows commands cannot use the embedded database while a service has it open. Stop the service first';
  const socketPath = socketPathOf(dataDir);
  const bytes = Buffer.byteLength(socketPath);
  if (bytes <= PATH_BYTES_MAX) return undefined;
  return `${socketPath} has ${bytes} bytes, but the path of a socket may have at most ${PATH_BYTES_MAX}. Set dataDir to a shorter path, so that commands work while the service runs`;
}

/** Reads and writes values over a socket. The other side must be a Chainbell process, because values are not validated. */
export function framesOf<In, Out>(socket: Socket): Frames<In, Out> {
  const values: In[] = [];
  let bytes: Buffer[] = [];
  let length = 0;
  let wanted: number | undefined;
  let isOver = false;
  let wake = () => {};

  /** Takes the first `count` received bytes; undefined until that many have arrived. */
  function take(count: number): Buffer | undefined {
    if (length < count) return undefined;
    const all = bytes.length === 1 && bytes[0] !== undefined ? bytes[0] : Buffer.concat(bytes);
    bytes = [all.subarray(count)];
    length -= count;
    return all.subarray(0, count);
  }

  socket.on('data', (chunk: Buffer) => {
    bytes.push(chunk);
    length += chunk.length;
    for (;;) {
      wanted ??= take(LENGTH_BYTES)?.readUInt32BE();
      if (wanted === undefined) break;
      if (wanted > FRAME_BYTES_MAX) {
        socket.destroy();
        return;
      }
      const value = take(wanted);
      if (value === undefined) break;
      wanted = undefined;
      try {
        values.push(deserialize(value));
      } catch {
        socket.destroy();
        return;
      }
    }
    // A long frame arrives in pieces, and the first of them is no value yet.
    if (values.length > 0) wake();
  });
  // A `close` event follows and ends the read.
  socket.on('error', () => {});
  socket.on('close', () => {
    isOver = true;
    wake();
  });

  return {
    async read(timeoutMs) {
      if (values.length === 0 && !isOver) {
        const arrival = new AbortController();
        wake = () => arrival.abort();
        if (timeoutMs === undefined) await abortOf(arrival.signal);
        else await waitMs(timeoutMs, arrival.signal);
        // After a busy period the timer fires before data that has arrived meanwhile is read.
        if (values.length === 0 && !isOver) await nextTurn();
        if (values.length === 0 && !isOver) await nextTurn();
      }
      return values.shift();
    },
    write(value) {
      const body = serialize(value);
      const header = Buffer.alloc(LENGTH_BYTES);
      header.writeUInt32BE(body.length);
      socket.write(Buffer.concat([header, body]));
    },
    isOver: () => isOver,
    close: () => socket.destroySoon(),
  };
}

/** The reply that carries an error to the other side. */
export function replyOf(error: unknown): Reply {
  const cause = error instanceof Fault && error.cause instanceof Error ? error.cause : error;
  const code = typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : undefined;
  return {
    error: {
      message: error instanceof Error ? error.message : String(error),
      fault: error instanceof Fault ? error.code : undefined,
      sqlState: typeof code === 'string' ? code : undefined,
    },
  };
}

/** The rows of a reply. @throws the error in the reply, as the database would have thrown it here. */
export function rowsOf(reply: Exclude<Reply, { working: true }>): unknown[] {
  if ('rows' in reply) return reply.rows;
  const { message, fault, sqlState } = reply.error;
  const own = Object.assign(new Error(message), sqlState === undefined ? {} : { code: sqlState });
  throw fault === undefined ? own : new Fault(fault, message, { cause: own });
}
