/**
 * Reads statistics of deliveries from their sums (count-deliveries.ts).
 */
import { shardOfRecord } from '../../domain/shard.ts';
import {
  boundOf,
  createTimeHistogram,
  percentilesOf,
  type TimePercentiles,
} from '../../domain/time-buckets.ts';
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { ALL_SHARDS, LATENCY_COUNTERS, recordCounters } from './count-deliveries.ts';
import {
  anyOf,
  countOf,
  currentUnit,
  numberOf,
  type Period,
  periods,
  readableStart,
} from './receiver-windows.ts';
import { isInShards, listShards } from './shards.ts';

export type { Period } from './receiver-windows.ts';

export type DeliveryCounts = {
  attempts: number;
  failedAttempts: number;
  /** Messages that got their first 2xx. */
  delivered: number;
  /** Those of them that got it with their first attempt. */
  firstAttempt: number;
};

/** A watcher, one of its receivers or of its records; all watchers if empty. */
export type StatisticsScope = {
  watcherId?: number | undefined;
  origin?: string | undefined;
  recordId?: string | undefined;
};

export type DeliveryStatistics = {
  from: Date;
  /** All attempts recorded before this time are counted; undefined until the first count. */
  countedUntil: Date | undefined;
  totals: DeliveryCounts;
  /** The full hours or days before; undefined if attempts were not counted from then on. */
  previous: DeliveryCounts | undefined;
  buckets: (DeliveryCounts & { from: Date })[];
  /** From the creation of notifications that were not held to their first 2xx. */
  latency: TimePercentiles | undefined;
};

const HOUR_MS = 3_600_000;
/** Sums are kept for two periods of 30 days, and the current day. */
export const STATISTICS_RETENTION_MS = 62 * 24 * HOUR_MS;

/** Starts of the units of the period, the oldest first, and of the same number of full units before it. */
function spansOf(period: Period, now: Date): { starts: Date[]; before: Date[] } {
  const { unitMs, count } = periods[period];
  const current = currentUnit(period, now).getTime();
  const list = (length: number, last: number) =>
    Array.from({ length }, (_, index) => new Date(last - (length - 1 - index) * unitMs));
  const starts = list(count + 1, current);
  return { starts, before: list(count, current - (count + 1) * unitMs) };
}

/** The statistics of the last full hours (24h) or days (30d) and the current one. Each takes a few milliseconds. */
export async function readStatistics(
  db: Db,
  scope: StatisticsScope,
  { period, now }: { period: Period; now: Date },
): Promise<DeliveryStatistics> {
  const { starts, before } = spansOf(period, now);
  const spans = { period, starts, before };
  // Before the sums, which may have more by the time they are read.
  const state = await readState(db, now);
  const { rows, latency } =
    scope.recordId === undefined
      ? await readSums(db, scope, spans)
      : await readRecordSums(db, { ...scope, recordId: scope.recordId }, spans);
  const byStart = new Map(rows.map((row) => [row.startedAt.getTime(), row]));
  const at = (start: Date): DeliveryCounts => byStart.get(start.getTime()) ?? NONE;
  const [from = now] = starts;
  const hasBefore = state.countedFrom !== undefined && state.countedFrom <= (before[0] ?? from);
  return {
    from,
    countedUntil: state.countedUntil,
    totals: starts.map(at).reduce(plus, NONE),
    previous: hasBefore ? before.map(at).reduce(plus, NONE) : undefined,
    buckets: starts.map((start) => ({ from: start, ...countsOf(at(start)) })),
    latency,
  };
}

const NONE: DeliveryCounts = { attempts: 0, failedAttempts: 0, delivered: 0, firstAttempt: 0 };
const countsOf = ({ attempts, failedAttempts, delivered, firstAttempt }: DeliveryCounts): DeliveryCounts => ({
  ...{ attempts, failedAttempts, delivered, firstAttempt },
});
const plus = (one: DeliveryCounts, other: DeliveryCounts): DeliveryCounts => ({
  attempts: one.attempts + other.attempts,
  failedAttempts: one.failedAttempts + other.failedAttempts,
  delivered: one.delivered + other.delivered,
  firstAttempt: one.firstAttempt + other.firstAttempt,
});

