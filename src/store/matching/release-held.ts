/**
 * Confirmations: notifications are held until the tip is as far above their block as their record (watched address) asks for.
 */
import { watcherOfShard } from '../../domain/shard.ts';
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { inReach } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { lockLanes } from '../delivery/lane-locks.ts';
import { isInShards, isOneOfNotifications } from '../delivery/shards.ts';
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
export type ReleaseLimits = {
  atOnce: number;
  shareMin: number;
  shareMax: number;
  /**
   * Groups (`DueGroup`) that one transaction looks at, because the backlog of one watcher can have groups of many thousand blocks. The next
   * transaction goes on after them. On Citus, all are counted.
   */
  groupsMax: number;
};
const releaseLimits: ReleaseLimits = { atOnce: 5_000, shareMin: 50, shareMax: 500, groupsMax: 1_000 };

/** `hasMore`: some that are due are still held. `last`: the last group that it looked at, if there may be further ones. */
type Released = { counts: StoredCount[]; hasMore: boolean; last?: GroupKey | undefined };

/** Which notifications are due, and the statement that releases those that meet a further condition. */
type Release = { isDue: Sql; release(condition: Sql): Sql; laneIds: readonly number[] };

/**
 * Makes notifications due that now have their confirmations. Locks lanes before rows, as a worker that settles does, and
 * together with `laneIds`, which the caller locks next, so that all are locked in one order. `releasedBefore` keeps the scan
 * off dead index entries: without it a block read 2,500 of them. Begins with the group after `after`, the `last` of an earlier call.
 */
