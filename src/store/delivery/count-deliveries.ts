/**
 * Adds delivery attempts up to sums by hour and day (docs/explanation/statistics.md), off the path of deliveries. Attempts are
 * only ever inserted, so each is counted once: a transaction adds those after the last counted id, up to the safe watermark, and
 * stores the new id.
 */
import type { Clock } from '../../core/clock.ts';
import { bucketBoundsMs } from '../../domain/time-buckets.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { createSafeWatermark } from './attempts.ts';

/** Advisory lock of the transaction that adds. One process at a time does, and a watcher's removal waits for it. */
const STATISTICS_LOCK = 0x6362_0009;
/** Ids of one transaction, which takes some tenths of a second. */
const BATCH_IDS = { postgres: 10_000, embedded: 1_000 };
/** How often the index of the ids is brought up to date in an embedded database. */
const SUMMARIZED_IDS = 2_000;
const IDLE_MS = 5_000;
/** How soon to look again for attempts that wait for other transactions. */
const PENDING_MS = 250;
/** The shard of the sums of all shards. */
export const ALL_SHARDS = 0;
/** Counters are entries of this size and a number. */
export const COUNTER_BITS = 40;
/** Of `record_delivery_sum.counters`: the first counter of time buckets. */
export const LATENCY_COUNTERS = 128;
/** Counters of each hour before those, in this order. */
export const recordCounters = ['attempts', 'failedAttempts', 'delivered', 'firstAttempt'] as const;

type DeliveryCount = {
  /** Adds the next attempts. */
  step(): Promise<'idle'>;
  idleMs(): number;
};

/** `attemptsMs`: how long attempts are kept. */
export function createDeliveryCount({
  database,
  clock,
  attemptsMs,
  batchIds = BATCH_IDS[database.kind],
}: {
  database: Database;
  clock: Clock;
  attemptsMs: number;
  batchIds?: number;
}): DeliveryCount {
  const safeWatermark = createSafeWatermark(database, clock.now);
  let nextMs = IDLE_MS;
  let summarizedId = 0;

  /** On a server autovacuum does this. Without it, each step would read the whole table. */
  async function summarize(safeId: number): Promise<void> {
    if (database.kind !== 'embedded' || safeId - summarizedId < SUMMARIZED_IDS) return;
    await database.query(sql`
      select brin_summarize_new_values(inhrelid) from pg_inherits where inhparent = 'delivery_attempt_order'::regclass`);
    summarizedId = safeId;
  }

  return {
    async step() {
      const startedMs = clock.steadyMs();
      const safeId = await safeWatermark();
      const reachedAt = safeWatermark.reachedAt();
      nextMs = safeWatermark.isPending() ? PENDING_MS : IDLE_MS;
      if (safeId === undefined || reachedAt === undefined) return 'idle';
      const isBehind = await database.transaction((tx) =>
        addNext(tx, { safeId, reachedAt, batchIds, attemptsMs }),
      );
      await summarize(safeId);
      // Half of the time, so that catching up leaves the database to deliveries.
      if (isBehind) nextMs = clock.steadyMs() - startedMs;
      return 'idle';
    },
    idleMs: () => nextMs,
  };
}

/** Waits until no sums are being written, and keeps them from being written until the transaction ends. */
export async function lockSums(tx: Tx): Promise<void> {
  await tx.query(sql`select pg_advisory_xact_lock(${STATISTICS_LOCK})`);
}

type Next = { safeId: number; reachedAt: Date; batchIds: number; attemptsMs: number };

/** Returns whether more is left to add. */
async function addNext(tx: Tx, { safeId, reachedAt, batchIds, attemptsMs }: Next): Promise<boolean> {
  const [lock] = await tx.query<{ is_free: boolean }>(
    sql`select pg_try_advisory_xact_lock(${STATISTICS_LOCK}) as is_free`,
  );
  if (lock?.is_free !== true) return false;
  const [state] = await tx.query<{ counted_id: number | null }>(sql`select counted_id from statistics_state`);
  const isRestart = typeof state?.counted_id !== 'number';
  if (isRestart) await tx.query(sql`truncate delivery_sum, record_delivery_sum`);
  const after = state?.counted_id ?? 0;
  const upTo = Math.min(safeId, after + batchIds);
  if (upTo <= after && !isRestart) return false;
  const [added] = await tx.query<{ first_at: Date | null }>(addAttempts({ after, upTo, attemptsMs }));
  await tx.query(sql`
    update statistics_state set counted_id = ${upTo},
      counted_until = coalesce(${upTo === safeId ? reachedAt : null}::timestamptz, counted_until),
      counted_from = coalesce(case when ${!isRestart} then counted_from end, ${added?.first_at ?? null}::timestamptz)`);
  return upTo < safeId;
}