/** Nothing has to be counted while the last id is counted. Without a counted id, the sums are about to be built again. */
async function readState(
  db: Db,
  now: Date,
): Promise<{ countedFrom: Date | undefined; countedUntil: Date | undefined }> {
  const [row] = await db.query<{
    is_all: boolean;
    counted_id: number | null;
    counted_from: Date | null;
    counted_until: Date | null;
    is_replica: boolean;
  }>(sql`
    select counted_id, counted_from, case when counted_id is not null then counted_until end as counted_until,
      counted_id = (select case when is_called then last_value else 0 end from delivery_attempt_id_seq) as is_all,
      pg_is_in_recovery() as is_replica
    from statistics_state`);
  const countedId = row?.counted_id ?? undefined;
  // A replica shows the sequence up to 32 ids ahead, so its last id says nothing there.
  const isReplica = row?.is_replica === true && countedId !== undefined && db.isDistributed !== true;
  const isAll = isReplica ? !(await hasAfter(db, countedId)) : row?.is_all === true;
  return {
    countedFrom: row?.counted_from ?? undefined,
    countedUntil: isAll ? now : (row?.counted_until ?? undefined),
  };
}

/** Whether attempts above this id are stored. The id is a parameter, so that the planner knows how few they are. */
async function hasAfter(db: Db, countedId: number): Promise<boolean> {
  const rows = await db.query(sql`select from delivery_attempt where id > ${countedId} limit 1`);
  return rows.length > 0;
}

type Spans = { period: Period; starts: readonly Date[]; before: readonly Date[] };
type Sums = {
  rows: (DeliveryCounts & { startedAt: Date })[];
  latency: TimePercentiles | undefined;
};

type CountsRow = { attempts: number; failed_attempts: number; delivered: number; first_attempt: number };
const countColumns = sql`sum(attempts)::bigint as attempts, sum(failed_attempts)::bigint as failed_attempts,
  sum(delivered)::bigint as delivered, sum(first_attempt)::bigint as first_attempt`;
const toCounts = (row: CountsRow): DeliveryCounts => ({
  ...{ attempts: row.attempts, failedAttempts: row.failed_attempts },
  ...{ delivered: row.delivered, firstAttempt: row.first_attempt },
});

/** How many times there are, and the buckets of three percentiles (receiver-windows.ts). */
type Percentiles = [count: number, p50: number, p95: number, p99: number];
const toPercentiles = (row: Percentiles | null): TimePercentiles | undefined =>
  row === null
    ? undefined
    : { count: row[0], p50Ms: boundOf(row[1]), p95Ms: boundOf(row[2]), p99Ms: boundOf(row[3]) };

async function readSums(
  db: Db,
  { watcherId, origin = '' }: StatisticsScope,
  { period, starts, before }: Spans,
): Promise<Sums> {
  const { unit, window } = periods[period];
  const shards = watcherId === undefined ? [ALL_SHARDS] : await listShards(db, watcherId);
  const all = [...before, ...starts];
  // One statement, so that both are of the same moment.
  const rows = await db.query<CountsRow & { started_at: Date | null; latency: Percentiles | null }>(sql`
    select started_at, ${countColumns}, null::float8[] as latency from delivery_sum
    where ${isInShards(sql`shard_id`, shards)} and origin = ${origin} and unit = ${unit} and started_at = ${anyOf(all)}
    group by started_at
    union all
    select null, 0, 0, 0, 0, latency_percentiles::float8[] from delivery_sum
    where shard_id = ${watcherId ?? ALL_SHARDS} and origin = ${origin} and unit = ${window} and started_at = ${readableStart(period)}`);
  return {
    rows: rows.flatMap(({ started_at: startedAt, ...row }) =>
      startedAt === null ? [] : { startedAt, ...toCounts(row) },
    ),
    latency: toPercentiles(rows.find(({ started_at: startedAt }) => startedAt === null)?.latency ?? null),
  };
}

