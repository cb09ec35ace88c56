/**
 * Advisory locks on texts that a watcher chooses.
 */
import { createHash } from 'node:crypto';
import type { Tx } from './db.ts';
import { type Sql, sql } from './sql.ts';

/** Takes the lock of this text until the transaction ends. */
export async function lockText(tx: Tx, space: number, watcherId: number, text: string): Promise<void> {
  await tx.query(textLock(space, watcherId, text));
}

/**
 * The statement that takes it. The key is 64 bits of a SHA-256, because a watcher must not be able to find a text that shares the lock of
 * another watcher's.
 */
export function textLock(space: number, watcherId: number, text: string): Sql {
  const key = createHash('sha256').update(`${space} ${watcherId} ${text}`).digest().readBigInt64BE();
  return sql`select pg_advisory_xact_lock(${String(key)}::bigint)`;
}
