/**
 * Statistics of swap pairs: volume and LP value (spec 4.3), and beside them the list of pairs and hourly histories.
 */
import type { FastifyRequest } from 'fastify';
import Type, { type Static } from 'typebox';
import type { Clock } from '../../core/clock.ts';
import { type Decimal, exactNumber } from '../../core/decimal.ts';
import { Fault } from '../../core/fault.ts';
import { findIsoTime } from '../../core/iso-time.ts';
import { lpPrice, supplyWithFee, type TokenValue, type ValuedPair } from '../../domain/pair.ts';
import type { Database } from '../../store/db/db.ts';
import { listPriceHours } from '../../store/market/market.ts';
import { findPairNow, type PairNow } from '../../store/market/pair-readings.ts';
import { findReadPairs } from '../../store/market/pairs.ts';
import { listVolumeHours, sumSwapValue } from '../../store/market/swaps.ts';
import { findCurrentPrice } from '../../store/prices/prices.ts';
import type { Api } from '../context.ts';
import { readOptional } from '../http/parameters.ts';
import { addPublicRoute, json, type PublicAnswer } from '../http/public.ts';

type SwapOptions = { database: Database; clock: Clock; pairs: readonly ValuedPair[] };

const DAY_MS = 24 * 60 * 60 * 1000;
const CACHE_SECONDS = 60;
/** For how long an old LP value is given while a new one is made. */
const STALE_SECONDS = 60;
const INCOMPLETE_SECONDS = 5;
const COMPLETE_HEADER = 'chainbell-volume-complete';
const answerHeaders = {
  [COMPLETE_HEADER]: `\`false\` while blocks of the past 24 hours are still to be read: then vol24h is what was read so far, and is kept for ${INCOMPLETE_SECONDS} seconds.`,
};

const PairId = Type.Object({ pair_id: Type.Optional(Type.String({ description: 'The id of the pair.' })) });

const Volume = Type.Object({
  vol24h: Type.Number({ description: 'USD swap volume over the past 24 hours.' }),
  pair: Type.String(),
});

const LpValue = Type.Object({
  latestPrice: Type.Number({
    description: 'Units of the token that gives the USD value, for one of the other.',
  }),
  lpPriceInUsd: Type.Number({ description: 'Estimated USD value of one LP token.' }),
  pair: Type.String(),
});

const errorsOf = (what: string) => ({ 400: 'Missing id parameter', 404: `${what} not found` });
const EXAMPLE_PAIR = {
  id: 2,
  name: 'USDT/ETH',
  address: `0x${'aa'.repeat(20)}`,
  token0: `0x${'11'.repeat(20)}`,
  token1: `0x${'22'.repeat(20)}`,
  token0_decimals: 6,
  token1_decimals: 18,
  fee: 300,
  usd_value_from: 0,
  reward_pid: 1,
  reserve0: '2500250000',
  reserve1: '1000000000000000000',
  lp_supply: '50000000000000',
  latestPrice: 2500.25,
  lpPriceInUsd: 100.01,
  vol24h: 18_250.75,
  updated_at: '2026-01-31T12:00:00.000Z',
};

