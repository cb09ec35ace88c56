/**
 * `strict_order`: for each watched address with this setting, only one notification at a time may be attempted, in the order of
 * the chain. The ones after it are held, so that no worker reads them while the first one fails.
 */
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { forEachShard } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { wakeLanes } from './lanes.ts';
import { lastStepAt, sentBy } from './sent-by.ts';
import type { ShardKey } from './shards.ts';

/** Advisory lock space of watched addresses whose sequence a transaction advances. */
const SEQUENCE_LOCK_SPACE = 0x6362_0007;
/**
 * Watched addresses share this many locks, on Citus those of a shard: one for each of a large commit would not fit into PostgreSQL's
 * lock table.
 */
const [SEQUENCE_LOCKS, SEQUENCE_LOCKS_EACH] = [1_024, 32];

export type OrderedRecord = ShardKey<string>;

/**
 * Makes the first notification of each watched address due, unless it lacks confirmations. One that was waiting is held if another comes
 * before it since a reorg. A redelivery was requested for now, so nothing is held or released while one waits. Every
 * transaction that creates or ends a notification of the watched address must call this after its other statements. `sharedLanes` as for
 * `wakeLanes`.
 */
export async function advanceSequences(
  tx: Tx,
  records: readonly OrderedRecord[],
  now: Date,
  sharedLanes?: readonly number[],
): Promise<void> {
  if (records.length === 0) return;
  const ordered = [...new Map(records.map((record) => [record.id, record])).values()].sort((a, b) =>
    a.id < b.id ? -1 : 1,
  );
  const ids = listOf(ordered.map(({ id }) => id));
  // The lock orders a transaction that creates and one that ends: the update of the later one sees the other's changes.
  const key =
    tx.isDistributed === true
      ? sql`(get_shard_id_for_distribution_column('watched_address', shard_id) * ${SEQUENCE_LOCKS_EACH} +
          (hashtext(id) & ${SEQUENCE_LOCKS_EACH - 1}::integer))::integer`
      : sql`hashtext(id) & ${SEQUENCE_LOCKS - 1}::integer`;
  await tx.query(sql`
    select pg_advisory_xact_lock(${SEQUENCE_LOCK_SPACE}, key) from (
      select distinct ${key} as key
      from unnest(${ids}::text[], ${listOf(ordered.map(({ shardId }) => shardId))}::bigint[]) as r (id, shard_id) order by key) as keys`);
  const dueBy = await attemptedBy(tx, now);
  const advance = (own: readonly OrderedRecord[], shardId: Sql) => {
    const isOwn = sql`o.shard_id = ${shardId} and o.watched_address_id = r.id and o.sequence is not null`;
    const firstOf = (condition: Sql) => sql`(
      select o.id, o.state, o.release_number, o.sequence from queue o where ${isOwn} and ${condition}
      order by o.sequence limit 1)`;
    return tx.query<{ lane_id: number; state: string }>(sql`
    update queue n set
      state = case when n.id = first.id then 'waiting' else 'held' end,
      due_at = case when n.id = first.id then greatest(${now}, n.next_retry_at) else n.due_at end,
      may_be_seen = n.may_be_seen or n.id <> first.id and n.due_at <= ${dueBy}
    from unnest(
      ${listOf(own.map((record) => record.shardId))}::bigint[], ${listOf(own.map(({ id }) => id))}::uuid[]) as r (shard_id, id)
    cross join lateral (
      select * from (
        ${firstOf(sql`o.state = 'waiting'`)} union all ${firstOf(sql`o.state = 'held'`)}) as each_first
      order by sequence limit 1
    ) as first
    cross join lateral (
      select array(select o.id from queue o where ${isOwn} and o.state = 'waiting')
        || case when first.release_number is null then first.id end as ids
    ) as changed
    where first.state = 'held' and n.shard_id = ${shardId} and n.id = any(changed.ids)
      and not exists (select from queue o where ${isOwn} and o.state = 'waiting' and o.redelivery_count > 0)
    returning n.lane_id, n.state`);
  };
  const rows =
    tx.isDistributed === true
      ? await forEachShard(ordered, (shardId, own) => advance(own, sql`${shardId}`))
      : await advance(ordered, sql`r.shard_id`);
  const isReordered = rows.some(({ state }) => state === 'held');
  const laneIds = [...new Set(rows.map(({ lane_id }) => lane_id))];
  await wakeLanes(tx, laneIds, now, isReordered ? 'reorg' : 'due', sharedLanes);
}

/** A waiting row that is due by then may have been sent, as `mayBeSeen` (reorgs.ts) counts. */
async function attemptedBy(tx: Tx, now: Date): Promise<Sql> {
  if (tx.isDistributed !== true) return sentBy(now);
  const [row] = await tx.query<{ at: Date | null }>(sql`select ${lastStepAt} as at`);
  return sentBy(now, sql`${row?.at ?? null}::timestamptz`);
}
