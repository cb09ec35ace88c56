/**
 * Counts of the notifications that wait for an attempt, per watcher and in total.
 */

import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { inReach } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { findOldestDue, isBusy } from './lateness.ts';
import { isInShards, listShards, shardsOfWatcher, watcherOf } from './shards.ts';

/** Counting this many takes some ten milliseconds. */
export const PENDING_COUNTED_MAX = 100_000;
/** Watchers reported at a time: enough for an operator to act on. */
const WATCHERS_MAX = 100;

// Each part has a partial index that contains exactly its rows.
const FIRST_ATTEMPTS = sql`state = 'waiting' and retry_count = 0`;
const RETRIES = sql`state = 'waiting' and retry_count > 0`;
const parts = (part: (attempts: Sql) => Sql): Sql =>
  sql`(${part(FIRST_ATTEMPTS)}) union all (${part(RETRIES)})`;

/** Pending notifications of one watcher; PENDING_COUNTED_MAX + 1 if there are more than PENDING_COUNTED_MAX. */
export async function countPending(db: Db, watcherId: number): Promise<number> {
  const isOwn = isInShards(sql`shard_id`, await listShards(db, watcherId));
  const [row] = await db.query<{ count: number }>(sql`
    select count(pending.id) as count from (${parts(
      (waiting) => sql`
        select id from queue where ${isOwn} and ${waiting}
        limit ${PENDING_COUNTED_MAX + 1}`,
    )} limit ${PENDING_COUNTED_MAX + 1}) as pending`);
  return row?.count ?? 0;
}

/** The watchers with more than `limit` pending notifications, most first. Of each shard it counts up to PENDING_COUNTED_MAX above the limit. */
export async function listPendingAbove(
  db: Db,
  limit: number,
  countedMax = limit + PENDING_COUNTED_MAX,
): Promise<{ watcherId: number; pending: number }[]> {
  const counts = db.isDistributed === true ? countAllByWatcher(db) : countEachShard(countedMax);
  const rows = await db.query<{ watcher_id: number; pending: number }>(sql`
    select watcher_id, pending from (${counts}) as counts where pending > ${limit}
    order by pending desc, watcher_id limit ${WATCHERS_MAX}`);
  return rows.map(({ watcher_id: watcherId, pending }) => ({ watcherId, pending }));
}

/**
 * Goes from shard to shard that has some, because most watchers have none. Without the order, and with an equation for the shard, PostgreSQL
 * reads the whole table for each if few shards have rows.
 */
function countEachShard(countedMax: number): Sql {
  const first = (attempts: Sql, condition: Sql) =>
    sql`(select shard_id from queue where ${attempts}${condition} order by shard_id limit 1)`;
  const next = (condition: Sql) =>
    sql`least(${first(FIRST_ATTEMPTS, condition)}, ${first(RETRIES, condition)})`;
  const few = (waiting: Sql) => sql`
    select id from queue where ${waiting} and shard_id >= shard.id and shard_id <= shard.id
    order by shard_id, lane_id, due_at, id limit ${countedMax}`;
  return sql`
    with recursive shard as (
      select ${next(sql``)} as id
      union all
      select ${next(sql` and shard_id > shard.id`)} from shard where shard.id is not null
    )
    select ${watcherOf(sql`shard.id`)} as watcher_id, sum(own.pending)::bigint as pending from shard
    cross join lateral (select count(*) as pending from (${parts(few)} limit ${countedMax}) as p) as own
    where shard.id is not null group by 1`;
}

/** On Citus: the shards count all their rows side by side. */
const countAllByWatcher = (db: Db): Sql => sql`
  select watcher_id, count(*) as pending
  from (${parts((waiting) => sql`select ${watcherOf(sql`shard_id`)} as watcher_id from queue where ${waiting}${inReach(db, sql`shard_id`)}`)}) as pending
  group by watcher_id`;

/**
 * Counts of the queue, each up to PENDING_COUNTED_MAX. Nothing of a suspended watcher is due. `deferred` counts notifications whose rows
 * have not been written yet.
 */
export type QueueStatistics = Record<'deferred' | 'held' | 'waiting' | 'due', number> & {
  oldestDueAt: Date | undefined;
  /** False if there are more. A count of PENDING_COUNTED_MAX then means at least that many. */
  isComplete: boolean;
};

