/**
 * Watchers whose webhooks go out late, because more of them are due than the watcher's share of attempts allows.
 */
import type { Db } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { shardsOfWatcher } from './shards.ts';

type LateWatcher = { watcherId: number; watcherName: string; oldestDueAt: Date };

type Lateness = {
  watchers: number;
  /** The due time of the most overdue webhook of all. */
  oldestDueAt: Date | undefined;
  /** Most overdue first, at most `limit`. */
  latest: LateWatcher[];
};

/**
 * The watchers with something that has been due for `lateMs` or longer, without the suspended ones. Reads only watchers whose
 * visit is due and leased lanes. First attempts in a lane without an owner count from the lane's `next_due`.
 */
export async function findLateWatchers(
  db: Db,
  now: Date,
  { lateMs, limit }: { lateMs: number; limit: number },
): Promise<Lateness> {
  const dueBefore = new Date(now.getTime() - lateMs);
  const rows = await db.query<{
    watcher_id: number;
    name: string;
    oldest: Date;
    watchers: number;
  }>(sql`
    with busy as materialized (
      select watcher_id from watcher_queue where next_due is not null and next_due <= ${now} and not suspended
      union
      select watcher_id from lane where owner is not null
    ), oldest as materialized (
      select watcher_id, min(at) as oldest from (
        select b.watcher_id, (
          select due_at from queue
          where shard_id = s.id and state = 'waiting' and retry_count > 0
          order by due_at limit 1) as at
        from busy b join watcher w on w.id = b.watcher_id cross join lateral unnest(${shardsOfWatcher}) as s (id)
        union all
        select b.watcher_id, (
          select next_due from lane
          where lane.watcher_id = b.watcher_id and owner is null and next_due is not null
          order by next_due limit 1)
        from busy b
        union all
        select l.watcher_id, (
          select due_at from queue
          where shard_id = l.shard_id and lane_id = l.id and state = 'waiting' and retry_count = 0
          order by due_at limit 1)
        from lane l where owner is not null
      ) as due
      where at <= ${dueBefore}
      group by watcher_id
    )
    select o.watcher_id, w.name, o.oldest, count(*) over () as watchers
    from oldest o join watcher w on w.id = o.watcher_id
    order by o.oldest, o.watcher_id
    limit ${limit}`);
  return {
    watchers: rows[0]?.watchers ?? 0,
    oldestDueAt: rows[0]?.oldest,
    latest: rows.map((row) => ({
      ...{ watcherId: row.watcher_id, watcherName: row.name },
      oldestDueAt: row.oldest,
    })),
  };
}

/** Whether anything waits for an attempt. */
export async function hasWaiting(db: Db): Promise<boolean> {
  // The order by lets each part read the first entry of its partial index.
  const first = (attempts: Sql) => sql`(
    select id from queue where state = 'waiting' and ${attempts}
    order by shard_id, lane_id, due_at, id limit 1)`;
  const [row] = await db.query<{ id: number | null }>(
    sql`select coalesce(${first(sql`retry_count = 0`)}, ${first(sql`retry_count > 0`)}) as id`,
  );
  return row?.id !== null;
}
