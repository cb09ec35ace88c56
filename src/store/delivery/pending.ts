/**
 * Counts of the notifications that wait for an attempt, per watcher and in total.
 */

import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { inReach } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { findLateWatchers } from './lateness.ts';
import { isInShards, listShards, shardsOfWatcher, watcherOf } from './shards.ts';

/** Counting this many takes some ten milliseconds. */
export const PENDING_COUNTED_MAX = 100_000;
/** Watchers reported at a time: enough for an operator to act on. */
const WATCHERS_MAX = 100;

// Each part has a partial index that contains exactly its rows.
const parts = (part: (attempts: Sql) => Sql): Sql =>
  sql`(${part(sql`state = 'waiting' and retry_count = 0`)}) union all (${part(sql`state = 'waiting' and retry_count > 0`)})`;

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

/** The watchers with more than `limit` pending notifications, most first. */
export async function listPendingAbove(
  db: Db,
  limit: number,
): Promise<{ watcherId: number; pending: number }[]> {
  const rows = await db.query<{ watcher_id: number; pending: number }>(sql`
    select watcher_id, count(*) as pending
    from (${parts((waiting) => sql`select ${watcherOf(sql`shard_id`)} as watcher_id from queue where ${waiting}${inReach(db, sql`shard_id`)}`)}) as pending
    group by watcher_id having count(*) > ${limit}
    order by pending desc, watcher_id limit ${WATCHERS_MAX}`);
  return rows.map(({ watcher_id: watcherId, pending }) => ({ watcherId, pending }));
}

/**
 * Counts of the queue in one snapshot, up to PENDING_COUNTED_MAX. Nothing of a suspended watcher is due. `deferred` counts
 * notifications whose rows have not been written yet, without that limit.
 */
export type QueueStatistics = Record<'deferred' | 'held' | 'waiting' | 'due', number> & {
  oldestDueAt: Date | undefined;
  /** False if there are more. The counts then mean at least that many. */
  isComplete: boolean;
};

/** The shards of suspended watchers, as an array. On Citus they are read before, because the table is on the coordinator. */
async function suspendedShards(db: Db): Promise<Sql> {
  const shards = sql`
    select unnest(${shardsOfWatcher}) as id from watcher_queue q join watcher w on w.id = q.watcher_id where q.suspended`;
  if (db.isDistributed !== true) return sql`array(${shards})`;
  const rows = await db.query<{ id: number }>(shards);
  return sql`${listOf(rows.map(({ id }) => id))}::bigint[]`;
}

export async function queueStatistics(
  db: Db,
  now: Date,
  countedMax = PENDING_COUNTED_MAX,
): Promise<QueueStatistics> {
  const suspended = await suspendedShards(db);
  // On Citus, the shards count their rows side by side. With a limit, the coordinator would read and count them all.
  const limit = db.isDistributed === true ? sql`` : sql` limit ${countedMax + 1}`;
  // Each part has a partial index that contains exactly its rows. With the shard in each, Citus counts in the shards.
  const waiting = (attempts: Sql) => sql`(
    select shard_id, 'waiting' as state,
      case when shard_id <> all(${suspended}) then due_at end as due_at
    from queue where state = 'waiting' and ${attempts}${inReach(db, sql`shard_id`)}${limit})`;
  const [row] = await db.query<{ held: number; waiting: number; due: number; oldest: Date | null }>(sql`
    select count(*) filter (where state = 'held') as held,
      count(*) filter (where state = 'waiting') as waiting,
      count(*) filter (where state = 'waiting' and due_at <= ${now}) as due,
      min(due_at) filter (where state = 'waiting' and due_at <= ${now}) as oldest
    from (
      (select shard_id, 'held' as state, null::timestamptz as due_at from queue where state = 'held'${inReach(db, sql`shard_id`)}${limit})
      union all ${waiting(sql`retry_count = 0`)} union all ${waiting(sql`retry_count > 0`)}
    ) as pending`);
  const { held = 0, waiting: all = 0, due = 0, oldest = null } = row ?? {};
  const isComplete = held <= countedMax && all <= countedMax;
  return {
    deferred: await countDeferred(db),
    held: Math.min(held, countedMax),
    waiting: Math.min(all, countedMax),
    due: Math.min(due, countedMax),
    oldestDueAt:
      isComplete || db.isDistributed === true ? (oldest ?? undefined) : await findOldestDue(db, now, oldest),
    isComplete,
  };
}

/** The oldest due time, where `counted` is the oldest of those that were counted. Reads it by the indexes. */
async function findOldestDue(db: Db, now: Date, counted: Date | null): Promise<Date | undefined> {
  const { oldestDueAt } = await findLateWatchers(db, now, { lateMs: 0, limit: 1 });
  return counted !== null && (oldestDueAt === undefined || counted < oldestDueAt) ? counted : oldestDueAt;
}

/** Upper bound of the deferred notifications. A watched address whose flags exclude a transfer gets none for it. */
export async function countDeferred(db: Db): Promise<number> {
  const [row] = await db.query<{ count: number }>(sql`
    select coalesce(sum(records_left::bigint * match_count), 0)::bigint as count from deferred_match`);
  return row?.count ?? 0;
}