export async function queueStatistics(
  db: Db,
  now: Date,
  countedMax = PENDING_COUNTED_MAX,
): Promise<QueueStatistics> {
  const counted =
    db.isDistributed === true ? await countInShards(db, now) : await countQueue(db, now, countedMax + 1);
  const { held, waiting, due, oldest } = counted;
  const deferred = await countDeferred(db, countedMax);
  return {
    deferred: Math.min(deferred, countedMax),
    held: Math.min(held, countedMax),
    waiting: Math.min(waiting, countedMax),
    due: Math.min(due, countedMax),
    oldestDueAt:
      due > countedMax && db.isDistributed !== true ? await findOldestDue(db, now) : (oldest ?? undefined),
    isComplete: [deferred, held, waiting].every((count) => count <= countedMax),
  };
}

type Counted = { held: number; waiting: number; due: number; oldest: Date | null };
const nothing: Counted = { held: 0, waiting: 0, due: 0, oldest: null };

const shardsWhere = (condition: Sql): Sql => sql`
    select unnest(${shardsOfWatcher}) as id from watcher_queue q join watcher w on w.id = q.watcher_id where ${condition}`;

/** Reads at most `limit` entries of each partial index for each count, however many rows there are. */
async function countQueue(db: Db, now: Date, limit: number): Promise<Counted> {
  const few = (condition: Sql) => sql`select due_at from queue where ${condition} limit ${limit}`;
  // Shard by shard, so that what suspended watchers have isn't read.
  const due = (waiting: Sql) => sql`
    select d.due_at from unnest((select shards from busy)::bigint[]) as s (id)
    cross join lateral (${few(sql`shard_id = s.id and ${waiting} and due_at <= ${now}`)}) as d limit ${limit}`;
  const [row] = await db.query<Counted>(sql`
    with busy as materialized (select array(${shardsWhere(isBusy(now))}) as shards)
    select held, waiting, due, oldest
    from (select count(*) as held from (${few(sql`state = 'held'`)}) as c) as h,
      (select count(*) as waiting from (${parts(few)}) as c) as w,
      (select count(*) as due, min(due_at) as oldest from (${parts(due)}) as c) as d`);
  return row ?? nothing;
}

/** On Citus: the shards count all their rows side by side. With a limit, the coordinator would read and count them. */
async function countInShards(db: Db, now: Date): Promise<Counted> {
  const suspended = await db.query<{ id: number }>(shardsWhere(sql`q.suspended`));
  const waiting = (attempts: Sql) => sql`
    select shard_id, 'waiting' as state,
      case when shard_id <> all(${listOf(suspended.map(({ id }) => id))}::bigint[]) then due_at end as due_at
    from queue where ${attempts}${inReach(db, sql`shard_id`)}`;
  const [row] = await db.query<Counted>(sql`
    select count(*) filter (where state = 'held') as held,
      count(*) filter (where state = 'waiting') as waiting,
      count(*) filter (where state = 'waiting' and due_at <= ${now}) as due,
      min(due_at) filter (where state = 'waiting' and due_at <= ${now}) as oldest
    from (
      select shard_id, 'held' as state, null::timestamptz as due_at from queue where state = 'held'${inReach(db, sql`shard_id`)}
      union all ${parts(waiting)}
    ) as pending`);
  return row ?? nothing;
}

/** Rows of `deferred_match` that are read at a time. A row can stand for millions of notifications, or for one. */
const DEFERRED_PAGE = 1_000;

/**
 * Upper bound of the deferred notifications; more than `countedMax` if there are more. A watched address whose flags exclude a transfer gets
 * none for it. Reads the newest rows, until they are enough, because the oldest are being deleted.
 */
export async function countDeferred(db: Db, countedMax = PENDING_COUNTED_MAX): Promise<number> {
  const [row] = await db.query<{ count: number }>(sql`
    with recursive page as (
      select max(id) + 1 as first, 0::bigint as count from deferred_match
      union all
      select next.first, page.count + next.count from page cross join lateral (
        select min(id) as first, sum(notifications_left)::bigint as count from (
          select id, notifications_left from deferred_match where id < page.first
          order by id desc limit ${DEFERRED_PAGE}) as rows
      ) as next
      where next.first is not null and page.count <= ${countedMax}
    )
    select max(count) as count from page`);
  return row?.count ?? 0;
}
