/**
 * Transactions for work of several watchers: a lock that one watcher's transaction keeps must not hold up the others.
 */
import { Fault } from '../../core/fault.ts';
import type { Database, Tx } from './db.ts';
import { sql } from './sql.ts';

/** Locks of ordinary transactions end much earlier; below the second after which the server looks for deadlocks. */
const LOCK_MS_MAX = 100;

/** SQLSTATE of a statement that has waited for a lock for too long. */
const LOCK_NOT_AVAILABLE = '55P03';

/** The transaction; undefined, and nothing is done, when a statement waits for a lock for longer than LOCK_MS_MAX. */
export async function unlessLocked<T>(
  database: Database,
  work: (tx: Tx) => Promise<T>,
): Promise<T | undefined> {
  try {
    return await database.transaction(async (tx) => {
      await tx.query(sql`select set_config('lock_timeout', ${String(LOCK_MS_MAX)}, true)`);
      return work(tx);
    });
  } catch (error) {
    const cause = error instanceof Fault ? error.cause : undefined;
    if (cause instanceof Error && 'code' in cause && cause.code === LOCK_NOT_AVAILABLE) return undefined;
    throw error;
  }
}
