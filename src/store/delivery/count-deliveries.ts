/**
 * Adds delivery attempts up to sums by hour and day (docs/explanation/statistics.md), off the path of deliveries. Attempts are
 * only ever inserted, so each is counted once: a transaction adds those after the last counted id, up to the safe watermark, and
 * stores the new id.
 */
import type { Clock } from '../../core/clock.ts';
import { bucketBoundsMs } from '../../domain/time-buckets.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Tx } from '../db/db.ts';
import { listLost } from '../db/lost-shards.ts';
import { rowsOf } from '../db/shard-rows.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { createSafeWatermark } from './attempts.ts';
import {
  buildNextPart,
  COUNTER_BITS,
  counter,
  listWindows,
  PART_RECEIVERS,
  periods,
  type Window,
} from './receiver-windows.ts';
import { isInShards } from './shards.ts';

/** Advisory lock of the transaction that adds. One process at a time does, and a watcher's removal waits for it. */
const STATISTICS_LOCK = 0x6362_0009;
/** Ids of one transaction, which takes some tenths of a second on a server. All other statements of an embedded database wait for it. */
const BATCH_IDS = { postgres: 10_000, embedded: 250 };
/** How often the index of the ids is brought up to date in an embedded database. */
const SUMMARIZED_IDS = 2_000;
/** A notification is recent if it was created at most this long before the first attempt of a batch. */
const RECENT_MS = 3_600_000;
const DAY_MS = 86_400_000;
const IDLE_MS = 5_000;
/** How soon to look again for attempts that wait for other transactions. */
const PENDING_MS = 250;
/** The shard of the sums of all shards. */
export const ALL_SHARDS = 0;
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
  partReceivers = PART_RECEIVERS[database.kind],
}: {
  database: Database;
  clock: Clock;
  attemptsMs: number;
  batchIds?: number;
  partReceivers?: number;
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
      // Attempts are added in the order of their ids, which are spread over all shards.
      if ((await listLost(database)).length > 0) return 'idle';
      const isBehind = await database.transaction((tx) =>
        addNext(tx, { safeId, reachedAt, batchIds, attemptsMs, now: clock.now(), partReceivers }),
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

/** Whether attempts in these shards are not added yet. */
export async function hasUncounted(tx: Tx, shards: readonly number[]): Promise<boolean> {
  // Without the fence, the planner may read all attempts of the shards instead of the newest ones of all.
  const fence = tx.isDistributed === true ? sql`` : sql`offset 0`;
  const rows = await tx.query(sql`
    select from (
      select shard_id from delivery_attempt
      where id > coalesce((select counted_id from statistics_state), 0) ${fence}
    ) as a where ${isInShards(sql`shard_id`, shards)} limit 1`);
  return rows.length > 0;
}

type Next = {
  safeId: number;
  reachedAt: Date;
  batchIds: number;
  attemptsMs: number;
  now: Date;
  partReceivers: number;
};

/** Returns whether more is left to do. Windows wait until all attempts are added. */
async function addNext(
  tx: Tx,
  { safeId, reachedAt, batchIds, attemptsMs, now, partReceivers }: Next,
): Promise<boolean> {
  const [lock] = await tx.query<{ is_free: boolean }>(
    sql`select pg_try_advisory_xact_lock(${STATISTICS_LOCK}) as is_free`,
  );
  if (lock?.is_free !== true) return false;
  const [state] = await tx.query<{ counted_id: number | null }>(sql`select counted_id from statistics_state`);
  const isRestart = typeof state?.counted_id !== 'number';
  if (isRestart) await tx.query(sql`truncate delivery_sum, record_delivery_sum, receiver_window`);
  const after = state?.counted_id ?? 0;
  const upTo = Math.min(safeId, after + batchIds);
  if (upTo > after || isRestart) {
    const span = { after, upTo, ...(await findTimes(tx, { after, upTo })) };
    const { first } = span;
    if (first !== undefined) {
      await tx.query(sql`set local work_mem = '32MB'`);
      const late = (await listWindows(tx)).filter(({ until }) => first < until);
      const full = { ...span, first, attemptsMs, late };
      const facts =
        tx.isDistributed === true
          ? sql`select * from ${await rowsOf(tx, factsInShards(full), FACT_COLUMNS)} as f`
          : factsOf(full);
      await tx.query(addAttempts(full, facts));
    }
    await tx.query(sql`
      update statistics_state set counted_id = ${upTo},
        counted_until = coalesce(${upTo === safeId ? reachedAt : null}::timestamptz, counted_until),
        counted_from = coalesce(case when ${!isRestart} then counted_from end, ${first ?? null}::timestamptz)`);
  }
  return upTo < safeId || buildNextPart(tx, { now, partReceivers });
}

/** When the first and the last of the attempts started. */
async function findTimes(
  tx: Tx,
  { after, upTo }: { after: number; upTo: number },
): Promise<{ first: Date | undefined; last: Date | undefined }> {
  const [row] = await tx.query<{ first: Date | null; last: Date | null }>(sql`
    select min(started_at) as first, max(started_at) as last from delivery_attempt where id > ${after} and id <= ${upTo}`);
  return { first: row?.first ?? undefined, last: row?.last ?? undefined };
}

/**
 * Attempts with ids above `after` up to `upTo`, of which the first started at `first` and the last at `last`. `late` are the
 * windows that some of them may belong to.
 */
type Span = {
  after: number;
  upTo: number;
  first: Date;
  last: Date | undefined;
  attemptsMs: number;
  late: readonly Window[];
};

/** The bucket of a whole number of milliseconds. */
const bucketOf = (ms: Sql): Sql =>
  sql`width_bucket(${ms}::bigint, ${listOf(bucketBoundsMs.map((bound) => bound + 1))}::bigint[])`;

const BITS = raw(String(COUNTER_BITS));

/**
 * Adds these attempts to the sums. Hours and days are counted from 1970-01-01. Each level is added up before it is repeated for
 * each of its times, and counters are in no order, so that nothing is sorted.
 */
function addAttempts(span: Span, facts: Sql): Sql {
  return sql`
    with facts as materialized (${facts}), grouped as materialized (
      select shard_id, lane_id, hour, count(*) as attempts, count(*) filter (where is_failed) as failed_attempts,
        count(*) filter (where is_delivered) as delivered, count(*) filter (where is_first) as first_attempt,
        count(*) filter (where is_answered) as answered, coalesce(sum(duration_ms) filter (where is_answered), 0) as answer_ms
      from facts group by shard_id, lane_id, hour
    ), cells as materialized (
      select shard_id, lane_id, hour, true as is_latency, latency_bucket as bucket, count(*) as count
      from facts where latency_bucket is not null group by shard_id, lane_id, hour, latency_bucket
      union all
      select shard_id, lane_id, hour, false, answer_bucket, count(*)
      from facts where is_answered group by shard_id, lane_id, hour, answer_bucket
    ), sums as (
      select shard_id, unit, started_at, origin, ${summed(SUMMED)}
      from (${levelsOf(sql`grouped`, { keys: sql``, sums: summed(SUMMED) })}) as g ${timesOf(span.late)}
      group by shard_id, unit, started_at, origin
    ), histograms as (
      select shard_id, unit, started_at, origin,
        array_agg(${counter(sql`bucket`, sql`count`)}) filter (where is_latency) as latencies,
        array_agg(${counter(sql`bucket`, sql`count`)}) filter (where not is_latency) as answers
      from (
        select shard_id, unit, started_at, origin, is_latency, bucket, sum(count)::bigint as count
        from (${levelsOf(sql`cells`, { keys: sql`, is_latency, bucket`, sums: summed(['count']) })}) as g ${timesOf(span.late)}
        group by shard_id, unit, started_at, origin, is_latency, bucket
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
        answer_ms = t.answer_ms + excluded.answer_ms, latencies = ${addCounters(sql`t.latencies || excluded.latencies`)},
        answers = ${addCounters(sql`t.answers || excluded.answers`)}
    ), records as materialized (
      select shard_id, watched_address_id, hour / 24 as day, hour % 24 * 4 as first, latency_bucket, count(*) as attempts,
        count(*) filter (where is_failed) as failed_attempts, count(*) filter (where is_delivered) as delivered,
        count(*) filter (where is_first) as first_attempt
      from facts where watched_address_id is not null group by shard_id, watched_address_id, hour, latency_bucket
    )
    insert into record_delivery_sum as t (shard_id, watched_address_id, started_at, counters)
    select shard_id, watched_address_id, ${timeOf(sql`day * 24`)}, array_agg(${counter(sql`number`, sql`count`)})
    from (
      select r.shard_id, r.watched_address_id, r.day, c.number, sum(c.count)::bigint as count
      from records r cross join lateral (values (first, attempts), (first + 1, failed_attempts), (first + 2, delivered),
        (first + 3, first_attempt), (${LATENCY_COUNTERS}::int + latency_bucket, delivered)) as c (number, count)
      where c.count > 0 and c.number is not null
      group by r.shard_id, r.watched_address_id, r.day, c.number
    ) as counted
    group by shard_id, watched_address_id, day
    on conflict (shard_id, watched_address_id, started_at) do update set counters = ${addCounters(sql`t.counters || excluded.counters`)}`;
}

const SUMMED = ['attempts', 'failed_attempts', 'delivered', 'first_attempt', 'answered', 'answer_ms'];
const summed = (columns: readonly string[]): Sql =>
  raw(columns.map((name) => `sum(${name})::bigint as ${name}`).join(', '));

/** The rows by receiver, by watcher and for all: sums by the hour and by `keys`, which begin with a comma. */
function levelsOf(rows: Sql, { keys, sums }: { keys: Sql; sums: Sql }): Sql {
  return sql`
    select r.shard_id, l.origin, hour${keys}, ${sums} from ${rows} r join lane l on l.id = r.lane_id
    group by r.shard_id, l.origin, hour${keys}
    union all
    select shard_id, '', hour${keys}, ${sums} from ${rows} group by shard_id, hour${keys}
    union all
    select ${ALL_SHARDS}::bigint, '', hour${keys}, ${sums} from ${rows} group by hour${keys}`;
}

/** The counters of both arrays, added. A function would take as long again for each call. */
const addCounters = (both: Sql): Sql => sql`(
    select coalesce(array_agg(entry order by entry), '{}') from (
      select (e >> ${BITS} << ${BITS}) + sum(e - (e >> ${BITS} << ${BITS}))::bigint as entry
      from unnest(${both}) as e group by e >> ${BITS}) as added)`;

/** Joins the times of the sums that an hour of a level `g` belongs to. */
function timesOf(late: readonly Window[]): Sql {
  const windows = late.map(
    ({ period, from, until }) => sql`
    union all select ${periods[period].window}::"char", ${until}::timestamptz
    where g.origin <> '' and ${timeOf(sql`g.hour`)} >= ${from}::timestamptz and ${timeOf(sql`g.hour`)} < ${until}::timestamptz`,
  );
  return sql`
  cross join lateral (
    values ('h'::"char", ${timeOf(sql`g.hour`)}), ('d', ${timeOf(sql`g.hour / 24 * 24`)})
    ${windows.reduce((all, one) => sql`${all}${one}`, sql``)}) as t (unit, started_at)`;
}

/** The start of an hour. */
const timeOf = (hour: Sql): Sql => sql`to_timestamp((${hour})::float8 * 3600)`;

/** Times without the arithmetic of exact decimals, which takes several times as long. */
const millisecondsOf = (interval: Sql): Sql => sql`round(date_part('epoch', ${interval}) * 1000)::bigint`;

/**
 * What each attempt adds. Its notification is nearly always recent, so only the partitions of that time are asked first. The limits
 * keep the planner from reading whole partitions. A message is delivered by its first success. A success long after the notification, without an earlier attempt, is
 * that of a redelivery if retention has deleted the earlier attempts.
 */
function factsOf({ after, upTo, first, last = first, attemptsMs }: Span): Sql {
  const recentFrom = sql`${new Date(first.getTime() - RECENT_MS)}::timestamptz`;
  const recentUntil = sql`${new Date(last.getTime() + DAY_MS)}::timestamptz`;
  const ofMessage = sql`p.shard_id = a.shard_id and p.notification_id = a.notification_id and p.revision = a.revision and p.id < a.id`;
  const isSuccess = sql`a.outcome = 'success'`;
  return sql`
    select a.shard_id, a.lane_id, floor(date_part('epoch', a.started_at) / 3600)::bigint as hour, n.watched_address_id, a.duration_ms,
      a.status is not null as is_answered, not ${isSuccess} as is_failed, j.is_delivered,
      j.is_delivered and earlier.count = 0 as is_first,
      case when j.is_delivered and a.revision = 0 and not n.is_held
        then ${bucketOf(sql`greatest(0, ${millisecondsOf(sql`a.started_at - n.created_at`)} + a.duration_ms)`)} end as latency_bucket,
      case when a.status is not null then ${bucketOf(sql`a.duration_ms`)} end as answer_bucket
    from delivery_attempt a
    left join lateral (
      select id, created_at, watched_address_id, is_held from notification r
      where r.shard_id = a.shard_id and r.id = a.notification_id and r.created_at >= ${recentFrom} and r.created_at <= ${recentUntil}
      limit 1
    ) r on true
    left join lateral (
      select created_at, watched_address_id, is_held from notification o
      where r.id is null and o.shard_id = a.shard_id and o.id = a.notification_id and o.created_at < ${recentFrom} limit 1
    ) old on true
    cross join lateral (
      select coalesce(r.created_at, old.created_at) as created_at, coalesce(r.is_held, old.is_held) as is_held,
        coalesce(r.watched_address_id, old.watched_address_id) as watched_address_id) as n
    cross join lateral (
      select count(*) as count, coalesce(bool_or(is_success), false) as has_success from (
        select p.outcome = 'success' as is_success from delivery_attempt p
        where ${isSuccess} and ${ofMessage} and p.started_at >= ${recentFrom} - interval '1 day'
        union all
        select p.outcome = 'success' from delivery_attempt p
        where ${isSuccess} and r.id is null and ${ofMessage} and p.started_at < ${recentFrom} - interval '1 day') as p
    ) as earlier
    cross join lateral (
      select ${isSuccess} and not earlier.has_success and not (
        a.started_at > n.created_at + ${attemptsMs}::bigint * interval '1 ms' and earlier.count = 0 and exists (
          select from ended e where e.shard_id = a.shard_id and e.id = a.notification_id and e.redelivery_count > 0)
      ) is true as is_delivered
    ) as j
    where a.id > ${after} and a.id <= ${upTo}`;
}

const FACT_COLUMNS = `shard_id bigint, lane_id bigint, hour bigint, watched_address_id uuid, duration_ms integer,
  is_answered boolean, is_failed boolean, is_delivered boolean, is_first boolean, latency_bucket integer, answer_bucket integer`;

/** The same on Citus, which runs it in each shard. It allows no limits in the joins, and needs none: a shard is small. */
function factsInShards({ after, upTo, attemptsMs }: Span): Sql {
  const ofMessage = sql`p.shard_id = a.shard_id and p.notification_id = a.notification_id and p.revision = a.revision and p.id < a.id`;
  const isDelivered = sql`(f.outcome = 'success' and f.successes = 0 and not (
    f.started_at > f.created_at + ${attemptsMs}::bigint * interval '1 ms' and f.earlier = 0 and f.redeliveries > 0) is true)`;
  return sql`
    select f.shard_id, f.lane_id, floor(date_part('epoch', f.started_at) / 3600)::bigint as hour, f.watched_address_id, f.duration_ms,
      f.status is not null as is_answered, f.outcome <> 'success' as is_failed, ${isDelivered} as is_delivered,
      ${isDelivered} and f.earlier = 0 as is_first,
      case when ${isDelivered} and f.revision = 0 and not f.is_held
        then ${bucketOf(sql`greatest(0, ${millisecondsOf(sql`f.started_at - f.created_at`)} + f.duration_ms)`)} end as latency_bucket,
      case when f.status is not null then ${bucketOf(sql`f.duration_ms`)} end as answer_bucket
    from (
      select a.shard_id, a.lane_id, a.started_at, a.duration_ms, a.status, a.outcome, a.revision, n.created_at, n.is_held,
        n.watched_address_id,
        (select count(*) from delivery_attempt p where ${ofMessage}) as earlier,
        (select count(*) from delivery_attempt p where ${ofMessage} and p.outcome = 'success') as successes,
        (select count(*) from ended e
          where e.shard_id = a.shard_id and e.id = a.notification_id and e.redelivery_count > 0) as redeliveries
      from delivery_attempt a left join notification n on n.shard_id = a.shard_id and n.id = a.notification_id
      where a.id > ${after} and a.id <= ${upTo}
    ) as f`;
}
