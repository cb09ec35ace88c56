/**
 * Whether transactions have notifications already. Most blocks need not look any further.
 */
import { fromBytes, type Hash } from '../../core/hex.ts';
import { bytesOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { inReach } from '../db/shard-rows.ts';
import { raw, sql } from '../db/sql.ts';
import { endsLike, isOfTransaction } from '../delivery/notification-rows.ts';

/**
 * How long after a reorg its transactions may be mined again: further than a clock may have been set back. If one is mined later,
 * nothing shows how old its notifications are.
 */
export const REINCLUSION_MS = 86_400_000;
const REINCLUSION_MARGIN = raw(`interval '${REINCLUSION_MS} ms'`);

/**
 * Whether one of the transactions has notifications already, from an orphaned block or a repeated transaction. Looks at those
 * that a reorg has orphaned, and at those created since the oldest block that is not final was stored: a final block's
 * transactions can't be mined again.
 */
export async function hasEarlierNotifications(tx: Tx, hashes: readonly Hash[]): Promise<boolean> {
  if (tx.isDistributed === true) return hasEarlierInShards(tx, hashes);
  const [row] = await tx.query<{ found: boolean }>(sql`
    with t as materialized (select tx_hash from unnest(${bytesOf(hashes)}::bytea[]) as t (tx_hash))
    select exists (select from t join queue q on q.tx_hash = t.tx_hash and q.reorg_id is not null)
      or exists (select from t join ended e on e.tx_hash = t.tx_hash and e.reorg_id is not null)
      or exists (
        select from t cross join lateral (
          select from notification n where ${isOfTransaction(sql`t.tx_hash`)} and n.created_at >= ${oldestNotFinal}
          limit 1) as n
      ) as found`);
  return row?.found === true;
}

/** From before the oldest block that is not final was stored. */
const oldestNotFinal = sql`coalesce((
            select stored_at from block where number > (select finalized_number from chain) order by number limit 1),
            (select stored_at from block order by number desc limit 1), '-infinity'::timestamptz) - ${REINCLUSION_MARGIN}`;

async function hasEarlierInShards(tx: Tx, hashes: readonly Hash[]): Promise<boolean> {
  const [since] = await tx.query<{ time: string }>(sql`select (${oldestNotFinal})::text as time`);
  const wanted = new Set(hashes);
  const isIn = inReach(tx, sql`n.shard_id`);
  const ofHashes = sql`n.tx_hash = any(${bytesOf(hashes)}::bytea[])${isIn}`;
  // With its id, each shard unites its own rows.
  const rows = await tx.query<{ tx_hash: Uint8Array }>(sql`
    select distinct tx_hash from (
      select n.shard_id, n.tx_hash from queue n where ${ofHashes} and n.reorg_id is not null
      union all select n.shard_id, n.tx_hash from ended n where ${ofHashes} and n.reorg_id is not null
      union all select n.shard_id, n.tx_hash from notification n where ${endsLike(hashes)}${isIn} and n.created_at >= ${since?.time}::timestamptz) as earlier`);
  return rows.some((row) => wanted.has(fromBytes(row.tx_hash)));
}
