/**
 * Windows: the sums of each receiver of a watcher, of each watcher and of all over a period up to the present, with their percentiles, so
 * that a read adds nothing up. Each attempt is added to them too. New ones, which begin an hour or a day later, are built once an hour
 * and once a day, in parts, under the lock of the sums.
 */
import { listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { watcherOf } from './shards.ts';

export type Period = '24h' | '30d';

const HOUR_MS = 3_600_000;
/** The unit of a period, its number of full units, and the unit of its windows in `delivery_sum`. */
export const periods = {
  '24h': { unit: 'h', unitMs: HOUR_MS, count: 24, window: 'H' },
  '30d': { unit: 'd', unitMs: 24 * HOUR_MS, count: 30, window: 'D' },
} as const;

/** Receivers of a part, of which each takes a millisecond or two. All other statements of an embedded database wait for it. */
export const PART_RECEIVERS = { postgres: 1_000, embedded: 25 };

/** Counters are entries of this size and a number. */
export const COUNTER_BITS = 40;
/** In the text of the statement, so that PostgreSQL sees equal expressions. */
const BITS = raw(String(COUNTER_BITS));
export const counter = (number: Sql, count: Sql): Sql =>
  sql`(${number}::bigint << ${BITS}) + ${count}::bigint`;
export const numberOf: Sql = sql`entry >> ${BITS}`;
export const countOf: Sql = sql`entry & ${2 ** COUNTER_BITS - 1}::bigint`;

/**
 * The percentiles of a sorted list of counters: how many times there are, and the buckets of the 50th, 95th and 99th percentile. Null
 * without counters. `percentilesOf` in domain/time-buckets.ts gives the same.
 */
export function percentilesIn(counters: Sql): Sql {
  const bucketAt = (share: number) =>
    sql`min(bucket) filter (where up_to >= ceil(total * ${raw(String(share))}::float8))`;
  return sql`(
    select case when count(*) > 0 then array[max(total)::bigint, ${bucketAt(0.5)}, ${bucketAt(0.95)}, ${bucketAt(0.99)}] end from (
      select ${numberOf} as bucket, sum((${countOf})::float8) over (order by entry) as up_to, sum((${countOf})::float8) over () as total
      from unnest(${counters}) as entry) as counted)`;
}

/** The start of the unit of this period that has not ended. */
export const currentUnit = (period: Period, now: Date): Date => unitsBefore(period, now, 0);

function unitsBefore(period: Period, now: Date, count: number): Date {
  const { unitMs } = periods[period];
  return new Date((Math.floor(now.getTime() / unitMs) - count) * unitMs);
}

/** The start of the window of this period that includes the present unit. */
const windowStart = (period: Period, now: Date): Date => unitsBefore(period, now, periods[period].count);

export const anyOf = (times: readonly Date[]): Sql =>
  sql`any(${listOf(times.map((time) => time.toISOString()))}::timestamptz[])`;

/** The start of the window that is read, with all parts built. Null before there is one. */
export const readableStart = (period: Period): Sql => sql`(
  select case when built_parts = parts then started_at else previous end from receiver_window where unit = ${periods[period].window})`;

type WindowRow = {
  unit: string;
  started_at: Date;
  previous: Date | null;
  parts: number;
  built_parts: number;
};

/** Windows to which attempts are added: the newest, and the one before as long as that is read. */
export async function listWindows(db: Db): Promise<{ period: Period; start: Date }[]> {
  return (await readRows(db)).flatMap(({ period, row }) => {
    const isBuilt = row.built_parts === row.parts;
    const starts = isBuilt || row.previous === null ? [row.started_at] : [row.started_at, row.previous];
    return starts.map((start) => ({ period, start }));
  });
}

async function readRows(db: Db): Promise<{ period: Period; row: WindowRow }[]> {
  const rows = await db.query<WindowRow>(
    sql`select unit, started_at, previous, parts, built_parts from receiver_window order by unit`,
  );
  return rows.map((row) => ({ period: row.unit === periods['24h'].window ? '24h' : '30d', row }));
}

/** The first windows. They are built, because there are no sums yet. */
export async function beginEmpty(tx: Tx, now: Date): Promise<void> {
  for (const period of ['24h', '30d'] as const)
    await tx.query(sql`
      insert into receiver_window (unit, started_at, parts, built_parts)
      values (${periods[period].window}, ${windowStart(period, now)}, 0, 0)`);
}

/** Builds the next part of a window, or begins those of a new hour or day. Returns whether more is left to build. */
export async function buildNextPart(
  tx: Tx,
  { now, partReceivers }: { now: Date; partReceivers: number },
): Promise<boolean> {
  const rows = await readRows(tx);
  for (const period of ['24h', '30d'] as const) {
    const start = windowStart(period, now);
    const row = rows.find((one) => one.period === period)?.row;
    // Also if the hour or day has passed meanwhile, because then the window before would be read for ever longer.
    if (row !== undefined && row.built_parts < row.parts) {
      await tx.query(addPart({ ...row, period }));
      await tx.query(sql`update receiver_window set built_parts = built_parts + 1 where unit = ${row.unit}`);
      return true;
    }
    if (row !== undefined && isKept(period, row, start)) continue;
    await begin(tx, { period, start, row, partReceivers });
    return true;
  }
  return false;
}

/**
 * Whether no other window is needed. After the clock was set back, one that begins too late is replaced, but not for a single unit,
 * because processes whose clocks differ a little would build two in turn at each full hour.
 */
function isKept(period: Period, { started_at: startedAt }: WindowRow, start: Date): boolean {
  const aheadMs = startedAt.getTime() - start.getTime();
  return aheadMs >= 0 && aheadMs <= periods[period].unitMs;
}

/** The rows of the receivers in the units of a window. */
const isInWindow = (period: Period, start: Date): Sql =>
  sql`unit = ${periods[period].unit} and started_at >= ${start}`;
/** A receiver has rows in each shard of its watcher. */
const watcher = watcherOf(sql`shard_id`);

/** The window before remains until the next one begins, because it is read until this one is built, and may be being read then. */
async function begin(
  tx: Tx,
  {
    period,
    start,
    row,
    partReceivers,
  }: {
    period: Period;
    start: Date;
    row: WindowRow | undefined;
    partReceivers: number;
  },
): Promise<void> {
  const unit = periods[period].window;
  if (row?.previous)
    await tx.query(sql`delete from delivery_sum where unit = ${unit} and started_at = ${row.previous}`);
  await tx.query(sql`
    insert into receiver_window as w (unit, started_at, parts, built_parts)
    select ${unit}, ${start}, ceil(count(*) / ${partReceivers}::float8)::int, 0
    from (select from delivery_sum where ${isInWindow(period, start)} group by ${watcher}, origin) as r
    on conflict (unit) do update set started_at = excluded.started_at, previous = w.started_at, parts = excluded.parts, built_parts = 0`);
}

/** Overwrites what has already been added to the receivers of this part, because it is in the units too. */
function addPart({
  period,
  started_at: start,
  parts,
  built_parts: part,
}: WindowRow & { period: Period }): Sql {
  return sql`
    with own as materialized (
      select ${watcher} as watcher_id, * from delivery_sum where ${isInWindow(period, start)}
        and (hashtextextended(origin, ${watcher}) & ${raw(String(2n ** 62n - 1n))}) % ${parts}::bigint = ${part}::bigint
    ), histograms as (
      select watcher_id, origin, array_agg(${counter(sql`number`, sql`count`)} order by number) filter (where is_latency) as latencies,
        array_agg(${counter(sql`number`, sql`count`)} order by number) filter (where not is_latency) as answers
      from (
        select watcher_id, origin, is_latency, ${numberOf} as number, sum(${countOf})::bigint as count
        from own cross join lateral (values (true, latencies), (false, answers)) as h (is_latency, counters)
        cross join lateral unnest(counters) as entry
        group by watcher_id, origin, is_latency, ${numberOf}
      ) as cells
      group by watcher_id, origin
    ), sums as (
      select watcher_id, origin, sum(attempts) as attempts, sum(failed_attempts) as failed_attempts, sum(delivered) as delivered,
        sum(first_attempt) as first_attempt, sum(answered) as answered, sum(answer_ms) as answer_ms
      from own group by watcher_id, origin
    )
    insert into delivery_sum (shard_id, unit, started_at, origin, attempts, failed_attempts, delivered, first_attempt, answered,
      answer_ms, latencies, answers, latency_percentiles, answer_percentiles)
    select watcher_id, ${periods[period].window}, ${start}::timestamptz, origin, attempts, failed_attempts, delivered, first_attempt,
      answered, answer_ms, coalesce(latencies, '{}'), coalesce(answers, '{}'), ${percentilesIn(sql`latencies`)}, ${percentilesIn(sql`answers`)}
    from sums left join histograms using (watcher_id, origin)
    on conflict (shard_id, unit, started_at, origin) do update set attempts = excluded.attempts,
      failed_attempts = excluded.failed_attempts, delivered = excluded.delivered, first_attempt = excluded.first_attempt,
      answered = excluded.answered, answer_ms = excluded.answer_ms, latencies = excluded.latencies, answers = excluded.answers,
      latency_percentiles = excluded.latency_percentiles, answer_percentiles = excluded.answer_percentiles`;
}