/** @throws Fault of each route as spec 7 says. */
export function addSwapRoutes(api: Api, { database, clock, pairs }: SwapOptions): void {
  const byId = new Map(pairs.map((pair) => [String(pair.id), pair]));
  const getPair = (id: string, message: string): ValuedPair => {
    const pair = byId.get(id);
    if (pair === undefined) throw new Fault('not_found', message);
    return pair;
  };
  const priceOf = async (value: TokenValue): Promise<Decimal | undefined> => {
    if (value === undefined) return undefined;
    if ('fixed' in value) return value.fixed;
    const { asset, maxAgeMs } = value;
    return (await findCurrentPrice(database, asset, { now: clock.now(), maxAgeMs }))?.price;
  };
  const volumeOf = (pair: ValuedPair): Promise<Decimal> => {
    const until = clock.now();
    return sumSwapValue(database, pair.id, { after: new Date(until.getTime() - DAY_MS), until });
  };
  /** Undefined while the supply, or a price that there will be, is not known. */
  const lpPriceOf = async (pair: ValuedPair, now: PairNow): Promise<Decimal | undefined> => {
    if (now.supply === undefined) return undefined;
    const [usd0, usd1] = [await priceOf(pair.value0), await priceOf(pair.value1)];
    const isOpen = usd0 === undefined && usd1 === undefined && (pair.value0 ?? pair.value1) !== undefined;
    if (isOpen) return undefined;
    const areIndependent = pair.areIndependent && usd0 !== undefined && usd1 !== undefined;
    const pool = { ...now, supply: supplyWithFee(now.supply, now) };
    return lpPrice(pair, pool, { usd0, usd1, areIndependent });
  };

  addPublicRoute(api, {
    path: '/api/swap/volume/:pair_id?',
    example: { vol24h: 18_250.75, pair: 'USDT/ETH' },
    errors: errorsOf('Pair'),
    summary: 'USD swap volume of a pair over the past 24 hours',
    params: PairId,
    answer: Volume,
    cacheSeconds: CACHE_SECONDS,
    key: pairIdOf,
    answerHeaders,
    async compute(key) {
      const pair = getPair(key, 'Pair not found');
      // Asked first: the sum then has everything that is said to be read.
      const read = await findReadPairs(database, [pair.id]);
      const body = json({ vol24h: exactNumber(await volumeOf(pair)), pair: pair.name });
      return withCompleteness(body, read.has(pair.id));
    },
  });

  addPublicRoute(api, {
    path: '/api/swap/lp-value/:pair_id?',
    example: { latestPrice: 2500.25, lpPriceInUsd: 4.5, pair: 'USDT/ETH' },
    errors: errorsOf('Price'),
    summary: 'Latest price of a pair and the USD value of one LP token',
    params: PairId,
    answer: LpValue,
    cacheSeconds: CACHE_SECONDS,
    staleSeconds: STALE_SECONDS,
    key: pairIdOf,
    async compute(key) {
      const pair = getPair(key, 'Price not found');
      const now = await findPairNow(database, pair.id);
      const lpPriceInUsd = now && (await lpPriceOf(pair, now));
      if (now?.price === undefined || lpPriceInUsd === undefined)
        throw new Fault('not_found', 'Price not found');
      return json({
        latestPrice: exactNumber(now.price),
        lpPriceInUsd: exactNumber(lpPriceInUsd),
        pair: pair.name,
      });
    },
  });

  addPublicRoute(api, {
    path: '/api/swap/pairs',
    example: [EXAMPLE_PAIR],
    summary: 'All pairs with their statistics',
    answer: Type.Array(PairRecord),
    cacheSeconds: CACHE_SECONDS,
    staleSeconds: STALE_SECONDS,
    answerHeaders,
    key: () => '',
    async compute() {
      const read = await findReadPairs(
        database,
        pairs.map(({ id }) => id),
      );
      const records: unknown[] = [];
      for (const pair of pairs) {
        const now = await findPairNow(database, pair.id);
        const supply = now?.supply && supplyWithFee(now.supply, now);
        records.push({
          ...pairFields(pair),
          reserve0: now?.reserve0.toString() ?? null,
          reserve1: now?.reserve1.toString() ?? null,
          lp_supply: supply?.toString() ?? null,
          latestPrice: orNull(now?.price),
          lpPriceInUsd: orNull(now && (await lpPriceOf(pair, now))),
          vol24h: exactNumber(await volumeOf(pair)),
          updated_at: now?.minedAt.toISOString() ?? null,
        });
      }
      return withCompleteness(json(records), read.size === pairs.length);
    },
  });

  addPublicRoute(api, {
    path: '/api/swap/volume-history/:pair_id?',
    example: [{ hour: '2026-01-31T12:00:00.000Z', volume: 1250.5, swaps: 12 }],
    errors: errorsOf('Pair'),
    summary: 'USD swap volume of a pair by the hour',
    params: PairId,
    querystring: Range,
    answer: Type.Array(VolumeHour),
    cacheSeconds: CACHE_SECONDS,
    key: historyKeyOf,
    async compute(key) {
      const { pair, range } = historyOf(key);
      const hours = await listVolumeHours(database, pair.id, range);
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
    path: '/api/swap/price-history/:pair_id?',
    example: [{ hour: '2026-01-31T12:00:00.000Z', price: 2500.25 }],
    errors: errorsOf('Pair'),
    summary: 'Price of a pair at the end of each hour in which it changed',
    params: PairId,
    querystring: Range,
    answer: Type.Array(PriceHour),
    cacheSeconds: CACHE_SECONDS,
    key: historyKeyOf,
    async compute(key) {
      const { pair, range } = historyOf(key);
      const hours = await listPriceHours(database, pair.id, range);
      return json(hours.map(({ hour, price }) => ({ hour: hour.toISOString(), price: orNull(price) })));
    },
  });

  function historyKeyOf(request: FastifyRequest): string {
    return JSON.stringify({ id: pairIdOf(request), ...rangeOf(request, clock.now()) });
  }

  function historyOf(key: string): { pair: ValuedPair; range: HourRange } {
    const { id, from, to, limit } = JSON.parse(key) as {
      id: string;
      from: string;
      to: string;
      limit: number;
    };
    return { pair: getPair(id, 'Pair not found'), range: { from: new Date(from), to: new Date(to), limit } };
  }
}

/** While a volume still grows because its 24 hours are being read, it is kept for a moment only. */
const withCompleteness = (answer: PublicAnswer, isComplete: boolean): PublicAnswer => ({
  ...answer,
  headers: { [COMPLETE_HEADER]: String(isComplete) },
  ...(!isComplete && { keepSecondsMax: INCOMPLETE_SECONDS }),
});

const NullableNumber = Type.Union([Type.Number(), Type.Null()]);
const NullableString = Type.Union([Type.String(), Type.Null()]);

const PairRecord = Type.Object({
  id: Type.Integer(),
  name: Type.String(),
  address: Type.String(),
  token0: Type.String(),
  token1: Type.String(),
  token0_decimals: Type.Integer(),
  token1_decimals: Type.Integer(),
  fee: Type.Integer(),
  usd_value_from: Type.Integer(),
  reward_pid: Type.Integer(),
  reserve0: NullableString,
  reserve1: NullableString,
  lp_supply: NullableString,
  latestPrice: NullableNumber,
  lpPriceInUsd: NullableNumber,
  vol24h: Type.Number(),
  updated_at: NullableString,
});

/** The fields of spec 2.3. */
function pairFields(pair: ValuedPair): Partial<Static<typeof PairRecord>> {
  const { id, name, address, token0, token1, fee } = pair;
  return {
    ...{ id, name, address, token0, token1 },
    token0_decimals: pair.token0Decimals,
    token1_decimals: pair.token1Decimals,
    fee,
    usd_value_from: pair.usdValueFrom,
    reward_pid: pair.rewardPid,
  };
}

const HOUR_MS = 60 * 60 * 1000;
/** A year of hours. */
const HOURS_MAX = 8_784;
const HOURS_DEFAULT = 168;

const Range = Type.Object({
  from: Type.Optional(Type.String({ description: 'ISO 8601; the hours from here on.' })),
  until: Type.Optional(Type.String({ description: 'ISO 8601; the hours before this; now unless given.' })),
  to: Type.Optional(Type.String({ description: 'The same as `until`.' })),
  limit: Type.Optional(Type.String({ description: `Hours at most, up to ${HOURS_MAX}.` })),
});

const VolumeHour = Type.Object({
  hour: Type.String({ description: 'Its beginning, ISO 8601 UTC.' }),
  volume: Type.Number({ description: 'USD.' }),
  swaps: Type.Integer(),
});

const PriceHour = Type.Object({
  hour: Type.String({ description: 'Its beginning, ISO 8601 UTC.' }),
  price: NullableNumber,
});

type HourRange = { from: Date; to: Date; limit: number };

/** Whole hours; without `from` the last `limit` hours before `until`. @throws Fault `invalid`. */
function rangeOf(request: FastifyRequest, now: Date): HourRange {
  const limit = readOptional(request, 'limit', parseHours) ?? HOURS_DEFAULT;
  const from = readOptional(request, 'from', findIsoTime);
  const until = readOptional(request, 'until', findIsoTime);
  const sameAsUntil = readOptional(request, 'to', findIsoTime);
  if (until !== undefined && sameAsUntil !== undefined)
    throw new Fault('invalid', 'Invalid to parameter: it is the same as until, give one of them');
  const to = ceilHour(until ?? sameAsUntil ?? now);
  return { from: from === undefined ? hoursBefore(to, limit) : ceilHour(from), to, limit };
}

const parseHours = (text: string): number | undefined =>
  /^[1-9]\d{0,3}$/.test(text) && Number(text) <= HOURS_MAX ? Number(text) : undefined;

const hoursBefore = (time: Date, count: number) => new Date(time.getTime() - count * HOUR_MS);
const ceilHour = (time: Date) => new Date(Math.ceil(time.getTime() / HOUR_MS) * HOUR_MS);

/** The id in its shortest form. @throws Fault `invalid` (spec 7; DESIGN §7). */
function pairIdOf({ params }: FastifyRequest): string {
  const { pair_id: text = '' } = params as { pair_id?: string };
  if (text === '') throw new Fault('invalid', 'Missing id parameter');
  if (!/^-?\d{1,100}$/.test(text)) throw new Fault('invalid', 'Invalid id parameter');
  return BigInt(text).toString();
}

const orNull = (value: Decimal | undefined) => (value === undefined ? null : exactNumber(value));