/** The bucket of a whole number of milliseconds. */
const bucketOf = (ms: Sql): Sql =>
  sql`width_bucket(${ms}::bigint, ${listOf(bucketBoundsMs.map((bound) => bound + 1))}::bigint[])`;

const counter = (number: Sql, count: Sql): Sql =>
  sql`(${number}::bigint << ${COUNTER_BITS}::int) + ${count}::bigint`;

/** Adds these attempts to the sums. */
function addAttempts({ after, upTo, attemptsMs }: { after: number; upTo: number; attemptsMs: number }): Sql {
  return sql`
    with ${factsOf({ after, upTo, attemptsMs })}, grouped as materialized (
      select shard_id, origin, hour, count(*) as attempts, count(*) filter (where is_failed) as failed_attempts,
        count(*) filter (where is_delivered) as delivered, count(*) filter (where is_first) as first_attempt,
        count(*) filter (where is_answered) as answered, coalesce(sum(duration_ms) filter (where is_answered), 0) as answer_ms
      from facts group by shard_id, origin, hour
    ), cells as materialized (
      select shard_id, origin, hour, c.is_latency, c.bucket, count(*) as count
      from facts cross join lateral (values (true, latency_bucket), (false, answer_bucket)) as c (is_latency, bucket)
      where c.bucket is not null group by shard_id, origin, hour, c.is_latency, c.bucket
    ), sums as (
      select s.*, sum(attempts) as attempts, sum(failed_attempts) as failed_attempts, sum(delivered) as delivered,
        sum(first_attempt) as first_attempt, sum(answered) as answered, sum(answer_ms) as answer_ms
      from grouped g cross join lateral (${spansOf(sql`g`)}) as s
      group by s.shard_id, s.unit, s.started_at, s.origin
    ), histograms as (
      select shard_id, unit, started_at, origin,
        array_agg(${counter(sql`bucket`, sql`count`)} order by bucket) filter (where is_latency) as latencies,
        array_agg(${counter(sql`bucket`, sql`count`)} order by bucket) filter (where not is_latency) as answers
      from (
        select s.*, c.is_latency, c.bucket, sum(c.count) as count from cells c cross join lateral (${spansOf(sql`c`)}) as s
        group by s.shard_id, s.unit, s.started_at, s.origin, c.is_latency, c.bucket
      ) as c
      group by shard_id, unit, started_at, origin
    ), added as (
      insert into delivery_sum as t (shard_id, unit, started_at, origin, attempts, failed_attempts, delivered, first_attempt,
        answered, answer_ms, latencies, answers)
      select s.*, coalesce(h.latencies, '{}'), coalesce(h.answers, '{}')
      from sums s left join histograms h using (shard_id, unit, started_at, origin)
      on conflict (shard_id, unit, started_at, origin) do update set attempts = t.attempts + excluded.attempts,
        failed_attempts = t.failed_attempts + excluded.failed_attempts, delivered = t.delivered + excluded.delivered,
        first_attempt = t.first_attempt + excluded.first_attempt, answered = t.answered + excluded.answered,
        answer_ms = t.answer_ms + excluded.answer_ms, latencies = add_counters(t.latencies, excluded.latencies),
        answers = add_counters(t.answers, excluded.answers)
    ), added_to_records as (
      insert into record_delivery_sum as t (shard_id, watched_address_id, started_at, counters)
      select shard_id, watched_address_id, day, array_agg(${counter(sql`number`, sql`count`)} order by number)
      from (
        select shard_id, watched_address_id, date_trunc('day', hour, 'UTC') as day, number, count(*) as count
        from facts cross join lateral (select 4 * extract(hour from hour at time zone 'UTC')::int as first) as h
        cross join lateral unnest(array[first, case when is_failed then first + 1 end, case when is_delivered then first + 2 end,
          case when is_first then first + 3 end, ${LATENCY_COUNTERS}::int + latency_bucket]) as number
        where watched_address_id is not null and number is not null
        group by shard_id, watched_address_id, day, number
      ) as counted
      group by shard_id, watched_address_id, day
      on conflict (shard_id, watched_address_id, started_at) do update set counters = add_counters(t.counters, excluded.counters)
    )
    select min(started_at) as first_at from facts`;
}

