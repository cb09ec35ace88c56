/**
 * Receivers: the origins that a watcher's webhooks go to, and which of them fail. A receiver is failing while a notification to
 * it has failed and waits for a retry, even if others arrive.
 */
import type { Step } from '../../core/loop.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Db } from '../db/db.ts';
import { isLost } from '../db/lost-shards.ts';
import { rowsOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { isOfLanes, shardsOfWatcher } from './shards.ts';

export type Receiver = {
  watcherId: number;
  watcherName: string;
  /** Scheme, host and port. */
  origin: string;
  /** Nothing is sent to a suspended watcher's receivers, and none of them counts as failing. */
  isSuspended: boolean;
  /** Undefined while it doesn't fail. */
  failure: Failure | undefined;
};

export type Failure = {
  since: Date;
  /** Failed attempts since then. */
  attempts: number;
  lastAttemptAt: Date;
  /** Undefined if the failure began before outcomes were stored. */
  lastOutcome: string | undefined;
  lastStatus: number | undefined;
  /** Notifications that failed and wait for a retry; PENDING_MAX + 1 when there are more than PENDING_MAX. */
  pending: number;
  /** When the oldest of them was created. */
  oldestPendingAt: Date;
  nextAttemptAt: Date;
};

/** Counting this many of one receiver takes a millisecond. */
export const PENDING_MAX = 1_000;

/** The last receiver of the previous page. */
export type ReceiverCursor = { watcherId: number; origin: string };

export type ReceiverQuery = {
  /** All watchers if undefined. */
  watcherId?: number | undefined;
  failing: boolean;
  after?: ReceiverCursor | undefined;
  limit: number;
};

type ReceiverRow = {
  watcher_id: number;
  name: string;
  origin: string;
  is_suspended: boolean;
  since: Date | null;
  attempts: number | null;
  last_attempt_at: Date | null;
  last_outcome: string | null;
  last_status: number | null;
  pending: number | null;
  oldest_pending_at: Date | null;
  next_attempt_at: Date | null;
};

/** A page of receivers, by watcher and origin. The figures of a receiver are those of all its lanes, one for each slice. */
export async function listReceivers(db: Db, query: ReceiverQuery): Promise<Receiver[]> {
  const retries = (of: Sql) => sql`
    select ${of} from queue n
    where n.shard_id = f.shard_id and n.lane_id = f.lane_id and n.state = 'waiting' and n.retry_count > 0`;
  const isOwn = query.watcherId === undefined ? sql`true` : sql`f.watcher_id = ${query.watcherId}`;
  const inShards = db.isDistributed === true ? await readRetries(db, isOwn) : undefined;
  const pending =
    inShards === undefined
      ? sql`
      cross join lateral (${retries(sql`n.due_at`)} order by n.due_at limit 1) next
      cross join lateral (${retries(sql`n.created_at`)} order by n.id limit 1) oldest
      cross join lateral (
        select count(*) as pending from (${retries(sql`n.id`)} limit ${PENDING_MAX + 1}) as counted) pending`
      : sql`
      join ${inShards} as pending on pending.lane_id = f.lane_id
      cross join lateral (select pending.due_at) next cross join lateral (select pending.created_at) oldest`;
  const rows = await db.query<ReceiverRow>(sql`
    with page as materialized (${query.failing ? selectFailing(query, hasRetriesIn(inShards)) : selectOrigins(query)})
    select page.watcher_id, page.name, page.origin, page.is_suspended, min(f.since) as since, sum(f.attempts)::bigint as attempts,
      max(f.last_attempt_at) as last_attempt_at,
      (array_agg(f.last_outcome order by f.last_attempt_at desc))[1] as last_outcome,
      (array_agg(f.last_status order by f.last_attempt_at desc))[1] as last_status,
      least(sum(f.pending), ${PENDING_MAX + 1})::bigint as pending,
      min(f.oldest_pending_at) as oldest_pending_at, min(f.next_attempt_at) as next_attempt_at
    from page left join lateral (
      select f.*, pending.pending, oldest.created_at as oldest_pending_at, next.due_at as next_attempt_at
      from receiver_failure f ${pending}
      where f.watcher_id = page.watcher_id and f.origin = page.origin and not page.is_suspended
    ) f on true
    group by page.watcher_id, page.name, page.origin, page.is_suspended
    order by page.watcher_id, page.origin`);
  return rows.map((row) => ({
    watcherId: row.watcher_id,
    watcherName: row.name,
    origin: row.origin,
    isSuspended: row.is_suspended,
    failure: toFailure(row),
  }));
}

/** The failing receivers of a page. */
function selectFailing({ watcherId, after, limit }: ReceiverQuery, isFailing: Sql): Sql {
  return sql`
    select f.watcher_id, w.name, f.origin, false as is_suspended
    from receiver_failure f join watcher w on w.id = f.watcher_id and w.suspended_at is null
    where ${watcherId === undefined ? sql`true` : sql`f.watcher_id = ${watcherId}`}
      and ${after === undefined ? sql`true` : sql`(f.watcher_id, f.origin) > (${after.watcherId}::bigint, ${after.origin}::text)`}
      and ${isFailing}
    group by f.watcher_id, f.origin, w.name
    order by f.watcher_id, f.origin limit ${limit}`;
}

/** The receivers of a page. Reads each lane's key in the index of its shard, up to a page of them. */
function selectOrigins({ watcherId, after, limit }: ReceiverQuery): Sql {
  const isAfter =
    after === undefined
      ? sql`true`
      : sql`l.origin > case when w.id = ${after.watcherId}::bigint then ${after.origin}::text else '' end`;
  return sql`
    select w.id as watcher_id, w.name, l.origin, w.suspended_at is not null as is_suspended
    from watcher w cross join lateral (
      select distinct of_shard.origin from unnest(${shardsOfWatcher}) as shard (id) cross join lateral (
        select l.origin from lane l where l.shard_id = shard.id and ${isAfter} order by l.origin limit ${limit}) as of_shard
      order by of_shard.origin limit ${limit}
    ) as l
    where ${watcherId === undefined ? sql`true` : sql`w.id = ${watcherId}`}
      and ${after === undefined ? sql`true` : sql`w.id >= ${after.watcherId}::bigint`}
    order by w.id, l.origin limit ${limit}`;
}

function toFailure(row: ReceiverRow): Failure | undefined {
  const { since, attempts, last_attempt_at: lastAttemptAt, pending } = row;
  const { oldest_pending_at: oldestPendingAt, next_attempt_at: nextAttemptAt } = row;
  if (since === null || attempts === null || lastAttemptAt === null) return undefined;
  if (pending === null || oldestPendingAt === null || nextAttemptAt === null) return undefined;
  return {
    ...{ since, attempts, lastAttemptAt },
    ...{ lastOutcome: row.last_outcome ?? undefined, lastStatus: row.last_status ?? undefined },
    ...{ pending, oldestPendingAt, nextAttemptAt },
  };
}

export type FailureCounts = {
  receivers: number;
  watchers: number;
  /** Since when the first of them has been failing. */
  oldestSince: Date | undefined;
  /** When any receiver last accepted a webhook. */
  lastSuccessAt: Date | undefined;
  /** Watchers with a receiver that began to fail after that. */
  watchersSinceSuccess: number;
};

/**
 * How many receivers are failing, without those of suspended watchers. A receiver that has recovered counts until
 * `createReceiverRepair` removes it.
 */
export async function countFailures(db: Db, now: Date): Promise<FailureCounts> {
  const [row] = await db.query<{
    receivers: number;
    watchers: number;
    oldest_since: Date | null;
    last_success_at: Date | null;
    watchers_since: number;
  }>(sql`
    with success as materialized (
      select at from last_success
    )
    select count(distinct (f.watcher_id, f.origin)) as receivers, count(distinct f.watcher_id) as watchers, min(since) as oldest_since,
      (select at from success) as last_success_at,
      count(distinct f.watcher_id) filter (
        -- In the future, it is from before the clock was set back.
        where since > coalesce((select at from success), '-infinity') and since <= ${now}
      ) as watchers_since
    from receiver_failure f join watcher w on w.id = f.watcher_id
    where w.suspended_at is null`);
  return {
    receivers: row?.receivers ?? 0,
    watchers: row?.watchers ?? 0,
    oldestSince: row?.oldest_since ?? undefined,
    lastSuccessAt: row?.last_success_at ?? undefined,
    watchersSinceSuccess: row?.watchers_since ?? 0,
  };
}

/** For a statement with a CTE `updated` of settled rows: records their failures. The lanes must be locked before. */
export const recordFailures = sql`
  insert into receiver_failure as f (shard_id, origin, lane_id, watcher_id, since, attempts, last_attempt_at, last_outcome,
    last_status)
  select l.shard_id, l.origin, l.id, l.watcher_id, min(u.settled_at), count(*), max(u.settled_at),
    (array_agg(u.outcome order by u.settled_at desc, u.position desc))[1],
    (array_agg(u.status order by u.settled_at desc, u.position desc))[1]
  from updated u join lane l on l.id = u.lane_id
  where u.next_retry_at is not null and u.state = 'waiting'
  group by l.id
  order by l.watcher_id, l.origin, l.shard_id
  on conflict (watcher_id, origin, shard_id) do update set lane_id = excluded.lane_id, attempts = f.attempts + excluded.attempts,
    last_attempt_at = excluded.last_attempt_at, last_outcome = excluded.last_outcome, last_status = excluded.last_status`;

const hasRetries = sql`exists (
  select from queue n
  where n.shard_id = f.shard_id and n.lane_id = f.lane_id and n.state = 'waiting' and n.retry_count > 0)`;

/** Whether a retry of the delivery queue waits. `retries` are those that `readRetries` has read, on Citus. In lost shards they stay as they are. */
const hasRetriesIn = (retries: Sql | undefined): Sql =>
  retries === undefined
    ? hasRetries
    : sql`(f.lane_id in (select lane_id from ${retries} as r) or ${isLost(sql`f.shard_id`)})`;

/** On Citus: the delivery queues of failing receivers `f` that match the condition, with what waits for a retry in them. */
async function readRetries(db: Db, condition: Sql): Promise<Sql> {
  const lanes = await db.query<{ id: number; shard_id: number }>(sql`
    select lane_id as id, shard_id from receiver_failure f where ${condition} and not ${isLost(sql`f.shard_id`)}`);
  return rowsOf(
    db,
    sql`
      select lane_id, count(*) as pending, min(due_at) as due_at, min(created_at) as created_at from queue
      where ${isOfLanes(lanes)} and state = 'waiting' and retry_count > 0
      group by lane_id`,
    'lane_id bigint, pending bigint, due_at timestamptz, created_at timestamptz',
  );
}

type FailureCursor = { watcherId: number; origin: string; shardId: number };
const FIRST_PAGE: FailureCursor = { watcherId: 0, origin: '', shardId: 0 };
const PAGE_RECEIVERS = 1_000;

/** A step that reads one page of failing receivers and removes those that have no retry waiting. */
export function createReceiverRepair(database: Database): Step {
  let after = FIRST_PAGE;
  return async () => {
    after = await removeRecovered(database, after);
    return 'idle';
  };
}

/** Returns where the next page begins. */
async function removeRecovered(database: Database, after: FailureCursor): Promise<FailureCursor> {
  const isAfter = sql`(watcher_id, origin, shard_id) > (${after.watcherId}::bigint, ${after.origin}::text, ${after.shardId}::bigint)`;
  const retries = database.isDistributed === true ? await readRetries(database, isAfter) : undefined;
  const rows = await database.query<{
    watcher_id: number;
    origin: string;
    shard_id: number;
    lane_id: number;
    failing: boolean;
  }>(sql`
    select watcher_id, origin, shard_id, lane_id, ${hasRetriesIn(retries)} as failing from receiver_failure f
    where ${isAfter}
    order by watcher_id, origin, shard_id
    limit ${PAGE_RECEIVERS}`);
  const recovered = rows.filter(({ failing }) => !failing);
  if (recovered.length > 0) {
    const which = sql`f.watcher_id = any(${listOf(recovered.map((row) => row.watcher_id))}::bigint[])
      and f.lane_id = any(${listOf(recovered.map((row) => row.lane_id))}::bigint[])`;
    await database.transaction(async (tx) => {
      // The lock is a separate statement. The delete then sees every failure that was settled before, and a later failure
      // waits for it and begins a new row.
      await tx.query(
        sql`select from receiver_failure f where ${which} order by watcher_id, origin, shard_id for update`,
      );
      const current = tx.isDistributed === true ? await readRetries(tx, which) : undefined;
      await tx.query(sql`delete from receiver_failure f where ${which} and not ${hasRetriesIn(current)}`);
    });
  }
  const last = rows.at(-1);
  return rows.length < PAGE_RECEIVERS || last === undefined
    ? FIRST_PAGE
    : { watcherId: last.watcher_id, origin: last.origin, shardId: last.shard_id };
}
