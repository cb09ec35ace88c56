/**
 * Statements about the rows of one notification, which are spread over `notification`, `queue` and `ended`. Most code reads
 * them together from the view `notification_status`.
 */
import type { Hash } from '../../core/hex.ts';
import type { TransferKind } from '../../domain/block.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { inReach, readJson, readJsonOfEach, rowsFrom } from '../db/shard-rows.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { isInShards, isOneOfNotifications, type ShardKey } from './shards.ts';

/** The column `kind`, in one byte. */
export const kindCode: Record<TransferKind, string> = { transaction: 'c', internal: 'i', token: 't' };
export const kindText = (code: Sql): Sql =>
  sql`(case ${code} when 'c' then 'transaction' when 'i' then 'internal' else 'token' end)`;

/** Whether notification `n` is of this transaction. The index contains only the last 4 bytes of each hash. */
export const isOfTransaction = (txHash: Sql): Sql =>
  sql`(substr(n.tx_hash, 29) = substr(${txHash}, 29) and n.tx_hash = ${txHash})`;

/** Whether notification `n` is of one of these transactions. */
export function isOfTransactions(hashes: readonly Hash[]): Sql {
  const distinct = [...new Set(hashes)];
  return sql`n.tx_hash = any(${bytesOf(distinct)}::bytea[]) and ${endsLike(distinct)}`;
}

/** Whether the hash of `n`'s transaction has the last four bytes of one of these, by which the index of `notification` finds it. */
export function endsLike(hashes: readonly Hash[]): Sql {
  const ends = [...new Set(hashes.map((hash): Hash => `0x${hash.slice(-8)}`))];
  return sql`substr(n.tx_hash, 29) = any(${bytesOf(ends)}::bytea[])`;
}

/** Whether notification `n` of the view was orphaned by this reorg. Finds it by the indexes of `queue` and `ended`. */
export const isOfReorg = (tx: Tx, reorgId: number): Sql => {
  const isOwn = sql`reorg_id = ${reorgId}${inReach(tx, sql`shard_id`)}`;
  return sql`(n.reorg_id = ${reorgId}${inReach(tx, sql`n.shard_id`)}
  and (n.shard_id, n.id, n.created_at) in (
    select shard_id, id, created_at from queue where ${isOwn}
    union all select shard_id, id, created_at from ended where ${isOwn}))`;
};

/** The columns of the view without those that read further tables, for which Citus would ask all shards. */
export const storedColumns = `n.shard_id, n.id, n.lane_id, n.watched_address_id, n.watcher_id, n.kind, n.tx_hash, n.ordinal, n.occurrence,
  n.sender, n.receiver, n.amount, n.token, n.block_number, n.created_at, n.state, n.release_number, n.sequence, n.next_attempt_at,
  n.next_retry_at, n.retry_count, n.redelivery_count, n.revision, n.reorg_id, n.replaces, n.may_be_seen, n.unsent_epoch`;

/** When notification `n` was processed, if it was: by its row `e` of `ended`, or `a`, its last success. */
const processedAt = `case when n.state = 'processed' then case when e.id is null then a.ended_at else e.ended_at end end as processed_at`;

/** On Citus: a relation with the rows of the view with these keys. Asks only their shards. */
export async function readStatuses(db: Db, keys: readonly ShardKey<number>[]): Promise<Sql> {
  const json = await readJsonOfEach(db, keys, (shardId, own) => {
    const ids = sql`any(${listOf(own.map(({ id }) => id))}::bigint[])`;
    return sql`
      select ${raw(`${storedColumns}, ${processedAt}`)}
      from notification_status n
      left join ended e on e.shard_id = ${shardId} and e.id = n.id
      left join (
        select notification_id, max(started_at + duration_ms * interval '1 ms') as ended_at from delivery_attempt
        where shard_id = ${shardId} and notification_id = ${ids} and outcome = 'success' group by notification_id
      ) as a on a.notification_id = n.id
      where n.shard_id = ${shardId} and n.id = ${ids}`;
  });
  return rowsFrom('notification_status', json);
}

/** On Citus: a relation with the watched addresses of these rows. Asks only their shards. */
export async function watchesOf(db: Db, statuses: Sql): Promise<Sql> {
  const rows = await db.query<{ shard_id: number; id: string }>(sql`
    select distinct shard_id, watched_address_id as id from ${statuses} as n`);
  const json = await readJsonOfEach(
    db,
    rows.map(({ shard_id: shardId, id }) => ({ shardId, id })),
    (shardId, own) => sql`
      select * from watched_address where shard_id = ${shardId} and id = any(${listOf(own.map(({ id }) => id))}::uuid[])`,
  );
  return rowsFrom('watched_address', json);
}

