/**
 * Removal notices, for watched addresses with `removed`. A removal notice is the next revision of the notification's
 * row. So each transfer has one row with its current message, which is attempted until a 2xx.
 */
import type { Tx } from '../db/db.ts';
import { inReach, joinJson, readJson, recordsOf } from '../db/shard-rows.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { lockLanes } from './lane-locks.ts';
import { wakeLanes } from './lanes.ts';
import { removalSequence } from './message-kind.ts';
import { keysOf, lockRowsOf, type RowKey, storedColumns } from './notification-rows.ts';
import type { OrderedRecord } from './sequence.ts';

type QueuedRow = { shard_id: number; lane_id: number; ordered_id: string | null };
const REPORTED_COLUMNS = `shard_id bigint, id bigint, created_at timestamptz, watched_address_id uuid, reorg_id bigint,
  tx_hash bytea, unsent_epoch bigint, revision integer, sequence bigint, lane_id bigint`;

/**
 * Turns those of these notifications `n` that match the condition into removal notices if their watched addresses have `removed` on. In
 * strict order the newest is sent first, and all of them before the new branch. Returns the affected watched addresses in
 * strict order: pass them to `advanceSequences` once everything that was orphaned together has been handled.
 */
export async function toRemovalNotices(
  tx: Tx,
  { candidates, condition }: { candidates: readonly RowKey[]; condition: Sql },
  now: Date,
): Promise<OrderedRecord[]> {
  if (candidates.length === 0) return [];
  const found: (RowKey & { lane_id: number })[][] = [];
  for (const own of partsOf(tx, candidates)) {
    const wanted = wantedOf(tx, own, condition);
    found.push(await tx.query(sql`select n.shard_id, n.id, n.created_at, w.lane_id from ${wanted}`));
  }
  const keys = found.flat();
  if (keys.length === 0) return [];
  // Lock lanes before rows, as a worker that settles does. The opposite order would deadlock.
  await lockLanes(
    tx,
    keys.map((key) => key.lane_id),
  );
  await lockRowsOf(tx, keys);
  const reportedOf = (own: readonly RowKey[]) => sql`
      select n.shard_id, n.id, n.created_at, n.watched_address_id, n.reorg_id, n.tx_hash, n.unsent_epoch,
        n.revision + 1 as revision, ${removalSequence} as sequence, w.lane_id
      from ${wantedOf(tx, own, condition)}`;
  const resume = (from: Sql) => sql`
      delete from ended e using ${from} r where e.shard_id = r.shard_id and e.id = r.id${inReach(tx, sql`e.shard_id`)}`;
  const enqueue = (from: Sql) => sql`
      insert into queue as q (shard_id, id, created_at, watched_address_id, reorg_id, tx_hash, unsent_epoch, revision, sequence,
        lane_id, state, due_at, may_be_seen)
      select shard_id, id, created_at, watched_address_id, reorg_id, tx_hash, unsent_epoch, revision, sequence,
        lane_id, case when sequence is null then 'waiting' else 'held' end, ${now}, true
      from ${from} r order by shard_id, id
      on conflict (shard_id, id) do update set revision = excluded.revision, sequence = excluded.sequence,
        lane_id = excluded.lane_id, state = excluded.state, due_at = excluded.due_at, may_be_seen = true,
        release_number = null, retry_count = 0, redelivery_count = 0, next_retry_at = null
      returning q.shard_id, q.lane_id, case when q.sequence is not null then q.watched_address_id end as ordered_id`;
  const run = async (): Promise<QueuedRow[]> => {
    if (tx.isDistributed !== true)
      return tx.query<QueuedRow>(sql`
        with reported as materialized (${reportedOf(keys)}), resumed as (${resume(sql`reported`)}), queued as (${enqueue(sql`reported`)})
        select shard_id, lane_id, ordered_id from queued`);
    const parts: string[] = [];
    for (const own of partsOf(tx, keys)) parts.push(await readJson(tx, reportedOf(own)));
    const json = joinJson(parts);
    if (json === '[]') return [];
    const read = recordsOf(json, REPORTED_COLUMNS);
    await tx.query(resume(read));
    return tx.query<QueuedRow>(enqueue(read));
  };
  const rows = await run();
  await wakeLanes(tx, [...new Set(rows.map(({ lane_id }) => lane_id))], now, 'reorg');
  return rows.flatMap(({ shard_id: shardId, ordered_id: id }) => (id === null ? [] : [{ shardId, id }]));
}

/** On Citus by shard, because a subquery about several of them would be sent to all workers. */
const partsOf = (tx: Tx, keys: readonly RowKey[]): (readonly RowKey[])[] =>
  tx.isDistributed === true ? [...Map.groupBy(keys, (key) => key.shard_id).values()] : [keys];

/**
 * Those of these notifications `n` that match the condition, with their watched addresses `w`. First the notifications: in one join, the
 * planner may combine all of a shard with each other.
 */
function wantedOf(tx: Tx, keys: readonly RowKey[], condition: Sql): Sql {
  const isOfShard = (shardId: Sql) =>
    tx.isDistributed === true ? sql` and ${shardId} = ${keys[0]?.shard_id}` : sql``;
  return sql`(
    select ${raw(storedColumns)} from notification_status n
    where (n.shard_id, n.id, n.created_at) in (select * from ${keysOf(keys)}) and ${condition}${isOfShard(sql`n.shard_id`)} offset 0
  ) n join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id and w.removed${isOfShard(sql`w.shard_id`)}`;
}
