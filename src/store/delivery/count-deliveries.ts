/**
 * Adds delivery attempts up to sums by hour and day (docs/explanation/statistics.md), off the path of deliveries. Attempts are
 * only ever inserted, so each is counted once: a transaction adds those after the last counted id, up to the safe watermark, and
 * stores the new id.
 */
import type { Clock } from '../../core/clock.ts';
import type { Database, Tx } from '../db/db.ts';
import { listLost } from '../db/lost-shards.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { factsOf, findBounds } from './attempt-facts.ts';
import { createSafeWatermark } from './attempts.ts';
import {
  beginEmpty,
  buildNextPart,
  COUNTER_BITS,
  counter,
  listWindows,
  PART_RECEIVERS,
  type Period,
  percentilesIn,
  periods,
} from './receiver-windows.ts';
import { isInShards, watcherOf } from './shards.ts';

/** Advisory lock of the transaction that adds. One process at a time does, and a watcher's removal waits for it. */
const STATISTICS_LOCK = 0x6362_0009;
/** Ids of one transaction, which takes some tenths of a second on a server. All other statements of an embedded database wait for it. */
const BATCH_IDS = { postgres: 10_000, embedded: 250 };
/** How often these indexes are brought up to date in an embedded database. */
const SUMMARIZED_IDS = 2_000;
const BRIN_INDEXES = raw(
  ['delivery_attempt_order', 'notification_order', 'notification_block', 'notification_created']
    .map((name) => `'${name}'::regclass`)
    .join(', '),
);
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

  /** On a server autovacuum does this. Without it, each step would read all attempts, and the log all notifications for a range. */
  async function summarize(safeId: number): Promise<void> {
    if (database.kind !== 'embedded' || safeId - summarizedId < SUMMARIZED_IDS) return;
    await database.query(sql`
      select brin_summarize_new_values(inhrelid) from pg_inherits
      where inhparent in (${BRIN_INDEXES})`);
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

/** Keeps sums from being written until the transaction ends. False if some are being written. */
export async function tryLockSums(tx: Tx): Promise<boolean> {
  const [lock] = await tx.query<{ is_free: boolean }>(
    sql`select pg_try_advisory_xact_lock(${STATISTICS_LOCK}) as is_free`,
  );
  return lock?.is_free === true;
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

/** Returns whether more is left to do. New windows wait until all attempts are added. */
async function addNext(
  tx: Tx,
  { safeId, reachedAt, batchIds, attemptsMs, now, partReceivers }: Next,
): Promise<boolean> {
  if (!(await tryLockSums(tx))) return false;
  const [state] = await tx.query<{ counted_id: number | null }>(sql`select counted_id from statistics_state`);
  const isRestart = typeof state?.counted_id !== 'number';
  if (isRestart) {
    await tx.query(sql`truncate delivery_sum, record_delivery_sum, receiver_window`);
    await beginEmpty(tx, now);
  }
  const after = state?.counted_id ?? 0;
  let upTo = Math.min(safeId, after + batchIds);
  if (upTo > after || isRestart) {
    const { first, ...bounds } = await findBounds(tx, { after, upTo });
    if (first === undefined) {
      upTo = await findGapEnd(tx, { after: upTo, safeId, batchIds });
    } else {
      await tx.query(sql`set local work_mem = '32MB'`);
      const facts = await factsOf(tx, { after, upTo, first, ...bounds, attemptsMs });
      await tx.query(addAttempts(facts, await listWindows(tx)));
    }
    await tx.query(sql`
      update statistics_state set counted_id = ${upTo},
        counted_until = coalesce(${upTo === safeId ? reachedAt : null}::timestamptz, case when ${!isRestart} then counted_until end),
        counted_from = coalesce(case when ${!isRestart} then counted_from end, ${first ?? null}::timestamptz)`);
  }
  return upTo < safeId || buildNextPart(tx, { now, partReceivers });
}

/**
 * An id before the next attempt, less than a batch before it, or `safeId` if there is none. A fail-over moves the ids millions ahead. It
 * looks into parts of the gap that double, because the smallest id of all would have to be sought in the whole table.
 */
async function findGapEnd(
  tx: Tx,
  { after, safeId, batchIds }: { after: number; safeId: number; batchIds: number },
): Promise<number> {
  let [end, width] = [after, batchIds];
  while (end < safeId) {
    const upTo = Math.min(end + width, safeId);
    const isEmpty =
      (await tx.query(sql`select from delivery_attempt where id > ${end} and id <= ${upTo} limit 1`))
        .length === 0;
    if (!isEmpty && width === batchIds) break;
    if (isEmpty) end = upTo;
    width = isEmpty ? 2 * width : Math.max(batchIds, Math.floor(width / 2));
  }
  return end;
}

const BITS = raw(String(COUNTER_BITS));

type Windows = readonly { period: Period; start: Date }[];

/**
 * Adds these attempts to the sums. Hours and days are counted from 1970-01-01. Everything is grouped by numbers: an origin by its lane,
 * a time by its `place`, and the buckets of both histograms by one number, which is odd for a latency. Counters are in no order, so that
 * nothing is sorted.
 */
function addAttempts(facts: Sql, windows: Windows): Sql {
  return sql`
    with facts as materialized (${facts}), times as materialized (${timesOf(windows)}), grouped as materialized (
      select shard_id, lane_id, hour, count(*) as attempts, count(*) filter (where is_failed) as failed_attempts,
        count(*) filter (where is_delivered) as delivered, count(*) filter (where is_first) as first_attempt,
        count(*) filter (where is_answered) as answered, coalesce(sum(duration_ms) filter (where is_answered), 0) as answer_ms
      from facts group by shard_id, lane_id, hour
    ), cells as materialized (
      select shard_id, lane_id, hour, latency_bucket * 2 + 1 as number, count(*) as count
      from facts where latency_bucket is not null group by shard_id, lane_id, hour, latency_bucket
      union all
      select shard_id, lane_id, hour, answer_bucket * 2, count(*)
      from facts where is_answered group by shard_id, lane_id, hour, answer_bucket
    ), lanes as materialized (
      -- A receiver has a lane in each shard of its watcher. One of them stands for all.
      select id, origin, min(id) over (partition by ${watcherOf(sql`shard_id`)}, origin) as receiver
      from lane join (select distinct lane_id as id from grouped where lane_id is not null) as g using (id)
    ), sums as (
      select shard_id, lane_id, place, ${summed(SUMMED)}
      from (${placesOf(levelsOf(sql`grouped`, { keys: sql``, sums: summed(SUMMED) }), SUMMED)}) as g group by shard_id, lane_id, place
    ), histograms as (
      select shard_id, lane_id, place,
        array_agg(${counter(sql`number / 2`, sql`count`)}) filter (where number % 2 = 1) as latencies,
        array_agg(${counter(sql`number / 2`, sql`count`)}) filter (where number % 2 = 0) as answers
      from (
        select shard_id, lane_id, place, number, sum(count)::bigint as count
        from (${placesOf(levelsOf(sql`cells`, { keys: sql`, number`, sums: summed(['count']) }), ['number', 'count'])}) as g
        group by shard_id, lane_id, place, number
      ) as c
      group by shard_id, lane_id, place
    ), changes as materialized (
      select shard_id, place, unit, started_at, case lane_id when ${ALL_LANES}::bigint then '' else l.origin end as origin, attempts,
        failed_attempts, delivered, first_attempt, answered, answer_ms, latencies, answers
      from sums s
      -- Which can't be a nested loop either. Each of these is among the sums.
      full join histograms using (shard_id, lane_id, place)
      join (select distinct place, unit, started_at from times) as p using (place)
      left join lanes l on l.id = lane_id
      where lane_id = ${ALL_LANES}::bigint or l.id is not null
    ), added as (${addChanges()}), records as materialized (
      select shard_id, watched_address_id, hour / 24 as day, hour % 24 * 4 as first, latency_bucket, count(*) as attempts,
        count(*) filter (where is_failed) as failed_attempts, count(*) filter (where is_delivered) as delivered,
        count(*) filter (where is_first) as first_attempt
      from facts where watched_address_id is not null group by shard_id, watched_address_id, hour, latency_bucket
    )
    -- The first counters of a day may name a number twice. The next addition adds both, and so does a reader.
    insert into record_delivery_sum as t (shard_id, watched_address_id, started_at, counters)
    select shard_id, watched_address_id, ${timeOf(sql`day * 24`)}, array_agg(${counter(sql`number`, sql`count`)})
    from records cross join lateral (values (first, attempts), (first + 1, failed_attempts), (first + 2, delivered),
      (first + 3, first_attempt), (${LATENCY_COUNTERS}::int + latency_bucket, delivered)) as c (number, count)
    where count > 0 and number is not null
    group by shard_id, watched_address_id, day
    on conflict (shard_id, watched_address_id, started_at) do update set counters = (
      select counters from ${addCounters(sql`t.counters || excluded.counters`)} as c)`;
}

/** Adds the rows of `changes`. Only one process at a time does, so that what it read before is still there. */
const addChanges = (): Sql => sql`
  insert into delivery_sum as t (shard_id, unit, started_at, origin, attempts, failed_attempts, delivered, first_attempt,
    answered, answer_ms, latencies, answers, latency_percentiles, answer_percentiles)
  select c.shard_id, c.unit, c.started_at, c.origin, attempts, failed_attempts, delivered, first_attempt, answered, answer_ms,
    l.counters, a.counters, ${percentilesIn(sql`case when place < 0 then l.counters end`)},
    ${percentilesIn(sql`case when place < 0 then a.counters end`)}
  from changes c
  left join lateral (
    select latencies, answers from delivery_sum o
    where o.shard_id = c.shard_id and o.unit = c.unit and o.started_at = c.started_at and o.origin = c.origin limit 1
  ) as o on true
  cross join lateral ${addCounters(sql`o.latencies || c.latencies`)} as l
  cross join lateral ${addCounters(sql`o.answers || c.answers`)} as a
  on conflict (shard_id, unit, started_at, origin) do update set attempts = t.attempts + excluded.attempts,
    failed_attempts = t.failed_attempts + excluded.failed_attempts, delivered = t.delivered + excluded.delivered,
    first_attempt = t.first_attempt + excluded.first_attempt, answered = t.answered + excluded.answered,
    answer_ms = t.answer_ms + excluded.answer_ms, latencies = excluded.latencies, answers = excluded.answers,
    latency_percentiles = excluded.latency_percentiles, answer_percentiles = excluded.answer_percentiles`;

const SUMMED = ['attempts', 'failed_attempts', 'delivered', 'first_attempt', 'answered', 'answer_ms'];
const summed = (columns: readonly string[]): Sql =>
  raw(columns.map((name) => `sum(${name})::bigint as ${name}`).join(', '));
/** Stands for the lane in the sums of all receivers. */
const ALL_LANES = 0;

/** The rows by receiver, by watcher and for all: sums by the hour and by `keys`, which begin with a comma. */
function levelsOf(rows: Sql, { keys, sums }: { keys: Sql; sums: Sql }): Sql {
  return sql`
    select shard_id, lane_id, hour${keys}, ${sums} from ${rows} where lane_id is not null group by shard_id, lane_id, hour${keys}
    union all
    select shard_id, ${ALL_LANES}::bigint, hour${keys}, ${sums} from ${rows} group by shard_id, hour${keys}
    union all
    select ${ALL_SHARDS}::bigint, ${ALL_LANES}::bigint, hour${keys}, ${sums} from ${rows} group by hour${keys}`;
}

/** The rows at each of their times. Those of windows are of all shards of a watcher. */
const placesOf = (rows: Sql, columns: readonly string[]): Sql => sql`
  select case when place < 0 then ${watcherOf(sql`shard_id`)} else shard_id end as shard_id,
    case when place < 0 then coalesce(receiver, lane_id) else lane_id end as lane_id, place, ${raw(columns.join(', '))}
  from (${rows}) as r join times using (hour) left join lanes on lanes.id = lane_id`;

/** The counters of both arrays, added. A function would take as long again for each call. */
const addCounters = (both: Sql): Sql => sql`(
    select coalesce(array_agg(entry order by entry), '{}') as counters from (
      select (e >> ${BITS} << ${BITS}) + sum(e - (e >> ${BITS} << ${BITS}))::bigint as entry
      from unnest(${both}) as e group by e >> ${BITS}) as added)`;

/** For each hour of the facts, the times of the sums that it belongs to. `place` numbers them, and is negative for windows. */
function timesOf(windows: Windows): Sql {
  const inWindows = windows.map(
    ({ period, start }, index) => sql`
    union all select hour, ${-1 - index}::bigint, ${periods[period].window}::"char", ${start}::timestamptz from hours
    where ${timeOf(sql`hour`)} >= ${start}::timestamptz`,
  );
  return sql`
    with hours as (select distinct hour from facts)
    select hour, hour * 2 as place, 'h'::"char" as unit, ${timeOf(sql`hour`)} as started_at from hours
    union all select hour, hour / 24 * 2 + 1, 'd'::"char", ${timeOf(sql`hour / 24 * 24`)} from hours
    ${inWindows.reduce((all, one) => sql`${all}${one}`, sql``)}`;
}

/** The start of an hour. */
const timeOf = (hour: Sql): Sql => sql`to_timestamp((${hour})::float8 * 3600)`;
