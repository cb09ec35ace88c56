/**
 * When workers visit each watcher: the statements that write `watcher_queue`.
 */
import { listOf } from '../db/arrays.ts';
import type { Database } from '../db/db.ts';
import { isLost } from '../db/lost-shards.ts';
import { type Sql, sql } from '../db/sql.ts';

/** On Citus: how soon a watcher is visited again whose due lanes are in lost shards, which may have caught up by then. */
export const LOST_VISIT_MS = 5_000;

/**
 * Schedules the next visit of each watcher for the earliest `next_due` of its free lanes, or no visit if they have none. Lanes of lost
 * shards, which can't be leased, count LOST_VISIT_MS from now at the earliest. Skips a watcher that another transaction has locked: its
 * visit stays due, so the next visit schedules it.
 */
export async function scheduleNextVisits(
  database: Database,
  watcherIds: readonly number[],
  now: Date,
): Promise<void> {
  if (watcherIds.length === 0) return;
  await database.transaction(async (tx) => {
    // The lock is a separate statement. The update then sees the lanes of every transaction that held the lock before, and
    // a later transaction waits for this one and schedules the visit again.
    const locked = await tx.query<{ watcher_id: number }>(sql`
      select watcher_id from watcher_queue where watcher_id = any(${listOf(watcherIds)}::bigint[])
      order by watcher_id for update skip locked`);
    if (locked.length === 0) return;
    const earliest = (condition: Sql) => sql`(
      select l.next_due from lane l
      where l.watcher_id = q.watcher_id and l.owner is null and l.next_due is not null${condition}
      order by l.next_due limit 1)`;
    const next =
      database.isDistributed === true
        ? sql`least(${earliest(sql` and not ${isLost(sql`l.shard_id`)}`)}, (
            select greatest(first, ${new Date(now.getTime() + LOST_VISIT_MS)}) from ${earliest(sql``)} as e (first)))`
        : earliest(sql``);
    await tx.query(sql`
      update watcher_queue q set next_due = (${next})
      where watcher_id = any(${listOf(locked.map((row) => row.watcher_id))}::bigint[])`);
  });
}

/**
 * Schedules each watcher's visit no later than its `next_due`. This also locks a watcher whose visit is early enough already,
 * because a concurrent `scheduleNextVisits` doesn't see this transaction's lanes and could write a later visit.
 */
export function visitNotAfter(due: Sql): Sql {
  return sql`
    insert into watcher_queue as q (watcher_id, next_due)
    select watcher_id, next_due from (${due}) as due where next_due is not null order by watcher_id
    on conflict (watcher_id) do update set next_due = excluded.next_due
      where q.next_due is null or q.next_due > excluded.next_due`;
}

/** CTE `visit`: locks the visits of these watchers, except those that another transaction has locked. */
export const freeVisits = (watcherIds: Sql) => sql`
  visit as materialized (
    select watcher_id from watcher_queue where watcher_id in (${watcherIds}) order by watcher_id for update skip locked
  )`;

/** Whether `visitNotAfter` can write the watcher's visit without waiting for another transaction. */
export const isFreeVisit = (watcherId: Sql) => sql`
  (${watcherId} in (select watcher_id from visit)
    or not exists (select from watcher_queue where watcher_id = ${watcherId}))`;
