/**
 * Windows: the sums of each receiver, of each shard and of all over all full hours or days of a period, so that a histogram is in two rows
 * instead of 25 or 31. They are built once an hour and once a day, in parts, under the lock of the sums.
 */

import { createTimeHistogram, type TimeHistogram } from '../../domain/time-buckets.ts';
import { listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { raw, type Sql, sql } from '../db/sql.ts';

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
/** The high word of a counter is this times its number, and the bits of its count above the low word. */
const HIGH = 2 ** (COUNTER_BITS - 32);
/** In the text of the statement, so that PostgreSQL sees equal expressions. */
const BITS = raw(String(COUNTER_BITS));
export const counter = (number: Sql, count: Sql): Sql =>
  sql`(${number}::bigint << ${BITS}) + ${count}::bigint`;
export const numberOf: Sql = sql`entry >> ${BITS}`;
export const countOf: Sql = sql`entry & ${2 ** COUNTER_BITS - 1}::bigint`;

/**
 * The histogram of these lists of counters, as `array_send` gives them: a header of 20 bytes, then each entry as its length in 4
 * bytes and its value in 8. In this form a thousand entries take a fraction of the time of their text. `histogram` is empty.
 */
export function histogramOf(
  lists: readonly Uint8Array[],
  histogram: TimeHistogram = createTimeHistogram(),
): TimeHistogram {
  for (const { buffer, byteOffset, byteLength } of lists) {
    const view = new DataView(buffer, byteOffset, byteLength);
    for (let at = 20 + 4; at < byteLength; at += 4 + 8) {
      const high = view.getUint32(at);
      const bucket = Math.floor(high / HIGH);
      const count = (high % HIGH) * 2 ** 32 + view.getUint32(at + 4);
      histogram[bucket] = (histogram[bucket] ?? 0) + count;
    }
  }
  return histogram;
}

/** The start of the unit of this period that has not ended. */
export const currentUnit = (period: Period, now: Date): Date => unitsBefore(period, now, 0);

function unitsBefore(period: Period, now: Date, count: number): Date {
  const { unitMs } = periods[period];
  return new Date((Math.floor(now.getTime() / unitMs) - count) * unitMs);
}

export const anyOf = (times: readonly Date[]): Sql =>
  sql`any(${listOf(times.map((time) => time.toISOString()))}::timestamptz[])`;

/** A window ends before `until`, the start of a unit. */
export type Window = { period: Period; from: Date; until: Date; isBuilt: boolean };

/** Whether the window that ends where the current unit begins can be read. */
export const isWindowBuilt = (period: Period, now: Date): Sql => sql`exists (
  select from receiver_window where unit = ${periods[period].window} and until = ${currentUnit(period, now)} and built_parts = parts)`;

type WindowRow = { unit: string; until: Date; previous: Date | null; parts: number; built_parts: number };

export async function listWindows(db: Db): Promise<Window[]> {
  return (await readRows(db)).map(({ period, row }) => ({
    ...{ period, until: row.until, isBuilt: row.built_parts === row.parts },
    from: unitsBefore(period, row.until, periods[period].count),
  }));
}

async function readRows(db: Db): Promise<{ period: Period; row: WindowRow }[]> {
  const rows = await db.query<WindowRow>(
    sql`select unit, until, previous, parts, built_parts from receiver_window order by unit`,
  );
  return rows.map((row) => ({ period: row.unit === periods['24h'].window ? '24h' : '30d', row }));
}

/** Begins the windows of a new hour or day, or builds the next part of one. Returns whether more is left to build. */
export async function buildNextPart(
  tx: Tx,
  { now, partReceivers }: { now: Date; partReceivers: number },
): Promise<boolean> {
  const rows = await readRows(tx);
  for (const period of ['24h', '30d'] as const) {
    const until = currentUnit(period, now);
    const row = rows.find((one) => one.period === period)?.row;
    if (row === undefined || row.until < until) {
      await begin(tx, { period, until, row, partReceivers });
      return true;
    }
    if (row.until > until || row.built_parts === row.parts) continue;
    await tx.query(addPart({ ...row, period }));
    await tx.query(sql`update receiver_window set built_parts = built_parts + 1 where unit = ${row.unit}`);
    return true;
  }
  return false;
}

/** The rows of the receivers in the full units before `until`. */
function isInWindow(period: Period, until: Date): Sql {
  const { unit, count } = periods[period];
  const starts = Array.from({ length: count }, (_, index) => unitsBefore(period, until, index + 1));
  return sql`unit = ${unit} and started_at = ${anyOf(starts)}`;
}

/** The windows before remain until the next ones begin, because they may be being read. */
async function begin(
  tx: Tx,
  {
    period,
    until,
    row,
    partReceivers,
  }: {
    period: Period;
    until: Date;
    row: WindowRow | undefined;
    partReceivers: number;
  },
): Promise<void> {
  const unit = periods[period].window;
  if (row?.previous)
    await tx.query(sql`delete from delivery_sum where unit = ${unit} and started_at = ${row.previous}`);
  await tx.query(sql`
    insert into receiver_window as w (unit, until, parts, built_parts)
    select ${unit}, ${until}, ceil(count(*) / ${partReceivers}::float8)::int, 0
    from (select from delivery_sum where ${isInWindow(period, until)} group by shard_id, origin) as r
    on conflict (unit) do update set until = excluded.until, previous = w.until, parts = excluded.parts, built_parts = 0`);
}

/** Overwrites what late attempts have already added to the windows of this part, because it is in the full units too. */
function addPart({ period, until, parts, built_parts: part }: WindowRow & { period: Period }): Sql {
  return sql`
    with own as materialized (
      select * from delivery_sum where ${isInWindow(period, until)}
        and (hashtextextended(origin, shard_id) & ${raw(String(2n ** 62n - 1n))}) % ${parts}::bigint = ${part}::bigint
    ), histograms as (
      select shard_id, origin, array_agg(${counter(sql`number`, sql`count`)} order by number) filter (where is_latency) as latencies,
        array_agg(${counter(sql`number`, sql`count`)} order by number) filter (where not is_latency) as answers
      from (
        select shard_id, origin, is_latency, ${numberOf} as number, sum(${countOf})::bigint as count
        from own cross join lateral (values (true, latencies), (false, answers)) as h (is_latency, counters)
        cross join lateral unnest(counters) as entry
        group by shard_id, origin, is_latency, ${numberOf}
      ) as cells
      group by shard_id, origin
    ), sums as (
      select shard_id, origin, sum(attempts) as attempts, sum(failed_attempts) as failed_attempts, sum(delivered) as delivered,
        sum(first_attempt) as first_attempt, sum(answered) as answered, sum(answer_ms) as answer_ms
      from own group by shard_id, origin
    )
    insert into delivery_sum (shard_id, unit, started_at, origin, attempts, failed_attempts, delivered, first_attempt, answered,
      answer_ms, latencies, answers)
    select shard_id, ${periods[period].window}, ${until}::timestamptz, origin, attempts, failed_attempts, delivered, first_attempt,
      answered, answer_ms, coalesce(latencies, '{}'), coalesce(answers, '{}')
    from sums left join histograms using (shard_id, origin)
    on conflict (shard_id, unit, started_at, origin) do update set attempts = excluded.attempts,
      failed_attempts = excluded.failed_attempts, delivered = excluded.delivered, first_attempt = excluded.first_attempt,
      answered = excluded.answered, answer_ms = excluded.answer_ms, latencies = excluded.latencies, answers = excluded.answers`;
}
