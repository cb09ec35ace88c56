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
  }: Moment & { releasedBefore?: number | undefined; laneIds: readonly number[] },
): Promise<StoredCount[]> {
  const isReleased = sql`state = 'held' and release_number > ${releasedBefore} and release_number <= ${releasedNumber}`;
  const release = (condition: Sql) => sql`
      update queue q set release_number = null, due_at = greatest(${now}, next_retry_at),
        state = case when sequence is null then 'waiting' else 'held' end
      where ${isReleased} and ${condition}
      returning ${changedRow}, false as is_new`;
  if (tx.isDistributed === true) {
    const held = await tx.query<{ shard_id: number; lane_id: number }>(sql`
      select distinct shard_id, lane_id from queue where ${isReleased}${inReach(tx, sql`shard_id`)}`);
    await lockLanes(tx, [...laneIds, ...held.map((row) => row.lane_id)]);
    if (held.length === 0) return [];
    const shards = listOf([...new Set(held.map((row) => row.shard_id))]);
    return countStored(await tx.query<ChangedRow>(release(sql`shard_id = any(${shards}::bigint[])`)));
  }
  const rows = await tx.query<StoredCountRow>(sql`
    with locked as materialized (
      select id from lane where id in (
        select unnest(${listOf(laneIds)}::bigint[])
        union
        select lane_id from queue where ${isReleased})
      order by id for update
    ), released as (${release(sql`(select count(*) from locked) >= 0`)}
    )
    select ${storedCountColumns} from released group by shard_id, lane_id, state, ordered_id order by lane_id, state, ordered_id`);
  return rows.map(toStoredCount);
}
