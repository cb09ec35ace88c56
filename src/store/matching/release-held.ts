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
export type ReleaseLimits = { atOnce: number; shareMin: number; shareMax: number };
const releaseLimits: ReleaseLimits = { atOnce: 5_000, shareMin: 50, shareMax: 500 };

/** Before the first shard. */
export const FIRST_TURN = -1;
/** Shards that a transaction visits while more are due than it releases. Each takes some 20 µs. */
const SHARDS_MAX = 1_000;
/** The same on Citus, where each takes a statement. */
const DISTANT_SHARDS_MAX = 20;

/** `hasMore`: some that are due may still be held. `nextTurn`: the shard after which the next transaction begins. */
type Released = { counts: StoredCount[]; hasMore: boolean; nextTurn: number };

/** Which notifications are due, and the statement that releases those of `queue q` that meet a condition. */
type Release = {
  isDue: Sql;
  /** Which rows of `queue q` of the shard are due, in the order of `queue_held_of_shard`. */
  isDueOf(shardId: Sql): Sql;
  release(condition: Sql): Sql;
  laneIds: readonly number[];
};

/**
 * Makes notifications due that now have their confirmations. Locks lanes before rows, as a worker that settles does, and
 * together with `laneIds`, which the caller locks next, so that all are locked in one order. `releasedBefore` keeps the scan
 * off dead index entries: without it a block read 2,500 of them. `turn` is the last call's `nextTurn`.
 */
