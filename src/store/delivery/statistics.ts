/**
 * Reads statistics of deliveries from their sums (count-deliveries.ts).
 */
import { shardOfRecord, shardsOf } from '../../domain/shard.ts';
import {
  createTimeHistogram,
  percentilesOf,
  type TimeHistogram,
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
  histogramOf,
  isWindowBuilt,
  numberOf,
  type Period,
  periods,
} from './receiver-windows.ts';
import { isInShards, listShards, shardsOfWatcher, watcherOf } from './shards.ts';

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
  const state = await readState(db, { period, now });
  const { rows, latencies } =
    scope.recordId === undefined
      ? await readSums(db, scope, { ...spans, isIn: rowsIn(period, { now, isBuilt: state.isBuilt }) })
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
    latency: percentilesOf(latencies),
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

/** Nothing has to be counted while the last id is counted. `isBuilt`: whether the window before the current unit is. */
async function readState(
  db: Db,
  { period, now }: { period: Period; now: Date },
): Promise<{ countedFrom: Date | undefined; countedUntil: Date | undefined; isBuilt: boolean }> {
  const [row] = await db.query<{
    is_all: boolean;
    counted_from: Date | null;
    counted_until: Date | null;
    is_built: boolean;
  }>(sql`
    select counted_from, counted_until, ${isWindowBuilt(period, now)} as is_built, counted_id = (
      select case when is_called then last_value else 0 end from delivery_attempt_id_seq) as is_all
    from statistics_state`);
  return {
    countedFrom: row?.counted_from ?? undefined,
    countedUntil: row?.is_all === true ? now : (row?.counted_until ?? undefined),
    isBuilt: row?.is_built === true,
  };
}

type Spans = { period: Period; starts: readonly Date[]; before: readonly Date[] };
type Sums = { rows: (DeliveryCounts & { startedAt: Date })[]; latencies: TimeHistogram };

type CountsRow = { attempts: number; failed_attempts: number; delivered: number; first_attempt: number };
const countColumns = sql`sum(attempts)::bigint as attempts, sum(failed_attempts)::bigint as failed_attempts,
  sum(delivered)::bigint as delivered, sum(first_attempt)::bigint as first_attempt`;
const toCounts = (row: CountsRow): DeliveryCounts => ({
  ...{ attempts: row.attempts, failedAttempts: row.failed_attempts },
  ...{ delivered: row.delivered, firstAttempt: row.first_attempt },
});

