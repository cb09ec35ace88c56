/**
 * Notifications whose transfers are in both branches of a reorg stay, even if their records (watched addresses) have changed since and
 * don't select these transfers any more: a removal notice would tell that a transfer has left the chain.
 */
import type { Hash } from '../../core/hex.ts';
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { inReach, readJsonOfEach } from '../db/shard-rows.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { isOfTransaction, isOfTransactions, kindText } from '../delivery/notification-rows.ts';

/** Whether notification `n` has the content of a row of this relation. */
export const hasContentOf = (relation: string): Sql => {
  const of = (column: string) => raw(`${relation}.${column}`);
  return sql`n.kind = ${kindText(of('kind'))} and n.sender = ${of('sender')} and n.receiver is not distinct from ${of('receiver')}
        and n.token is not distinct from ${of('token')} and n.amount = ${of('amount')} and n.occurrence = ${of('occurrence')}`;
};

/** The rows for notifications that these reorgs orphaned and whose content is among the transfers `t`. */
export const keptAmong = (
  statuses: Sql,
  reorgIds: readonly number[],
  { watches, itsLane, row }: { watches: Sql; itsLane: Sql; row: Sql },
): Sql => sql`
        select ${row}
        from t join ${statuses} n on ${isOfTransaction(sql`t.tx_hash`)} and ${hasContentOf('t')}
          and n.reorg_id = any(${listOf(reorgIds)}::bigint[])
        join ${watches} w on w.shard_id = n.shard_id and w.id = n.watched_address_id
        ${itsLane}`;

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
