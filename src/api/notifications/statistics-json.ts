/**
 * Statistics of deliveries as JSON, and their parameters, for watchers and for the operator.
 */
import { type Static, Type } from 'typebox';
import type { TimePercentiles } from '../../domain/time-buckets.ts';
import {
  type DeliveryCounts,
  type DeliveryStatistics,
  type Period,
  type ReceiverStatistics,
  type ReceiverSums,
  receiverOrders,
} from '../../store/delivery/statistics.ts';
import { invalid } from '../http/errors.ts';
import { limitParameter } from '../http/paging.ts';
import { oneOf, type Parsed, parameter } from '../http/parameters.ts';
import { parseUuid, RECEIVER } from './log-query.ts';

const RECEIVERS_MAX = 100;
const periods = ['24h', '30d'] as const;

export const PERIOD_DEFAULT = '24h';
export const PERIOD = parameter(
  '24h or 30d',
  oneOf(periods),
  Type.String({
    description:
      '`24h` (the default): the last 24 full hours and the current one. `30d`: the last 30 full days (UTC) and the current one.',
  }),
);
export const statisticsParameters = {
  period: PERIOD,
  watched_address_id: parameter('a UUID', parseUuid),
  origin: RECEIVER,
};
export const receiverStatisticsParameters = {
  period: PERIOD,
  order: parameter(
    `one of ${receiverOrders.join(', ')}`,
    oneOf(receiverOrders),
    Type.String({
      description:
        '`slowest` (the default): by the average duration of answers. `failing`: by failed attempts. `origin`: by name.',
    }),
  ),
  limit: limitParameter(RECEIVERS_MAX),
};
export const RECEIVERS_DEFAULT = RECEIVERS_MAX;

/** @throws Fault `invalid` for both a watched address and a receiver: the sums of a watched address are of all its receivers. */
export function requireOneScope(given: Parsed<typeof statisticsParameters>): void {
  if (given.watched_address_id !== undefined && given.origin !== undefined)
    throw invalid('/origin', 'is for all watched addresses: give it or watched_address_id');
}

const countFields = {
  attempts: Type.Integer(),
  failed_attempts: Type.Integer(),
  delivered: Type.Integer({
    description:
      'Messages that got their first 2xx. A redelivery is not counted again. A removal notice is another message.',
  }),
  first_attempt: Type.Integer({ description: 'Those of them that got it with their first attempt.' }),
};
const Counts = Type.Object(countFields, { title: 'DeliveryCounts' });
const Latency = Type.Object(
  {
    count: Type.Integer(),
    p50_ms: Type.Integer(),
    p95_ms: Type.Integer(),
    p99_ms: Type.Integer(),
  },
  {
    title: 'Latency',
    description: 'Percentiles, as upper bounds of buckets that are at most 10 % wide.',
  },
);
const LatencyOrNull = Type.Union([Latency, Type.Null()]);

export const StatisticsJson = Type.Object(
  {
    period: Type.Enum([...periods]),
    from: Type.String({ description: 'Start of the first hour or day.' }),
    until: Type.String({ description: 'The time of the response.' }),
    counted_until: Type.Union([Type.String(), Type.Null()], {
      description:
        'All attempts that were recorded before this time are counted. It is a few seconds ago. Null before the first count, and while the sums are built again.',
    }),
    totals: Counts,
    previous: Type.Union([Counts, Type.Null()], {
      description: 'The 24 hours or 30 days before. Null if attempts have not been counted for that long.',
    }),
    buckets: Type.Array(Type.Object({ from: Type.String(), ...countFields }, { title: 'DeliveryBucket' }), {
      description:
        'Each hour or day of the period, the oldest first. Attempts count in the hour in which they started.',
    }),
    latency: Type.Union([Latency, Type.Null()], {
      description:
        'From the creation of a notification, when its block was stored, to its first 2xx. Leaves out notifications that were held, and removal notices. For a watched address, it covers whole days.',
    }),
  },
  { title: 'DeliveryStatistics' },
);
export const ReceiverSumsJson = Type.Object(
  {
    ...countFields,
    answer: Type.Union([Latency, Type.Null()], {
      description: 'Duration of the attempts that were answered.',
    }),
    latency: LatencyOrNull,
  },
  { title: 'ReceiverSums' },
);
export const ReceiverStatisticsJson = Type.Object(
  {
    origin: Type.String({ description: 'Scheme, host and port of the webhook URLs.' }),
    ...ReceiverSumsJson.properties,
  },
  { title: 'ReceiverStatistics' },
);

const latencyJson = (times: TimePercentiles | undefined): Static<typeof LatencyOrNull> =>
  times === undefined
    ? null
    : { count: times.count, p50_ms: times.p50Ms, p95_ms: times.p95Ms, p99_ms: times.p99Ms };

const countsJson = ({ attempts, failedAttempts, delivered, firstAttempt }: DeliveryCounts) => ({
  ...{ attempts, failed_attempts: failedAttempts, delivered, first_attempt: firstAttempt },
});

export function statisticsJson(
  statistics: DeliveryStatistics,
  { period, now }: { period: Period; now: Date },
): Static<typeof StatisticsJson> {
  const { from, countedUntil, totals, previous, buckets, latency } = statistics;
  return {
    ...{ period, from: from.toISOString(), until: now.toISOString() },
    counted_until: countedUntil?.toISOString() ?? null,
    totals: countsJson(totals),
    previous: previous === undefined ? null : countsJson(previous),
    buckets: buckets.map((bucket) => ({ from: bucket.from.toISOString(), ...countsJson(bucket) })),
    latency: latencyJson(latency),
  };
}

export const receiverSumsJson = (sums: ReceiverSums): Static<typeof ReceiverSumsJson> => ({
  ...countsJson(sums),
  answer: latencyJson(sums.answer),
  latency: latencyJson(sums.latency),
});

export const receiverStatisticsJson = (one: ReceiverStatistics): Static<typeof ReceiverStatisticsJson> => ({
  origin: one.origin,
  ...receiverSumsJson(one),
});

const counts = { attempts: 1_210, failed_attempts: 14, delivered: 1_196, first_attempt: 1_188 };
const latency = { count: 1_196, p50_ms: 86, p95_ms: 270, p99_ms: 1_410 };
export const statisticsExample = {
  ...{ period: '24h', from: '2026-01-30T12:00:00.000Z', until: '2026-01-31T12:10:00.000Z' },
  ...{ counted_until: '2026-01-31T12:09:56.000Z', totals: counts, previous: null },
  ...{ buckets: [{ from: '2026-01-30T12:00:00.000Z', ...counts }], latency },
};
export const receiverStatisticsExample = {
  ...{ origin: 'https://hooks.acme.example:443', ...counts, latency },
  answer: { count: 1_210, p50_ms: 38, p95_ms: 94, p99_ms: 330 },
};
