/**
 * Confirmations: notifications are held until the tip is as far above their block as their record (watched address) asks for.
 */
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { inReach } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { lockLanes } from '../delivery/lane-locks.ts';
import type { Moment } from './matching.ts';
import {
  type ChangedRow,
  changedRow,
  countStored,
  type StoredCount,
  type StoredCountRow,
  storedCountColumns,
  toStoredCount,
} from './stored-count.ts';

/**
 * Notifications that a commit releases in one shard for each of its blocks, the oldest first. A watcher with hundreds of thousands of
 * records for one address would otherwise hold up the blocks of all others; the next commits release its rest.
 */
const RELEASED_MAX = 10_000;

type Released = { counts: StoredCount[]; hasMore: boolean };

/**
 * Makes notifications due that now have their confirmations. Locks lanes before rows, as a worker that settles does, and
 * together with `laneIds`, which the caller locks next, so that all are locked in one order. `releasedBefore` keeps the scan
 * off dead index entries: without it a block read 2,500 of them.
 */
export async function releaseHeld(
  tx: Tx,
  {
    releasedBefore = -1,
    releasedNumber,
    now,
    laneIds,
    blockCount,
    releasedMax = RELEASED_MAX,
  }: Moment & {
    releasedBefore?: number | undefined;
    laneIds: readonly number[];
    blockCount: number;
    releasedMax?: number | undefined;
  },
): Promise<Released> {
  const isReleased = sql`state = 'held' and release_number > ${releasedBefore} and release_number <= ${releasedNumber}`;
  const held = await tx.query<HeldLane>(sql`
    select shard_id, lane_id, count(*) as count from queue
    where ${isReleased}${inReach(tx, sql`shard_id`)} group by shard_id, lane_id`);
  if (held.length === 0) return { counts: [], hasMore: false };
  const rest = await restOf(tx, held, { isReleased, most: releasedMax * blockCount });
  const release = (condition: Sql) => sql`
      update queue q set release_number = null, due_at = greatest(${now}, next_retry_at),
        state = case when sequence is null then 'waiting' else 'held' end
      where ${isReleased} and ${condition} and not (${rest})
      returning ${changedRow}, false as is_new`;
  const hasMore = rest !== NOTHING;
  const lanes = [...laneIds, ...held.map((row) => row.lane_id)];
  if (tx.isDistributed === true) {
    await lockLanes(tx, lanes);
    const shards = listOf([...new Set(held.map((row) => row.shard_id))]);
    const changed = await tx.query<ChangedRow>(release(sql`shard_id = any(${shards}::bigint[])`));
    return { counts: countStored(changed), hasMore };
  }
  const rows = await tx.query<StoredCountRow>(sql`
    with locked as materialized (
      select id from lane where id = any(${listOf(lanes)}::bigint[]) order by id for update
    ), released as (${release(sql`(select count(*) from locked) >= 0`)}
    )
    select ${storedCountColumns} from released group by shard_id, lane_id, state, ordered_id order by lane_id, state, ordered_id`);
  return { counts: rows.map(toStoredCount), hasMore };
}

type HeldLane = { shard_id: number; lane_id: number; count: number };

const NOTHING = sql`false`;

/** The notifications that are left to the next commits: in each shard those after the first `most`. */
async function restOf(
  tx: Tx,
  held: readonly HeldLane[],
  { isReleased, most }: { isReleased: Sql; most: number },
): Promise<Sql> {
  let rest = NOTHING;
  for (const [shardId, lanes] of Map.groupBy(held, (row) => row.shard_id)) {
    if (lanes.reduce((sum, { count }) => sum + count, 0) <= most) continue;
    const [first] = await tx.query<{ id: number }>(sql`
      select id from queue where ${isReleased} and shard_id = ${shardId} order by id offset ${most} limit 1`);
    if (first !== undefined) rest = sql`${rest} or (shard_id = ${shardId} and id >= ${first.id})`;
  }
  return rest;
}
