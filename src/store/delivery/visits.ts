/**
 * Which watchers have something due, for workers that decide whether to lease, keep or give back lanes.
 */
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { isLost } from '../db/lost-shards.ts';
import { sql } from '../db/sql.ts';

/** When the next visit is due of any watcher that is neither suspended nor in `full`. */
export async function findNextDue(db: Db, full: readonly number[] = []): Promise<Date | undefined> {
  const [row] = await db.query<{ next_due: Date }>(sql`
    select next_due from watcher_queue
    where next_due is not null and not suspended and watcher_id <> all(${listOf(full)}::bigint[])
    order by next_due limit 1`);
  return row?.next_due;
}

/** The suspended ones among these watchers. */
export async function listSuspended(db: Db, watcherIds: readonly number[]): Promise<number[]> {
  if (watcherIds.length === 0) return [];
  const rows = await db.query<{ watcher_id: number }>(sql`
    select watcher_id from watcher_queue
    where suspended and watcher_id = any(${listOf(watcherIds)}::bigint[])
    order by watcher_id limit ${watcherIds.length}`);
  return rows.map((row) => row.watcher_id);
}

/** The ones among these watchers that have due lanes which a worker may lease. */
export async function listWaitingWatchers(
  db: Db,
  watcherIds: readonly number[],
  now: Date,
): Promise<number[]> {
  if (watcherIds.length === 0) return [];
  const isReachable = db.isDistributed === true ? sql` and not ${isLost(sql`l.shard_id`)}` : sql``;
  const rows = await db.query<{ watcher_id: number }>(sql`
    select w.watcher_id from unnest(${listOf(watcherIds)}::bigint[]) as w (watcher_id)
    where exists (
      select from lane l where l.watcher_id = w.watcher_id and l.owner is null and l.next_due <= ${now}${isReachable})
    order by w.watcher_id limit ${watcherIds.length}`);
  return rows.map((row) => row.watcher_id);
}
