/**
 * Watchers whose webhooks go out late, because more of them are due than the watcher's share of attempts allows.
 */
import type { Db } from '../db/db.ts';
import { inReach, rowsOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { isInShards, shardsOfWatcher } from './shards.ts';

type LateWatcher = { watcherId: number; watcherName: string; oldestDueAt: Date };

export type Lateness = {
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
  const busy = sql`
      select watcher_id from watcher_queue where next_due is not null and next_due <= ${now} and not suspended
      union
      select watcher_id from lane where owner is not null`;
  const oldestOf = db.isDistributed === true ? await readOldest(db, busy) : indexedOldest;
  const rows = await db.query<{
    watcher_id: number;
    name: string;
    oldest: Date;
    watchers: number;
  }>(sql`
    with busy as materialized (${busy}
    ), oldest as materialized (
      select watcher_id, min(at) as oldest from (
        select b.watcher_id, ${oldestOf.retry} as at
        from busy b join watcher w on w.id = b.watcher_id cross join lateral unnest(${shardsOfWatcher}) as s (id)
        union all
        select b.watcher_id, (
          select next_due from lane
          where lane.watcher_id = b.watcher_id and owner is null and next_due is not null
          order by next_due limit 1)
        from busy b
        union all
        select l.watcher_id, ${oldestOf.first}
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

/** Whether the watcher of visit `q` may have something due, and is not suspended. */
export const isBusy = (now: Date): Sql => sql`not q.suspended and (q.next_due <= ${now} or exists (
  select from lane l where l.watcher_id = q.watcher_id and l.owner is not null))`;

/**
 * The oldest due time of all watchers that are not suspended. On one server: a probe of an index for each busy lane and each shard of a busy
 * watcher, however many notifications wait.
 */
export async function findOldestDue(db: Db, now: Date): Promise<Date | undefined> {
  const [row] = await db.query<{ oldest: Date | null }>(sql`
    with busy as materialized (select q.watcher_id from watcher_queue q where ${isBusy(now)})
    select min(at) as oldest from (
      select ${indexedOldest.retry} as at
      from busy b join watcher w on w.id = b.watcher_id cross join lateral unnest(${shardsOfWatcher}) as s (id)
      union all
      select ${indexedOldest.first}
      from busy b join lane l on l.watcher_id = b.watcher_id and (l.next_due <= ${now} or l.owner is not null)
    ) as due
    where at <= ${now}`);
  return row?.oldest ?? undefined;
}

/** Whether anything waits for an attempt. */
export async function hasWaiting(db: Db): Promise<boolean> {
  // The order by lets each part read the first entry of its partial index.
  const first = (attempts: Sql) => sql`(
    select id from queue where state = 'waiting' and ${attempts}${inReach(db, sql`shard_id`)}
    order by shard_id, lane_id, due_at, id limit 1)`;
  const [row] = await db.query<{ id: number | null }>(
    sql`select coalesce(${first(sql`retry_count = 0`)}, ${first(sql`retry_count > 0`)}) as id`,
  );
  return row?.id !== null;
}

/** The oldest due time of a retry in shard `s`, and of a first attempt in lane `l`. */
type OldestOf = { retry: Sql; first: Sql };

const indexedOldest: OldestOf = {
  retry: sql`(
          select due_at from queue
          where shard_id = s.id and state = 'waiting' and retry_count > 0
          order by due_at limit 1)`,
  first: sql`(
          select due_at from queue
          where shard_id = l.shard_id and lane_id = l.id and state = 'waiting' and retry_count = 0
          order by due_at limit 1)`,
};

/** On Citus: the same, read from the shards of busy watchers before. */
async function readOldest(db: Db, busy: Sql): Promise<OldestOf> {
  const shards = await db.query<{ id: number }>(sql`
    select s.id from (${busy}) as b join watcher w on w.id = b.watcher_id cross join lateral unnest(${shardsOfWatcher}) as s (id)`);
  const reached = shards.map(({ id }) => id).filter((id) => db.reach?.includes(id) !== false);
  const isOwn = sql`${isInShards(sql`shard_id`, reached)} and state = 'waiting'`;
  const retries = await rowsOf(
    db,
    sql`select shard_id, min(due_at) as due_at from queue where ${isOwn} and retry_count > 0 group by shard_id`,
    'shard_id bigint, due_at timestamptz',
  );
  const firsts = await rowsOf(
    db,
    sql`select lane_id, min(due_at) as due_at from queue where ${isOwn} and retry_count = 0 group by lane_id`,
    'lane_id bigint, due_at timestamptz',
  );
  return {
    retry: sql`(select due_at from ${retries} as r where r.shard_id = s.id)`,
    first: sql`(select due_at from ${firsts} as f where f.lane_id = l.id)`,
  };
}