export async function releaseHeld(
  tx: Tx,
  {
    releasedBefore = -1,
    tipNumber,
    now,
    laneIds,
    limits = releaseLimits,
    after,
  }: Omit<Moment, 'confirmations'> & {
    releasedBefore?: number | undefined;
    laneIds: readonly number[];
    limits?: ReleaseLimits | undefined;
    after?: GroupKey | undefined;
  },
): Promise<Released> {
  const isDue = sql`state = 'held' and release_number > ${releasedBefore} and release_number <= ${tipNumber}`;
  const release = (condition: Sql) => sql`
      update queue q set release_number = null, due_at = greatest(${now}, next_retry_at),
        state = case when sequence is null then 'waiting' else 'held' end
      where ${isDue} and ${condition}
      returning ${changedRow}, false as is_new`;
  const all = { isDue, release, laneIds };
  const counts =
    tx.isDistributed === true ? await releaseInShards(tx, all, limits) : await releaseAll(tx, all, limits);
  return counts === undefined ? releaseShares(tx, all, limits, after) : { counts, hasMore: false };
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
      select count(*) > ${atOnce} as is_crowd from (
        select from queue where ${isDue} order by release_number, shard_id limit ${atOnce + 1}) as first
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

/**
 * Of the groups that it looks at: releases all of the watchers with few due notifications, and the same number of each of the others, the
 * oldest of each shard first.
 */
async function releaseShares(
  tx: Tx,
  { isDue, release, laneIds }: Release,
  { atOnce, shareMin, shareMax, groupsMax }: ReleaseLimits,
  after: GroupKey | undefined,
): Promise<Released> {
  const list = (from?: GroupKey) => listDueGroups(tx, isDue, { shareMax, groupsMax, after: from });
  const further = after === undefined ? [] : await list(after);
  const groups = further.length > 0 ? further : await list();
  const last = groups.length === groupsMax ? groups.at(-1) : undefined;
  const watchers = [...Map.groupBy(groups, (group) => watcherOfShard(group.shard_id)).values()];
  const crowds = watchers.filter((own) => sumOf(own) > shareMax).length;
  const share = Math.min(shareMax, Math.max(shareMin, Math.floor(atOnce / Math.max(1, crowds))));
  const taken = watchers.flatMap((own) => (sumOf(own) <= shareMax ? own : oldestOf(own, share)));
  const chosen = tx.isDistributed === true ? await chooseInShards(tx, isDue, taken) : await choose(tx, taken);
  await lockLanes(tx, [...laneIds, ...chosen.laneIds]);
  const released = await tx.query<ChangedRow>(release(chosen.condition));
  const areAllListed = further.length === 0 && last === undefined;
  const hasMore = !areAllListed || crowds > 0 || released.length < chosen.laneIds.length;
  return { counts: countStored(released), hasMore, last };
}

/** Chooses as many notifications of each group as it counts. */
async function choose(tx: Tx, groups: readonly DueGroup[]): Promise<Chosen> {
  // By rows in the order of `queue_held`, because no other index then seems good, even if statistics are older than the rows.
  const isOfGroup = sql`(q.release_number, q.shard_id) >= (g.release_number, g.shard_id)
    and (q.release_number, q.shard_id) <= (g.release_number, g.shard_id)`;
  const rows = await tx.query<{ lane_id: number; place: string }>(sql`
    select h.lane_id, h.place from ${relationOf(groups)} cross join lateral (
      select q.lane_id, q.ctid::text as place from queue q where q.state = 'held' and ${isOfGroup}
      order by q.release_number, q.shard_id limit g.count) as h`);
  // One that changes before its lane is locked has another place then. It may still be due, so it is left to the next share.
  return {
    laneIds: rows.map((row) => row.lane_id),
    condition: sql`q.ctid = any(${rows.map(({ place }) => place)}::text[]::tid[])`,
  };
}

/** On Citus: the same. */
async function chooseInShards(tx: Tx, isDue: Sql, groups: readonly DueGroup[]): Promise<Chosen> {
  const shards = [...new Set(groups.map((group) => group.shard_id))];
  const rows = await tx.query<{ shard_id: number; id: number; lane_id: number }>(sql`
    select h.shard_id, h.id, h.lane_id from (
      select shard_id, id, lane_id, release_number, row_number() over (partition by shard_id, release_number order by id) as place
      from queue where ${isDue} and ${isInShards(sql`shard_id`, shards)}) as h
    join ${relationOf(groups)} on g.shard_id = h.shard_id and g.release_number = h.release_number and h.place <= g.count`);
  const keys = rows.map((row) => ({ shardId: row.shard_id, id: row.id }));
  return {
    laneIds: rows.map((row) => row.lane_id),
    condition: sql`${isInShards(sql`q.shard_id`, shards)} and ${isOneOfNotifications(sql`q.shard_id`, sql`q.id`, keys)}`,
  };
}

/** The lanes of the chosen notifications, and a condition on `queue q` that only these meet. */
type Chosen = { laneIds: number[]; condition: Sql };

const relationOf = (groups: readonly DueGroup[]): Sql => sql`unnest(
  ${listOf(groups.map((group) => group.shard_id))}::bigint[], ${listOf(groups.map((group) => group.release_number))}::bigint[],
  ${listOf(groups.map((group) => group.count))}::bigint[]) as g (shard_id, release_number, count)`;

/** The due notifications of a shard that are held until the same block. */
type DueGroup = GroupKey & { count: number };
export type GroupKey = { shard_id: number; release_number: number };

/** In the order of their blocks, up to `groupsMax` after a group. Counts up to `shareMax` and one more. On Citus, all, and counts all. */
async function listDueGroups(
  tx: Tx,
  isDue: Sql,
  {
    shareMax,
    groupsMax,
    after,
  }: Pick<ReleaseLimits, 'shareMax' | 'groupsMax'> & { after: GroupKey | undefined },
): Promise<DueGroup[]> {
  if (tx.isDistributed === true)
    return tx.query<DueGroup>(sql`
      select shard_id, release_number, count(*) as count from queue where ${isDue}${inReach(tx, sql`shard_id`)}
      group by shard_id, release_number order by release_number, shard_id`);
  // A probe of the index for each group, however many notifications it has.
  const next = sql`order by release_number, shard_id limit 1`;
  const isAfter =
    after === undefined
      ? sql``
      : sql` and (release_number, shard_id) > (${after.release_number}, ${after.shard_id})`;
  return tx.query<DueGroup>(sql`
    with recursive due as (
      (select release_number, shard_id, 1 as place from queue where ${isDue}${isAfter} ${next})
      union all
      select following.*, due.place + 1 from due cross join lateral (
        select release_number, shard_id from queue
        where ${isDue} and (release_number, shard_id) > (due.release_number, due.shard_id) ${next}) as following
      where due.place < ${groupsMax}
    )
    select shard_id, release_number, (
      select count(*) from (
        select from queue q where q.state = 'held' and q.release_number = due.release_number and q.shard_id = due.shard_id
        limit ${shareMax + 1}) as first
    ) as count
    from due order by release_number, shard_id`);
}

/** Of each shard the first groups, and a part of the next one, which have its part of the share together. */
function oldestOf(groups: readonly DueGroup[], share: number): DueGroup[] {
  const left = new Map<number, number>();
  const shards = new Set(groups.map((group) => group.shard_id)).size;
  return groups.flatMap((group) => {
    const rest = left.get(group.shard_id) ?? Math.ceil(share / shards);
    left.set(group.shard_id, rest - group.count);
    return rest > 0 ? { ...group, count: Math.min(group.count, rest) } : [];
  });
}

const sumOf = (groups: readonly DueGroup[]): number => groups.reduce((sum, { count }) => sum + count, 0);
