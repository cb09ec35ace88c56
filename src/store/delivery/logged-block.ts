/**
 * The block of a notification, for the delivery log. It is read in the statement of the notification, because a reorg may replace the block
 * between two statements.
 */
import { fromBytes, type Hash } from '../../core/hex.ts';
import { sql } from '../db/sql.ts';

export type LoggedBlock = { hash: Hash; minedAt: Date; isFinal: boolean };

export type LoggedBlockRow = { block_hash: Uint8Array | null; mined_at: Date; is_final: boolean };

/** Columns of the canonical block `b` of a notification `n`. */
export const loggedBlockColumns = sql`b.hash as block_hash, b.mined_at,
  coalesce(b.number <= (select finalized_number from chain), false) as is_final`;
export const loggedBlockJoin = sql`left join block b on n.reorg_id is null and b.number = n.block_number`;

export const toLoggedBlock = (row: LoggedBlockRow): LoggedBlock | undefined =>
  row.block_hash === null
    ? undefined
    : { hash: fromBytes(row.block_hash), minedAt: row.mined_at, isFinal: row.is_final };