/** A record's sums are by day, with counters for each hour. Its latencies are those of the days of the period. */
async function readRecordSums(
  db: Db,
  { watcherId, recordId }: StatisticsScope & { recordId: string },
  { period, starts, before }: Spans,
): Promise<Sums> {
  if (watcherId === undefined) throw new Error('a record belongs to a watcher');
  const isHourly = period === '24h';
  const day = (time: Date) => Math.floor(time.getTime() / (24 * HOUR_MS)) * 24 * HOUR_MS;
  const days = [...new Set([...before, ...starts].map(day))].map((ms) => new Date(ms));
  const firstDay = new Date(day(starts[0] ?? new Date(0)));
  // Days don't need the hour of a counter.
  const number = isHourly
    ? numberOf
    : sql`case when ${numberOf} < ${LATENCY_COUNTERS}::bigint then ${numberOf} & 3 else ${numberOf} end`;
  const counters = await db.query<{ started_at: Date; number: number; count: number }>(sql`
    select started_at, ${number} as number, sum(${countOf})::bigint as count
    from record_delivery_sum cross join lateral unnest(counters) as entry
    where shard_id = ${shardOfRecord(watcherId, recordId)} and watched_address_id = ${recordId} and started_at = ${anyOf(days)}
    group by 1, 2 order by 1, 2`);
  const rows = new Map<number, DeliveryCounts>();
  const latencies = createTimeHistogram();
  for (const one of counters) {
    const bucket = one.number - LATENCY_COUNTERS;
    if (bucket >= 0) {
      if (one.started_at >= firstDay) latencies[bucket] = (latencies[bucket] ?? 0) + one.count;
      continue;
    }
    const name = recordCounters[one.number % recordCounters.length];
    if (name === undefined) continue;
    const hour = isHourly ? Math.floor(one.number / recordCounters.length) : 0;
    const startMs = one.started_at.getTime() + hour * HOUR_MS;
    const counts = rows.get(startMs) ?? NONE;
    rows.set(startMs, { ...counts, [name]: counts[name] + one.count });
  }
  return {
    rows: Array.from(rows, ([ms, counts]) => ({ startedAt: new Date(ms), ...counts })),
    latency: percentilesOf(latencies),
  };
}

/** Two watchers may use one origin: each has a receiver there. */
type ReceiverKey = { watcherId: number; origin: string };

export type ReceiverSums = DeliveryCounts & {
  /** Durations of attempts that were answered. */
  answer: TimePercentiles | undefined;
  latency: TimePercentiles | undefined;
};
export type ReceiverStatistics = ReceiverKey & ReceiverSums & { watcherName: string };

export const receiverOrders = ['slowest', 'failing', 'origin'] as const;
type ReceiverOrder = (typeof receiverOrders)[number];

/** slowest: by the average duration of answers. failing: by the number of failed attempts. */
const orders: Record<ReceiverOrder, Sql> = {
  slowest: sql`answer_ms::float8 / nullif(answered, 0) desc nulls last, origin, shard_id`,
  failing: sql`failed_attempts desc, attempts desc, origin, shard_id`,
  origin: sql`origin, shard_id`,
};

/** The receivers of a watcher or of all watchers that had attempts in the period. */
export async function readReceiverStatistics(
  db: Db,
  watcherId: number | undefined,
  { period, order, limit }: { period: Period; order: ReceiverOrder; limit: number },
): Promise<ReceiverStatistics[]> {
  const isOwn =
    watcherId === undefined ? sql`shard_id <> ${ALL_SHARDS}::bigint` : sql`shard_id = ${watcherId}`;
  const rows = await db.query<SumsRow & { watcher_id: number; name: string; origin: string }>(sql`
    select w.id as watcher_id, w.name, d.origin, ${sumsOf}
    from delivery_sum d join watcher w on w.id = d.shard_id
    where ${isOwn} and ${isInWindow(period)} and origin <> '' order by ${orders[order]} limit ${limit}`);
  return rows.map((row) => ({
    ...{ watcherId: row.watcher_id, watcherName: row.name, origin: row.origin },
    ...toSums(row),
  }));
}

/**
 * The sums of each of these receivers; undefined for one without attempts in the period. The rows are found by their keys, however many
 * receivers a watcher has.
 */
export async function readSumsOf(
  db: Db,
  receivers: readonly ReceiverKey[],
  period: Period,
): Promise<(ReceiverSums | undefined)[]> {
  const rows = await db.query<SumsRow & { place: number }>(sql`
    select r.place - 1 as place, ${sumsOf}
    from unnest(
      ${listOf(receivers.map(({ watcherId }) => watcherId))}::bigint[], ${receivers.map(({ origin }) => origin)}::text[]
    ) with ordinality as r (watcher_id, receiver, place)
    join delivery_sum d on d.shard_id = r.watcher_id and d.origin = r.receiver and ${isInWindow(period)}`);
  const byPlace = new Map(rows.map((row) => [row.place, toSums(row)]));
  return receivers.map((_, place) => byPlace.get(place));
}

const isInWindow = (period: Period): Sql =>
  sql`unit = ${periods[period].window} and started_at = ${readableStart(period)}`;

type SumsRow = CountsRow & { latency: Percentiles | null; answer: Percentiles | null };
const sumsOf = sql`attempts, failed_attempts, delivered, first_attempt,
  latency_percentiles::float8[] as latency, answer_percentiles::float8[] as answer`;
const toSums = (row: SumsRow): ReceiverSums => ({
  ...toCounts(row),
  ...{ answer: toPercentiles(row.answer), latency: toPercentiles(row.latency) },
});
