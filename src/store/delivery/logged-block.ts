/**
 * The block of a notification, for the delivery log.
 */
import { fromBytes, type Hash } from '../../core/hex.ts';
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

export type LoggedBlock = { hash: Hash; minedAt: Date; isFinal: boolean };

/** The stored block at the height of a notification; undefined if it isn't stored. */
export async function findLoggedBlock(
  db: Db,
  { blockNumber }: { blockNumber: number },
): Promise<LoggedBlock | undefined> {
  const [row] = await db.query<{ hash: Uint8Array; mined_at: Date; is_final: boolean }>(sql`
    select hash, mined_at, coalesce(number <= (select finalized_number from chain), false) as is_final
    from block where number = ${blockNumber}`);
  return row && { hash: fromBytes(row.hash), minedAt: row.mined_at, isFinal: row.is_final };
}
