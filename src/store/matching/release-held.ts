/**
 * Confirmations: notifications are held until the tip is as far above their block as their record (watched address) asks for.
 */
import { watcherOfShard } from '../../domain/shard.ts';
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { inReach } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { lockLanes } from '../delivery/lane-locks.ts';
import { isInShards } from '../delivery/shards.ts';
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
 * Up to `atOnce` held notifications are released in one transaction. If more are due, each watcher has a share of them, and the next
 * transactions of the deferred writer (write-deferred.ts) release the rest. A watcher can hold millions for the same block.
 */
export type ReleaseLimits = { atOnce: number; shareMin: number; shareMax: number };
const releaseLimits: ReleaseLimits = { atOnce: 5_000, shareMin: 50, shareMax: 500 };

/** `hasMore`: some that are due are still held. */
type Released = { counts: StoredCount[]; hasMore: boolean };

/** Which notifications are due, and the statement that releases those that meet a further condition. */
type Release = { isDue: Sql; release(condition: Sql): Sql; laneIds: readonly number[] };

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
    limits = releaseLimits,
  }: Moment & {
    releasedBefore?: number | undefined;
    laneIds: readonly number[];
    limits?: ReleaseLimits | undefined;
  },
): Promise<Released> {
  const isDue = sql`state = 'held' and release_number > ${releasedBefore} and release_number <= ${releasedNumber}`;
  const release = (condition: Sql) => sql`
      update queue q set release_number = null, due_at = greatest(${now}, next_retry_at),
        state = case when sequence is null then 'waiting' else 'held' end
      where ${isDue} and ${condition}
      returning ${changedRow}, false as is_new`;
  const all = { isDue, release, laneIds };
  const counts =
    tx.isDistributed === true ? await releaseInShards(tx, all, limits) : await releaseAll(tx, all, limits);
  return counts === undefined ? releaseShares(tx, all, limits) : { counts, hasMore: false };
}

/** Undefined if more than `atOnce` are due: then it changes and locks nothing. */
async function releaseAll(
  tx: Tx,
  { isDue, release, laneIds }: Release,
  { atOnce }: ReleaseLimits,
): Promise<StoredCount[] | undefined> {
  const rows = await tx.query<
    { is_crowd: boolean } & (StoredCountRow | { [Name in keyof StoredCountRow]: null })
  >(sql`
    with due as materialized (
      select count(*) > ${atOnce} as is_crowd from (select from queue where ${isDue} limit ${atOnce + 1}) as first
    ), locked as materialized (
      select id from lane where not (select is_crowd from due) and id in (
        select unnest(${listOf(laneIds)}::bigint[])
        union
        select lane_id from queue where ${isDue} and not (select is_crowd from due))
      order by id for update
    ), released as (${release(sql`not (select is_crowd from due) and (select count(*) from locked) >= 0`)}
    )
    select is_crowd, grouped.* from due left join (
      select ${storedCountColumns} from released group by shard_id, lane_id, state, ordered_id) as grouped on true
    order by lane_id, state, ordered_id`);
  if (rows.some((row) => row.is_crowd)) return undefined;
  return rows.flatMap((row) => (row.shard_id === null ? [] : toStoredCount(row)));
}

/** On Citus: the same. */
async function releaseInShards(
  tx: Tx,
  { isDue, release, laneIds }: Release,
  { atOnce }: ReleaseLimits,
): Promise<StoredCount[] | undefined> {
  const held = await tx.query<{ shard_id: number; lane_id: number; count: number }>(sql`
    select shard_id, lane_id, count(*) as count from queue where ${isDue}${inReach(tx, sql`shard_id`)}
    group by shard_id, lane_id`);
  if (held.reduce((sum, { count }) => sum + count, 0) > atOnce) return undefined;
  await lockLanes(tx, [...laneIds, ...held.map((row) => row.lane_id)]);
  if (held.length === 0) return [];
  const shards = [...new Set(held.map((row) => row.shard_id))];
  return countStored(await tx.query<ChangedRow>(release(isInShards(sql`shard_id`, shards))));
}

