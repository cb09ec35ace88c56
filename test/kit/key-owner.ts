/**
 * Finds the watcher of a valid key, as the authentication of requests does.
 */
import type { Db } from '../../src/store/db/db.ts';
import { findKeyByLookup } from '../../src/store/watchers/api-keys.ts';

export async function findKeyOwner(
  db: Db,
  lookups: readonly Buffer[],
  now: Date,
): Promise<{ id: number } | undefined> {
  const key = await findKeyByLookup(db, lookups, now);
  return key?.state === 'valid' ? { id: key.watcherId } : undefined;
}
