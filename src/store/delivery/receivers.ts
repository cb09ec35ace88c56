/**
 * Receivers: the origins that a watcher's webhooks go to, and which of them fail. A receiver is failing while a notification to
 * it has failed and waits for a retry, even if others arrive.
 */
import type { Step } from '../../core/loop.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Db } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';

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
  attempts: number;
  last_attempt_at: Date;
  last_outcome: string | null;
  last_status: number | null;
  pending: number;
  oldest_pending_at: Date | null;
  next_attempt_at: Date | null;
};

/** A page of receivers, by watcher and origin. */
export async function listReceivers(
  db: Db,
  { watcherId, failing, after, limit }: ReceiverQuery,
): Promise<Receiver[]> {
  const source = failing
    ? sql`(select shard_id, origin, lane_id, watcher_id from receiver_failure) k`
    : sql`(select shard_id, origin, id as lane_id, watcher_id from lane) k`;
  const retries = (of: Sql) => sql`
    select ${of} from queue n
    where n.shard_id = f.shard_id and n.lane_id = f.lane_id and n.state = 'waiting' and n.retry_count > 0`;
  const rows = await db.query<ReceiverRow>(sql`
    select k.watcher_id, w.name, k.origin, w.suspended_at is not null as is_suspended, f.since, f.attempts, f.last_attempt_at, f.last_outcome, f.last_status,
      pending.pending, oldest.created_at as oldest_pending_at, next.due_at as next_attempt_at
    from ${source}
    join watcher w on w.id = k.watcher_id
    left join receiver_failure f
      on f.shard_id = k.shard_id and f.origin = k.origin and w.suspended_at is null
    left join lateral (${retries(sql`n.due_at`)} order by n.due_at limit 1) next on true
    left join lateral (${retries(sql`n.created_at`)} order by n.id limit 1) oldest on true
    cross join lateral (
      select count(*) as pending from (${retries(sql`n.id`)} limit ${PENDING_MAX + 1}) as counted) pending
    where ${watcherId === undefined ? sql`true` : sql`k.shard_id = ${watcherId}`}
      and ${after === undefined ? sql`true` : sql`(k.shard_id, k.origin) > (${after.watcherId}::bigint, ${after.origin}::text)`}
      and ${failing ? sql`next.due_at is not null` : sql`true`}
    order by k.shard_id, k.origin
    limit ${limit}`);
  return rows.map((row) => ({
    watcherId: row.watcher_id,
    watcherName: row.name,
    origin: row.origin,
    isSuspended: row.is_suspended,
    failure: toFailure(row),
  }));
}

function toFailure(row: ReceiverRow): Failure | undefined {
  const { since, oldest_pending_at: oldestPendingAt, next_attempt_at: nextAttemptAt } = row;
  if (since === null || oldestPendingAt === null || nextAttemptAt === null) return undefined;
  return {
    ...{ since, attempts: row.attempts, lastAttemptAt: row.last_attempt_at },
    ...{ lastOutcome: row.last_outcome ?? undefined, lastStatus: row.last_status ?? undefined },
    ...{ pending: row.pending, oldestPendingAt, nextAttemptAt },
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
export async function countFailures(db: Db): Promise<FailureCounts> {
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
    select count(*) as receivers, count(distinct f.watcher_id) as watchers, min(since) as oldest_since,
      (select at from success) as last_success_at,
      count(distinct f.watcher_id) filter (where since > coalesce((select at from success), '-infinity')) as watchers_since
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
  order by l.shard_id, l.origin
  on conflict (shard_id, origin) do update set lane_id = excluded.lane_id, attempts = f.attempts + excluded.attempts,
    last_attempt_at = excluded.last_attempt_at, last_outcome = excluded.last_outcome, last_status = excluded.last_status`;

const hasRetries = sql`exists (
  select from queue n
  where n.shard_id = f.shard_id and n.lane_id = f.lane_id and n.state = 'waiting' and n.retry_count > 0)`;

type FailureCursor = { shardId: number; origin: string };
const FIRST_PAGE: FailureCursor = { shardId: 0, origin: '' };
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
  const rows = await database.query<{
    shard_id: number;
    origin: string;
    lane_id: number;
    failing: boolean;
  }>(sql`
    select shard_id, origin, lane_id, ${hasRetries} as failing from receiver_failure f
    where (shard_id, origin) > (${after.shardId}::bigint, ${after.origin}::text)
    order by shard_id, origin
    limit ${PAGE_RECEIVERS}`);
  const recovered = rows.filter(({ failing }) => !failing);
  if (recovered.length > 0) {
    const which = sql`f.shard_id = any(${listOf(recovered.map((row) => row.shard_id))}::bigint[])
      and f.lane_id = any(${listOf(recovered.map((row) => row.lane_id))}::bigint[])`;
    await database.transaction(async (tx) => {
      // The lock is a separate statement. The delete then sees every failure that was settled before, and a later failure
      // waits for it and begins a new row.
      await tx.query(sql`select from receiver_failure f where ${which} order by shard_id, origin for update`);
      await tx.query(sql`delete from receiver_failure f where ${which} and not ${hasRetries}`);
    });
  }
  const last = rows.at(-1);
  return rows.length < PAGE_RECEIVERS || last === undefined
    ? FIRST_PAGE
    : { shardId: last.shard_id, origin: last.origin };
}