export async function releaseHeld(
  tx: Tx,
  {
    releasedBefore = -1,
    releasedNumber,
    now,
    laneIds,
    turn = FIRST_TURN,
    limits = releaseLimits,
  }: Moment & {
    releasedBefore?: number | undefined;
    laneIds: readonly number[];
    turn?: number;
    limits?: ReleaseLimits | undefined;
  },
): Promise<Released> {
  const isDue = sql`state = 'held' and release_number > ${releasedBefore} and release_number <= ${releasedNumber}`;
  // By rows in the order of the index, because no other index then seems good, even if statistics are older than the rows.
  const isDueOf = (shardId: Sql) => sql`q.state = 'held'
    and (q.shard_id, q.release_number) > (${shardId}, ${releasedBefore}::bigint)
    and (q.shard_id, q.release_number) <= (${shardId}, ${releasedNumber}::bigint)`;
  const release = (condition: Sql) => sql`
      update queue q set release_number = null, due_at = greatest(${now}, next_retry_at),
        state = case when sequence is null then 'waiting' else 'held' end
      where ${condition}
      returning ${changedRow}, false as is_new`;
  const all = { isDue, isDueOf, release, laneIds };
  if (tx.isDistributed === true) return releaseInShards(tx, all, limits, turn);
  const counts = await releaseAll(tx, all, limits);
  return counts === undefined
    ? releaseShares(tx, all, limits, turn)
    : { counts, hasMore: false, nextTurn: FIRST_TURN };
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
    ), released as (${release(sql`${isDue} and not (select is_crowd from due) and (select count(*) from locked) >= 0`)}
    )
    select is_crowd, grouped.* from due left join (
      select ${storedCountColumns} from released group by shard_id, lane_id, state, ordered_id) as grouped on true
    order by lane_id, state, ordered_id`);
  if (rows.some((row) => row.is_crowd)) return undefined;
  return rows.flatMap((row) => (row.shard_id === null ? [] : toStoredCount(row)));
}

/** Releases a share of the due notifications of each watcher, the oldest of each shard first. */
async function releaseShares(
  tx: Tx,
  { isDueOf, release, laneIds }: Release,
  limits: ReleaseLimits,
  turn: number,
): Promise<Released> {
  const { shards, isLast, nextTurn } = await listDueShards(tx, isDueOf, limits, turn);
  const parts = partsOf(shards, limits);
  const taken = shards.flatMap(({ shard_id, count }) => {
    const part = Math.min(count, parts.get(watcherOfShard(shard_id)) ?? 0);
    return part > 0 ? [{ shard_id, count, part }] : [];
  });
  const rows = await tx.query<{ lane_id: number; place: string }>(sql`
    select h.lane_id, h.place from unnest(
      ${listOf(taken.map((shard) => shard.shard_id))}::bigint[], ${listOf(taken.map(({ part }) => part))}::bigint[]
    ) as s (shard_id, part) cross join lateral (
      select q.lane_id, q.ctid::text as place from queue q where ${isDueOf(sql`s.shard_id`)}
      order by q.shard_id, q.release_number limit s.part) as h`);
  await lockLanes(tx, [...laneIds, ...rows.map((row) => row.lane_id)]);
  // One that changes before its lane is locked has another place then. It may still be due, so it is left to the next share.
  const places = rows.map(({ place }) => place);
  const released = await tx.query<ChangedRow>(
    release(sql`${isHeld} and q.ctid = any(${places}::text[]::tid[])`),
  );
  const isWhole = isLast && turn === FIRST_TURN && taken.every(({ count, part }) => part === count);
  const hasMore = !isWhole || released.length < rows.length;
  return { counts: countStored(released), hasMore, nextTurn };
}

/** Whether a row that was due still is. With `state = 'held'`, PostgreSQL might read all that are held. */
const isHeld = sql`q.release_number is not null`;

/** A shard with due notifications: their number, counted up to one more than `shareMax`. */
type DueShard = { shard_id: number; count: number };

/**
 * Shards with due notifications after `turn`, until they have about `atOnce` to release. Each takes two probes of an index, and the
 * rows that are counted. `isLast`: there are no others after them.
 */
async function listDueShards(
  tx: Tx,
  isDueOf: Release['isDueOf'],
  { atOnce, shareMin, shareMax }: ReleaseLimits,
  turn: number,
): Promise<{ shards: DueShard[]; isLast: boolean; nextTurn: number }> {
  const visited = await tx.query<DueShard & { may_follow: boolean }>(sql`
    with recursive visit as (
      select ${turn}::bigint as shard_id, 0::bigint as count, 0::bigint as sum, 0 as visits
      union all
      select next.shard_id, due.count, sum + least(due.count, ${shareMin}), visits + 1
      from visit cross join lateral (
        select q.shard_id from queue q where q.state = 'held' and q.shard_id > visit.shard_id
        order by q.shard_id, q.release_number limit 1
      ) as next cross join lateral (
        select count(*) as count from (
          select from queue q where ${isDueOf(sql`next.shard_id`)} order by q.shard_id, q.release_number limit ${shareMax + 1}) as first
      ) as due
      where sum < ${atOnce} and visits < ${SHARDS_MAX}
    )
    select shard_id, count, sum >= ${atOnce} or visits = ${SHARDS_MAX} as may_follow from visit where visits > 0 order by visits`);
  const last = visited.at(-1);
  const isLast = last?.may_follow !== true;
  return {
    shards: visited.filter(({ count }) => count > 0),
    isLast,
    nextTurn: isLast ? FIRST_TURN : last.shard_id,
  };
}

/**
 * How many of each shard of a watcher are released: all of watchers that have few, and of the others as many as leave the transaction
 * short.
 */
function partsOf(
  shards: readonly DueShard[],
  { atOnce, shareMin, shareMax }: ReleaseLimits,
): Map<number, number> {
  const watchers = [...Map.groupBy(shards, (shard) => watcherOfShard(shard.shard_id))].map(([id, own]) => ({
    ...{ id, shardCount: own.length, count: own.reduce((sum, { count }) => sum + count, 0) },
  }));
  const crowds = watchers.filter(({ count }) => count > shareMin).length;
  const share = Math.min(shareMax, Math.max(shareMin, Math.floor(atOnce / Math.max(1, crowds))));
  return new Map(
    watchers.map(({ id, shardCount, count }) => [id, count <= share ? count : Math.ceil(share / shardCount)]),
  );
}

/**
 * On Citus: releases all, or of the oldest ones of all watchers, and of some shards more in their turn, a share of each watcher.
 * Otherwise one watcher's old ones would delay those of the others.
 */
async function releaseInShards(
  tx: Tx,
  { isDue, isDueOf, release, laneIds }: Release,
  limits: ReleaseLimits,
  turn: number,
): Promise<Released> {
  const oldest = await tx.query<HeldRow>(sql`
    select shard_id, id, lane_id from queue where ${isDue}${inReach(tx, sql`shard_id`)}
    order by release_number, shard_id limit ${limits.atOnce + 1}`);
  if (oldest.length <= limits.atOnce) {
    await lockLanes(tx, [...laneIds, ...oldest.map((row) => row.lane_id)]);
    const shards = [...new Set(oldest.map((row) => row.shard_id))];
    const released =
      oldest.length === 0
        ? []
        : await tx.query<ChangedRow>(release(sql`${isDue} and ${isInShards(sql`shard_id`, shards)}`));
    return { counts: countStored(released), hasMore: false, nextTurn: FIRST_TURN };
  }
  const byShard = Map.groupBy(oldest, (row) => row.shard_id);
  const next = await listNextShards(tx, turn);
  for (const shardId of next)
    byShard.set(
      shardId,
      await tx.query<HeldRow>(sql`
        select q.shard_id, q.id, q.lane_id from queue q where q.shard_id = ${shardId} and ${isDueOf(sql`${shardId}::bigint`)}
        order by q.shard_id, q.release_number limit ${limits.shareMax + 1}`),
    );
  const shards = [...byShard].map(([shard_id, rows]) => ({ shard_id, count: rows.length }));
  const parts = partsOf(shards, limits);
  const taken = [...byShard].flatMap(([shardId, rows]) =>
    rows.slice(0, parts.get(watcherOfShard(shardId)) ?? 0),
  );
  await lockLanes(tx, [...laneIds, ...taken.map((row) => row.lane_id)]);
  const keys = taken.map((row) => ({ shardId: row.shard_id, id: row.id }));
  const isTaken = sql`${isHeld} and ${isInShards(sql`q.shard_id`, [...byShard.keys()])} and ${isOneOfNotifications(sql`q.shard_id`, sql`q.id`, keys)}`;
  const counts = countStored(await tx.query<ChangedRow>(release(isTaken)));
  return {
    counts,
    hasMore: true,
    nextTurn: next.length < DISTANT_SHARDS_MAX ? FIRST_TURN : (next.at(-1) ?? FIRST_TURN),
  };
}

type HeldRow = { shard_id: number; id: number; lane_id: number };

/** The next shards that have lanes, however many lanes they have. */
async function listNextShards(tx: Tx, turn: number): Promise<number[]> {
  const rows = await tx.query<{ shard_id: number }>(sql`
    with recursive visit as (
      select ${turn}::bigint as shard_id, 0 as visits
      union all
      select next.shard_id, visits + 1 from visit cross join lateral (
        select shard_id from lane where shard_id > visit.shard_id${inReach(tx, sql`shard_id`)} order by shard_id limit 1) as next
      where visits < ${DISTANT_SHARDS_MAX}
    )
    select shard_id from visit where visits > 0 order by visits`);
  return rows.map((row) => row.shard_id);
}
