/**
 * `Authorization: Bearer <API_KEY>` names the watcher (spec 5).
 */
import type { FastifyRequest } from 'fastify';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { isWellFormedKey, lookupsOf } from '../../domain/api-key.ts';
import type { KeyRing } from '../../domain/key-ring.ts';
import type { Database } from '../../store/db/db.ts';
import { findKeyByLookup, type PresentedKey } from '../../store/watchers/api-keys.ts';

export const SUSPENDED =
  'This watcher is suspended: its keys are refused, and its webhooks wait until the operator resumes it';

type Authenticator = (authorization: string | undefined) => Promise<PresentedKey>;

/** Authentication of a route's requests: the hook that checks the key, and the watcher it found. */
export type WatcherGate = {
  /** The route's `onRequest` hook. It runs before the body is read, so a request without a valid key costs little. */
  onRequest: (request: FastifyRequest) => Promise<void>;
  /** The watcher of a request that passed `onRequest`. */
  watcherOf: (request: FastifyRequest) => number;
};

type Dependencies = { database: Database; clock: Clock; keyRing: KeyRing };

/** After a body that took longer, the key is checked again because it may have been revoked meanwhile. */
const BODY_MS_MAX = 1_000;
const rechecks = new WeakMap<FastifyRequest, () => Promise<void>>();
const watchers = new WeakMap<FastifyRequest, number>();
const keys = new WeakMap<FastifyRequest, PresentedKey>();

/** The watcher of an authenticated request. */
export function watcherOf(request: FastifyRequest): number {
  const watcherId = watchers.get(request);
  if (watcherId === undefined) throw new Error('the request was not authenticated');
  return watcherId;
}

/** The API key of an authenticated request. */
export const keyOf = (request: FastifyRequest): PresentedKey | undefined => keys.get(request);

/** The `preHandler` of all routes: checks the key again after a slow body. Rejects like `onRequest`. */
export async function passAgain(request: FastifyRequest): Promise<void> {
  await rechecks.get(request)?.();
}

/** Its hook rejects with the Faults of `createAuthenticator`. */
export function createWatcherGate(dependencies: Dependencies): WatcherGate {
  const { clock } = dependencies;
  const authenticate = createAuthenticator(dependencies);
  return {
    async onRequest(request) {
      const { authorization } = request.headers;
      const sinceMs = clock.steadyMs();
      rechecks.set(request, async () => {
        if (clock.steadyMs() - sinceMs >= BODY_MS_MAX) await authenticate(authorization);
      });
      const key = await authenticate(authorization);
      watchers.set(request, key.watcherId);
      keys.set(request, key);
    },
    watcherOf,
  };
}

/** Whether the error says that the key was refused. */
export const isRefusal = (error: unknown): boolean =>
  error instanceof Fault && (error.code === 'unauthorized' || error.code === 'forbidden');

export const unauthorized = (): Fault => new Fault('unauthorized', 'Unauthorized');

/** What a client with a refused key learns. It names no watcher, and only the key's owner can ask. */
const refusals = {
  unknown: 'is no API key of this service',
  revoked: 'was revoked. Ask the operator for a new API key',
  expired: 'has expired, because it was replaced by a newer API key',
};

/** Spec 7 has the status and its message. */
const refusalOf = (state: keyof typeof refusals): Fault =>
  new Fault('unauthorized', 'Unauthorized', {
    reason: `${state}_key`,
    problems: [{ path: '/authorization', message: refusals[state] }],
  });

/**
 * A valid key. It queries the database every time, so a revoked key stops working at once.
 * @throws Fault `unauthorized` for a missing key, and with a reason for an unknown, revoked or expired one; `forbidden` while the
 * watcher is suspended.
 */
function createAuthenticator({ database, clock, keyRing }: Dependencies): Authenticator {
  return async (authorization) => {
    const text = /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1];
    if (text === undefined) throw unauthorized();
    if (!isWellFormedKey(text)) throw refusalOf('unknown');
    const key = await findKeyByLookup(database, lookupsOf(text, keyRing), clock.now());
    if (key === undefined) throw refusalOf('unknown');
    if (key.state !== 'valid') throw refusalOf(key.state);
    if (key.isSuspended) throw new Fault('forbidden', SUSPENDED);
    return key;
  };
}