/** The sums that an hour of a receiver belongs to. */
const spansOf = (hour: Sql): Sql => sql`
  select r.shard_id, u.unit, u.started_at, r.origin
  from (values (${hour}.shard_id, ${hour}.origin), (${hour}.shard_id, ''), (${ALL_SHARDS}::bigint, '')) as r (shard_id, origin)
  cross join (values ('h'::"char", ${hour}.hour), ('d', date_trunc('day', ${hour}.hour, 'UTC'))) as u (unit, started_at)
  where r.origin is not null`;

/**
 * CTE `facts`: what each attempt adds. Its notification is nearly always recent, so only the partition of that time is asked
 * first. A message is delivered by its first success. A success long after the notification, without an earlier attempt, is that
 * of a redelivery if retention has deleted the earlier attempts.
 */
function factsOf({ after, upTo, attemptsMs }: { after: number; upTo: number; attemptsMs: number }): Sql {
  const columns = sql`n.id, n.created_at, n.watched_address_id, n.is_held`;
  const ofAttempt = sql`n.shard_id = a.shard_id and n.id = a.notification_id`;
  return sql`
    batch as materialized (
      select shard_id, id, notification_id, lane_id, revision, started_at, duration_ms, outcome = 'success' as is_success,
        status is not null as is_answered
      from delivery_attempt where id > ${after} and id <= ${upTo}
    ), judged as materialized (
      select a.*, l.origin, date_trunc('hour', a.started_at, 'UTC') as hour, n.watched_address_id, earlier.count as earlier_count,
        a.is_success and not earlier.has_success and not (
          a.started_at > n.created_at + ${attemptsMs}::bigint * interval '1 ms' and earlier.count = 0 and exists (
            select from ended e where e.shard_id = a.shard_id and e.id = a.notification_id and e.redelivery_count > 0)
        ) is true as is_delivered,
        case when a.revision = 0 and not n.is_held
          then greatest(0, extract(epoch from a.started_at - n.created_at) * 1000 + a.duration_ms)::bigint end as latency_ms
      from batch a
      left join lane l on l.id = a.lane_id
      left join lateral (
        select ${columns} from notification n
        where ${ofAttempt} and n.created_at >= a.started_at - interval '1 hour' and n.created_at <= a.started_at + interval '1 day'
        limit 1
      ) recent on true
      left join lateral (
        select ${columns} from notification n
        where recent.id is null and ${ofAttempt} and n.created_at < a.started_at - interval '1 hour' limit 1
      ) old on true
      cross join lateral (
        select coalesce(recent.created_at, old.created_at) as created_at, coalesce(recent.is_held, old.is_held) as is_held,
          coalesce(recent.watched_address_id, old.watched_address_id) as watched_address_id) as n
      cross join lateral (
        select count(*) as count, coalesce(bool_or(p.outcome = 'success'), false) as has_success from delivery_attempt p
        where a.is_success and p.shard_id = a.shard_id and p.notification_id = a.notification_id and p.revision = a.revision
          and p.id < a.id and p.started_at >= coalesce(n.created_at - interval '1 day', '-infinity')
      ) as earlier
    ), facts as materialized (
      select shard_id, origin, hour, started_at, watched_address_id, duration_ms, is_answered, not is_success as is_failed,
        is_delivered, is_delivered and earlier_count = 0 as is_first,
        case when is_delivered and latency_ms is not null then ${bucketOf(sql`latency_ms`)} end as latency_bucket,
        case when is_answered then ${bucketOf(sql`duration_ms`)} end as answer_bucket
      from judged
    )`;
}
