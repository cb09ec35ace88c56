/**
 * Transactions for work of several watchers, which a lock of one watcher's transaction must not hold up.
 */
import { Fault } from '../../core/fault.ts';
import type { Database, Tx } from './db.ts';
import { sql } from './sql.ts';

/**
 * Longer than ordinary transactions hold their locks, and below the second after which the server checks for deadlocks.
 */
const LOCK_MS_MAX = 100;

/** SQLSTATE of a statement that has waited for a lock for too long. */
const LOCK_NOT_AVAILABLE = '55P03';

/** Runs a transaction. If a statement waits for a lock longer than LOCK_MS_MAX, rolls back and returns undefined. */
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