async function readSums(
  db: Db,
  { watcherId, origin = '' }: StatisticsScope,
  { period, starts, before, isIn }: Spans & { isIn: Sql },
): Promise<Sums> {
  const shards = watcherId === undefined ? [ALL_SHARDS] : await listShards(db, watcherId);
  const isOwn = sql`${isInShards(sql`shard_id`, shards)} and origin = ${origin}`;
  const all = [...before, ...starts];
  // One statement, so that both are of the same moment.
  const rows = await db.query<CountsRow & { started_at: Date | null; latencies: Uint8Array | null }>(sql`
    select started_at, ${countColumns}, null::bytea as latencies from delivery_sum
    where ${isOwn} and unit = ${periods[period].unit} and started_at = ${anyOf(all)} group by started_at
    union all
    select null, 0, 0, 0, 0, array_send(latencies) from delivery_sum where ${isOwn} and ${isIn}`);
  return {
    rows: rows.flatMap(({ started_at: startedAt, ...row }) =>
      startedAt === null ? [] : { startedAt, ...toCounts(row) },
    ),
    latencies: histogramOf(rows.flatMap(({ latencies }) => latencies ?? [])),
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
  return { rows: Array.from(rows, ([ms, counts]) => ({ startedAt: new Date(ms), ...counts })), latencies };
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
  slowest: sql`r.mean_ms desc nulls last, r.origin, r.watcher_id`,
  failing: sql`r.failed_attempts desc, r.attempts desc, r.origin, r.watcher_id`,
  origin: sql`r.origin, r.watcher_id`,
};

/** The current unit and the window before it or, until that is built, the full units before it. */
function rowsIn(period: Period, { now, isBuilt }: { now: Date; isBuilt: boolean }): Sql {
  const { unit, window } = periods[period];
  return isBuilt
    ? sql`unit in (${unit}, ${window}) and started_at = ${currentUnit(period, now)}`
    : sql`unit = ${unit} and started_at = ${anyOf(spansOf(period, now).starts)}`;
}

/** The receivers of a watcher or of all watchers that had attempts in the period. */
export async function readReceiverStatistics(
  db: Db,
  watcherId: number | undefined,
  { period, now, order, limit }: { period: Period; now: Date; order: ReceiverOrder; limit: number },
): Promise<ReceiverStatistics[]> {
  const { isIn, shards } = await findRows(db, watcherId === undefined ? [] : [watcherId], { period, now });
  const isOwn =
    watcherId === undefined
      ? sql`shard_id <> ${ALL_SHARDS}::bigint`
      : isInShards(sql`shard_id`, shards.get(watcherId) ?? []);
  const rows = await db.query<SumsRow & { watcher_id: number; name: string; origin: string }>(sql`
    with receivers as materialized (
      select ${watcherOf(sql`shard_id`)} as watcher_id, origin, sum(attempts::float8) as attempts,
        sum(failed_attempts::float8) as failed_attempts, sum(answer_ms::float8) / nullif(sum(answered::float8), 0) as mean_ms
      from delivery_sum where ${isOwn} and ${isIn} and origin <> '' group by 1, origin
    ), listed as materialized (
      select *, row_number() over () as place from (
        select r.watcher_id, r.origin, w.name, ${shardsOfWatcher} as shards
        from receivers r join watcher w on w.id = r.watcher_id order by ${orders[order]} limit ${limit}
      ) as first
    )
    select l.watcher_id, l.origin as origin, l.name, ${sumsOf(sql`l.place`)}
    from listed l join delivery_sum d on d.shard_id = any(l.shards) and d.origin = l.origin and ${isIn} order by l.place`);
  return [...Map.groupBy(rows, ({ place }) => place).values()].flatMap((own) =>
    own.slice(0, 1).map(({ watcher_id: id, name: watcherName, origin }) => ({
      ...{ watcherId: id, watcherName, origin },
      ...addUp(own),
    })),
  );
}

/**
 * The sums of each of these receivers; undefined for one without attempts in the period. The rows are found by their keys, however many
 * receivers a watcher has.
 */
export async function readSumsOf(
  db: Db,
  receivers: readonly ReceiverKey[],
  { period, now }: { period: Period; now: Date },
): Promise<(ReceiverSums | undefined)[]> {
  const watchers = [...new Set(receivers.map(({ watcherId }) => watcherId))];
  const { isIn, shards } = await findRows(db, watchers, { period, now });
  const keys = receivers.flatMap(({ watcherId, origin }, place) =>
    (shards.get(watcherId) ?? []).map((shard) => ({ shard, origin, place })),
  );
  const rows = await db.query<SumsRow>(sql`
    select ${sumsOf(sql`r.place`)}
    from unnest(
      ${listOf(keys.map(({ shard }) => shard))}::bigint[], ${keys.map(({ origin }) => origin)}::text[],
      ${listOf(keys.map(({ place }) => place))}::bigint[]
    ) as r (shard, receiver, place)
    join delivery_sum d on d.shard_id = r.shard and d.origin = r.receiver and ${isIn}`);
  const byPlace = Map.groupBy(rows, ({ place }) => place);
  return receivers.map((_, place) => {
    const own = byPlace.get(place);
    return own && addUp(own);
  });
}

/** Which rows are in the period, and the shards of these watchers. */
async function findRows(
  db: Db,
  watcherIds: readonly number[],
  { period, now }: { period: Period; now: Date },
): Promise<{ isIn: Sql; shards: Map<number, readonly number[]> }> {
  const rows = await db.query<{ is_built: boolean; id: number | null; slices: number }>(sql`
    select ${isWindowBuilt(period, now)} as is_built, w.id, w.slices
    from (select) as one left join watcher w on w.id = any(${listOf(watcherIds)}::bigint[])`);
  return {
    isIn: rowsIn(period, { now, isBuilt: rows[0]?.is_built === true }),
    shards: new Map(rows.flatMap(({ id, slices }) => (id === null ? [] : [[id, shardsOf(id, slices)]]))),
  };
}

type SumsRow = CountsRow & { place: number; latencies: Uint8Array; answers: Uint8Array };
const sumsOf = (
  place: Sql,
): Sql => sql`${place} as place, attempts, failed_attempts, delivered, first_attempt,
  array_send(latencies) as latencies, array_send(answers) as answers`;

/** Hundreds of new ones for a list would keep the garbage collector busy. */
const reused = createTimeHistogram();

/** The rows of one receiver. Thousands of counters as rows that PostgreSQL groups and sorts take several times as long. */
function addUp(rows: readonly SumsRow[]): ReceiverSums {
  const timesOf = (name: 'latencies' | 'answers') => {
    reused.fill(0);
    return percentilesOf(
      histogramOf(
        rows.map((row) => row[name]),
        reused,
      ),
    );
  };
  const counts = rows.map(toCounts).reduce(plus, NONE);
  return { ...counts, answer: timesOf('answers'), latency: timesOf('latencies') };
}
