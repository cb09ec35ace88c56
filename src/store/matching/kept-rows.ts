/**
 * Notifications whose transfers are in both branches of a reorg stay, even if their records (watched addresses) have changed since and
 * don't select these transfers any more: a removal notice would tell that a transfer has left the chain.
 */
import type { Hash } from '../../core/hex.ts';
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { inReach, readJsonOfEach } from '../db/shard-rows.ts';
import { sql } from '../db/sql.ts';
import { isOfTransactions } from '../delivery/notification-rows.ts';

/** On Citus: the records with notifications of these transactions that these reorgs orphaned, as a JSON array. */
export async function readRecordsOfOrphaned(
  tx: Tx,
  hashes: readonly Hash[],
  reorgIds: readonly number[],
): Promise<string> {
  const rows = await tx.query<{ shard_id: number; watched_address_id: string }>(sql`
    select distinct n.shard_id, n.watched_address_id from notification_status n
    where ${isOfTransactions(hashes)} and n.reorg_id = any(${listOf(reorgIds)}::bigint[])${inReach(tx, sql`n.shard_id`)}`);
  const records = rows.map((one) => ({ shardId: one.shard_id, id: one.watched_address_id }));
  return readJsonOfEach(
    tx,
    records,
    (shardId, own) => sql`
    select w.* from watched_address w where w.shard_id = ${shardId} and w.id = any(${listOf(own.map(({ id }) => id))}::uuid[])`,
  );
}
