/**
 * `Authorization: Bearer <API_KEY>` names the watcher (spec 5).
 */
import { isWellFormedKey, type KeyRing, lookupOf } from '../core/api-key.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Database } from '../store/db.ts';
import { findWatcherByLookup } from '../store/keys.ts';

export type Authenticator = (authorization: string | undefined) => Promise<number>;

/**
 * The watcher of a valid key. The database is asked every time, so that a revoked key ends at once.
 * @throws Fault `unauthorized`, the same for a missing, malformed, unknown and revoked key.
 */
export function createAuthenticator(dependencies: {
  database: Database;
  clock: Clock;
  keyRing: KeyRing;
}): Authenticator {
  const { database, clock, keyRing } = dependencies;
  return async (authorization) => {
    const key = /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1];
    if (key === undefined || !isWellFormedKey(key)) throw new Fault('unauthorized', 'Unauthorized');
    const watcherId = await findWatcherByLookup(database, lookupOf(key, keyRing), clock.now());
    if (watcherId === undefined) throw new Fault('unauthorized', 'Unauthorized');
    return watcherId;
  };
}
