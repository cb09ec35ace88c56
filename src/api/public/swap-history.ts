/**
 * Routes for the hourly volume and price of swap pairs.
 */
import Type from 'typebox';
import type { Clock } from '../../core/clock.ts';
import { exactNumber } from '../../core/decimal.ts';
import { findIsoTime } from '../../core/iso-time.ts';
import type { ValuedPair } from '../../domain/pair.ts';
import type { Database } from '../../store/db/db.ts';
import { listPriceHours } from '../../store/market/pair-states.ts';
import { listVolumeHours } from '../../store/market/swaps.ts';
import type { Api } from '../context.ts';
import { limitParameter } from '../http/paging.ts';
import { type Parsed, parameter } from '../http/parameters.ts';
import { addPublicRoute, json } from '../http/public.ts';
import { getPair, PAIR_ID, pairErrors } from './pair-parameter.ts';

const CACHE_SECONDS = 60;
const HOUR_MS = 60 * 60 * 1000;
/** A year of hours. */
const HOURS_MAX = 8_784;
const HOURS_DEFAULT = 168;

const hourAfter = (description: string) =>
  parameter('a time such as 2026-01-31T12:00:00Z', parseHour, Type.String({ description }));

const parameters = {
  pair_id: PAIR_ID,
  from: hourAfter('The first hour, in ISO 8601.'),
  until: hourAfter('The end of the last hour, in ISO 8601. Default: now.'),
  to: { ...hourAfter('The same as `until`.'), aliasOf: 'until' },
  limit: limitParameter(
    HOURS_MAX,
    Type.String({ description: `The maximum number of hours, up to ${HOURS_MAX}.` }),
  ),
};

const VolumeHour = Type.Object({
  hour: Type.String({ description: 'The beginning of the hour, in ISO 8601 UTC.' }),
  volume: Type.Number({ description: 'In USD.' }),
  swaps: Type.Integer(),
});

const PriceHour = Type.Object({
  hour: Type.String({ description: 'The beginning of the hour, in ISO 8601 UTC.' }),
  price: Type.Union([Type.Number(), Type.Null()]),
});

type Options = { database: Database; clock: Clock; pairs: ReadonlyMap<string, ValuedPair> };

/** `pairs` by id. */
export function addSwapHistoryRoutes(api: Api, { database, clock, pairs }: Options): void {
  const shared = {
    errors: pairErrors('Pair'),
    parameters,
    cacheSeconds: CACHE_SECONDS,
    at: () => ceilHour(clock.now()),
  };

  addPublicRoute(api, {
    ...shared,
    path: '/api/swap/volume-history/:pair_id?',
    example: [{ hour: '2026-01-31T12:00:00.000Z', volume: 1250.5, swaps: 12 }],
    summary: 'USD swap volume of a pair by the hour',
    answer: Type.Array(VolumeHour),
    async compute(given, now) {
      const pair = getPair(pairs, given.pair_id, 'Pair not found');
      const hours = await listVolumeHours(database, pair.id, rangeOf(given, now));
      return json(
        hours.map(({ hour, usdValue, swapCount }) => ({
          hour: hour.toISOString(),
          volume: exactNumber(usdValue),
          swaps: swapCount,
        })),
      );
    },
  });

  addPublicRoute(api, {
    ...shared,
    path: '/api/swap/price-history/:pair_id?',
    example: [{ hour: '2026-01-31T12:00:00.000Z', price: 2500.25 }],
    summary: 'Price of a pair at the end of each hour in which it changed',
    answer: Type.Array(PriceHour),
    async compute(given, now) {
      const pair = getPair(pairs, given.pair_id, 'Pair not found');
      const hours = await listPriceHours(database, pair.id, rangeOf(given, now));
      return json(
        hours.map(({ hour, price }) => ({
          hour: hour.toISOString(),
          price: price === undefined ? null : exactNumber(price),
        })),
      );
    },
  });
}

/** Whole hours. Without `from`, the last `limit` hours before `until`. */
function rangeOf(
  { from, until, to: sameAsUntil, limit = HOURS_DEFAULT }: Parsed<typeof parameters>,
  now: Date,
) {
  const to = until ?? sameAsUntil ?? now;
  return { from: from ?? new Date(to.getTime() - limit * HOUR_MS), to, limit };
}

/** The first full hour at or after the time. */
function parseHour(text: string): Date | undefined {
  const time = findIsoTime(text);
  return time && ceilHour(time);
}

const ceilHour = (time: Date) => new Date(Math.ceil(time.getTime() / HOUR_MS) * HOUR_MS);
