/**
 * `Idempotency-Key`: a client may repeat the request, and it takes effect once (draft-ietf-httpapi-idempotency-key-header).
 */
import { createHash } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import type { Once } from '../../store/watchers/idempotency.ts';
import { isOperator } from './auth.ts';
import { invalid } from './errors.ts';

/** A UUID or a hash, with room for a name before it. */
const KEY_CHARACTERS_MAX = 255;

const bodies = new WeakMap<FastifyRequest, string>();

/** Remembers the text of the body if the request has an idempotency key. */
export function noteBody(request: FastifyRequest, text: string): void {
  if (request.headers['idempotency-key'] !== undefined) bodies.set(request, text);
}

/**
 * The identity of a request whose body was read as a whole. Undefined without the header.
 * @throws Fault `invalid` for a key that can't be stored.
 */
export function onceOf(request: FastifyRequest, watcherId: number, now: Date): Once | undefined {
  return startOnce(request, watcherId, now)?.(bodies.get(request) ?? '');
}

/**
 * A function that returns the identity of each part of a streamed request in turn, given its text. Undefined without the header.
 * @throws Fault `invalid` for a key that can't be stored.
 */
export function startOnce(
  request: FastifyRequest,
  watcherId: number,
  now: Date,
): ((text: string) => Once) | undefined {
  const { 'idempotency-key': key } = request.headers;
  if (key === undefined) return undefined;
  if (typeof key !== 'string' || !/^[\x21-\x7e]+$/.test(key) || key.length > KEY_CHARACTERS_MAX) {
    throw invalid('/idempotency-key', `must be 1 to ${KEY_CHARACTERS_MAX} visible ASCII characters`);
  }
  // No header has a space, so the operator's keys and the watcher's never meet.
  const storedKey = isOperator(request) ? `operator ${key}` : key;
  const hash = createHash('sha256').update(`${request.method} ${request.url}`);
  let part = 0;
  return (text) => {
    const digest = hash.update(`\n${text}`).copy().digest();
    part += 1;
    return { watcherId, key: storedKey, part: part - 1, digest, now };
  };
}