/** Releases all of the watchers with few due notifications, and the same number of each of the others, the oldest of each shard first. */
async function releaseShares(
  tx: Tx,
  { isDue, release, laneIds }: Release,
  { atOnce, shareMin, shareMax }: ReleaseLimits,
): Promise<Released> {
  const groups = await listDueGroups(tx, isDue, shareMax);
  const watchers = [...Map.groupBy(groups, (group) => watcherOfShard(group.shard_id)).values()];
  const [few, many] = [
    watchers.filter((of) => sumOf(of) <= shareMax).flat(),
    watchers.filter((of) => sumOf(of) > shareMax),
  ];
  const share = Math.min(shareMax, Math.max(shareMin, Math.floor(atOnce / Math.max(1, many.length))));
  const releases: Sql[] = [];
  const lanes = new Set(laneIds);
  if (few.length > 0) {
    const isOfFew = sql`${isInShards(sql`shard_id`, [...new Set(few.map((group) => group.shard_id))])} and ${isOfBlocks(few)}`;
    const rows = await tx.query<{ lane_id: number }>(
      sql`select distinct lane_id from queue where ${isDue} and ${isOfFew}`,
    );
    for (const row of rows) lanes.add(row.lane_id);
    releases.push(release(isOfFew));
  }
  for (const ofWatcher of many) {
    const shards = Map.groupBy(ofWatcher, (group) => group.shard_id);
    const ofEach = Math.ceil(share / shards.size);
    for (const [shard, ofShard] of shards) {
      const isOfShard = isInShards(sql`shard_id`, [shard]);
      const { whole, part, left } = oldestOf(ofShard, ofEach);
      const rowsOf = (condition: Sql) =>
        sql`select id, lane_id from queue where ${isDue} and ${isOfShard} and ${condition}`;
      const rows = await tx.query<{ id: number; lane_id: number }>(sql`
        ${rowsOf(isOfBlocks(whole))} union all (${rowsOf(isOfBlocks(part))} limit ${left})`);
      for (const row of rows) lanes.add(row.lane_id);
      releases.push(release(sql`${isOfShard} and id = any(${listOf(rows.map((row) => row.id))}::bigint[])`));
    }
  }
  await lockLanes(tx, [...lanes]);
  const changed: ChangedRow[] = [];
  for (const one of releases) changed.push(...(await tx.query<ChangedRow>(one)));
  return { counts: countStored(changed), hasMore: many.length > 0 };
}

/** The due notifications of a shard that are held until the same block. */
type DueGroup = { shard_id: number; release_number: number; count: number };

/** In the order of their blocks. Counts up to `countMax` and one more, except on Citus. */
async function listDueGroups(tx: Tx, isDue: Sql, countMax: number): Promise<DueGroup[]> {
  if (tx.isDistributed === true)
    return tx.query<DueGroup>(sql`
      select shard_id, release_number, count(*) as count from queue where ${isDue}${inReach(tx, sql`shard_id`)}
      group by shard_id, release_number order by release_number, shard_id`);
  // A probe of the index for each group, however many notifications it has.
  const next = sql`order by release_number, shard_id limit 1`;
  return tx.query<DueGroup>(sql`
    with recursive due as (
      (select release_number, shard_id from queue where ${isDue} ${next})
      union all
      select following.* from due cross join lateral (
        select release_number, shard_id from queue
        where ${isDue} and (release_number, shard_id) > (due.release_number, due.shard_id) ${next}) as following
    )
    select shard_id, release_number, (
      select count(*) from (
        select from queue q where q.state = 'held' and q.release_number = due.release_number and q.shard_id = due.shard_id
        limit ${countMax + 1}) as first
    ) as count
    from due order by release_number, shard_id`);
}

/** The first groups that together have at most `share` notifications, and the next one, of which `left` are part of the share. */
function oldestOf(
  groups: readonly DueGroup[],
  share: number,
): { whole: DueGroup[]; part: DueGroup[]; left: number } {
  let [left, end] = [share, 0];
  for (const { count } of groups) {
    if (count > left) break;
    left -= count;
    end += 1;
  }
  return { whole: groups.slice(0, end), part: groups.slice(end, end + 1), left };
}

const sumOf = (groups: readonly DueGroup[]): number => groups.reduce((sum, { count }) => sum + count, 0);

const isOfBlocks = (groups: readonly DueGroup[]): Sql =>
  sql`release_number = any(${listOf([...new Set(groups.map((group) => group.release_number))])}::bigint[])`;
