/**
 * `Authorization: Bearer <API_KEY>` names the watcher (spec 5).
 */
import type { FastifyRequest } from 'fastify';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { isWellFormedKey, lookupsOf } from '../../domain/api-key.ts';
import type { KeyRing } from '../../domain/key-ring.ts';
import type { Database } from '../../store/db/db.ts';
import { findWatcherByLookup } from '../../store/watchers/api-keys.ts';

export const SUSPENDED =
  'This watcher is suspended: its keys are refused, and its webhooks wait until the operator resumes it';

type Authenticator = (authorization: string | undefined) => Promise<number>;

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

/** The watcher of an authenticated request. */
export function watcherOf(request: FastifyRequest): number {
  const watcherId = watchers.get(request);
  if (watcherId === undefined) throw new Error('the request was not authenticated');
  return watcherId;
}

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
      watchers.set(request, await authenticate(authorization));
    },
    watcherOf,
  };
}

/** Whether the error says that the key was refused. */
export const isRefusal = (error: unknown): boolean =>
  error instanceof Fault && (error.code === 'unauthorized' || error.code === 'forbidden');

/**
 * The watcher of a valid key. It queries the database every time, so a revoked key stops working at once.
 * @throws Fault `unauthorized`, the same for a missing, malformed, unknown and revoked key; `forbidden` while the watcher is
 * suspended.
 */
function createAuthenticator({ database, clock, keyRing }: Dependencies): Authenticator {
  return async (authorization) => {
    const key = /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1];
    if (key === undefined || !isWellFormedKey(key)) throw new Fault('unauthorized', 'Unauthorized');
    const watcher = await findWatcherByLookup(database, lookupsOf(key, keyRing), clock.now());
    if (watcher === undefined) throw new Fault('unauthorized', 'Unauthorized');
    if (watcher.isSuspended) throw new Fault('forbidden', SUSPENDED);
    return watcher.id;
  };
}