/** The columns that `queue` and `ended` have in common, apart from the state. */
const progressColumns = sql`shard_id, id, created_at, sequence, next_retry_at, retry_count, redelivery_count, revision,
  reorg_id, tx_hash, may_be_seen`;

type GoneRow = { shard_id: number; id: number; lane_id: number; ordered_id: string | null };

/**
 * Moves the rows `n` of `queue` that match the condition to `ended`. Lock them or their lanes before. `ordered_id` is the watched
 * address of a row in strict order.
 */
export async function moveToEnded(
  tx: Tx,
  condition: Sql,
  { state, now }: { state: 'withdrawn' | 'cancelled'; now: Date },
): Promise<GoneRow[]> {
  const insert = (gone: Sql) => sql`
    insert into ended (${progressColumns}, state, ended_at)
    select ${progressColumns}, ${state}::text, ${now}::timestamptz from ${gone} as g`;
  const summary = sql`shard_id, id, lane_id, case when sequence is not null then watched_address_id end as ordered_id`;
  if (tx.isDistributed !== true)
    return tx.query<GoneRow>(sql`
      with gone as (delete from queue n where ${condition} returning n.*), ended_now as (${insert(sql`gone`)}) select ${summary} from gone`);
  // Citus allows no conversion of times in `returning`. The rows are locked, or their lanes are, so they don't change in between.
  const json = await readJson(tx, sql`select n.* from queue n where ${condition}`);
  if (json === '[]') return [];
  const gone = rowsFrom('queue', json);
  const rows = await tx.query<GoneRow>(sql`select ${summary} from ${gone} as g`);
  // By their keys, because the condition may match further rows by now.
  const keys = rows.map(({ shard_id: shardId, id }) => ({ shardId, id }));
  const shards = [...new Set(keys.map(({ shardId }) => shardId))];
  await tx.query(sql`
    delete from queue n
    where ${isInShards(sql`n.shard_id`, shards)} and ${isOneOfNotifications(sql`n.shard_id`, sql`n.id`, keys)}`);
  await tx.query(insert(gone));
  return rows;
}

/**
 * Locks the notifications `n` of the view that match the condition, so that their rows neither change nor move between `queue`
 * and `ended` until this transaction ends. Call it as a statement before the one that changes them, and lock their lanes before,
 * as a worker that settles does.
 */
export async function lockRows(tx: Tx, condition: Sql): Promise<void> {
  const rows = await tx.query<RowKey>(sql`
    select n.shard_id, n.id, n.created_at from notification_status n where ${condition}`);
  await lockRowsOf(tx, rows);
}

/** The same for notifications with these keys. */
export async function lockRowsOf(tx: Tx, rows: readonly RowKey[]): Promise<void> {
  if (rows.length === 0) return;
  if (tx.isDistributed !== true) return lockKeys(tx, rows, sql`k.shard_id`);
  const shards = [...Map.groupBy(rows, (row) => row.shard_id)].sort(([one], [other]) => one - other);
  for (const [shardId, own] of shards) await lockKeys(tx, own, sql`${shardId}`);
}

export type RowKey = { shard_id: number; id: number; created_at: Date };

/** The keys as a relation `k`. */
export const keysOf = (rows: readonly RowKey[]): Sql => sql`unnest(
      ${listOf(rows.map(({ shard_id }) => shard_id))}::bigint[],
      ${listOf(rows.map(({ id }) => id))}::bigint[],
      ${listOf(rows.map(({ created_at }) => created_at.toISOString()))}::timestamptz[]
    ) as k (shard_id, id, created_at)`;

/** Locks the rows with these keys. `shardId` is that of the keys `k`. */
async function lockKeys(tx: Tx, rows: readonly RowKey[], shardId: Sql): Promise<void> {
  const keys = keysOf(rows);
  // Two statements: a row of `queue` that another transaction wrote before it released the first lock is locked too.
  await tx.query(sql`
    select from ${keys} join notification n on n.shard_id = ${shardId} and n.id = k.id and n.created_at = k.created_at
    order by k.shard_id, k.id for update of n`);
  await tx.query(sql`
    select from ${keys} join queue q on q.shard_id = ${shardId} and q.id = k.id
    order by k.shard_id, k.id for update of q`);
}
