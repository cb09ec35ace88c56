/**
 * Routes for swap pairs: volume and LP value (spec 4.3), and the list of all pairs.
 */
import Type, { type Static } from 'typebox';
import type { Clock } from '../../core/clock.ts';
import { type Decimal, exactNumber, exactNumberOrNull } from '../../core/decimal.ts';
import { Fault } from '../../core/fault.ts';
import { lpPrice, poolPrices, supplyWithFee, type TokenValue, type ValuedPair } from '../../domain/pair.ts';
import type { Database } from '../../store/db/db.ts';
import { type CurrentPair, findCurrentPair, listCurrentPairs } from '../../store/market/pair-readings.ts';
import { areStatesUpToDate, findReadPairs } from '../../store/market/pairs.ts';
import { sumSwapValue } from '../../store/market/swaps.ts';
import { findCurrentPrice } from '../../store/prices/prices.ts';
import type { Api } from '../context.ts';
import { addPublicRoute, json } from '../http/public.ts';
import { completeHeader, staleHeader, withCompleteness, withStaleness } from './pair-freshness.ts';
import { getPair, PAIR_ID, pairErrors } from './pair-parameter.ts';
import { addSwapHistoryRoutes } from './swap-history.ts';
import { addSwapListRoute } from './swap-list.ts';

type SwapOptions = { database: Database; clock: Clock; pairs: readonly ValuedPair[] };
type PairRoutes = { database: Database; clock: Clock; pairs: ReadonlyMap<string, ValuedPair> };

const DAY_MS = 24 * 60 * 60 * 1000;
const CACHE_SECONDS = 60;
/** How long an old LP value is still served while a new one is computed. */
const STALE_SECONDS = 60;
const answerHeaders = completeHeader('vol24h covers the blocks read so far');

const Volume = Type.Object({
  vol24h: Type.Number({ description: 'USD swap volume over the past 24 hours.' }),
  pair: Type.String(),
});

const LpValue = Type.Object({
  latestPrice: Type.Number({
    description: 'Units of the token with the USD price for one unit of the other.',
  }),
  lpPriceInUsd: Type.Number({ description: 'Estimated USD value of one LP token.' }),
  pair: Type.String(),
});

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

/** The routes throw the Faults of spec 7. */
export function addSwapRoutes(api: Api, { database, clock, pairs }: SwapOptions): void {
  const options = { database, clock, pairs: new Map(pairs.map((pair) => [String(pair.id), pair])) };
  addVolume(api, options);
  addLpValue(api, options);
  addPairs(api, options);
  addSwapHistoryRoutes(api, options);
  addSwapListRoute(api, options);
}

function addVolume(api: Api, options: PairRoutes): void {
  addPublicRoute(api, {
    path: '/api/swap/volume/:pair_id?',
    example: { vol24h: 18_250.75, pair: 'USDT/ETH' },
    errors: pairErrors('Pair'),
    summary: 'USD swap volume of a pair over the past 24 hours',
    parameters: { pair_id: PAIR_ID },
    hasFewKeys: true,
    answer: Volume,
    cacheSeconds: CACHE_SECONDS,
    answerHeaders,
    async compute({ pair_id: id }) {
      const pair = getPair(options.pairs, id, 'Pair not found');
      // Completeness is read before the sum, so that the sum covers every block that counts as read.
      const read = await findReadPairs(options.database, [pair.id], options.clock.now());
      const body = json({ vol24h: exactNumber(await volumeOf(options, pair)), pair: pair.name });
      return withCompleteness(body, read.has(pair.id));
    },
  });
}

function addLpValue(api: Api, options: PairRoutes): void {
  addPublicRoute(api, {
    path: '/api/swap/lp-value/:pair_id?',
    example: { latestPrice: 2500.25, lpPriceInUsd: 4.5, pair: 'USDT/ETH' },
    errors: pairErrors('Price'),
    summary: 'Latest price of a pair and the USD value of one LP token',
    parameters: { pair_id: PAIR_ID },
    hasFewKeys: true,
    answer: LpValue,
    answerHeaders: staleHeader('both figures are of that time'),
    cacheSeconds: CACHE_SECONDS,
    staleSeconds: STALE_SECONDS,
    async compute({ pair_id: id }) {
      const pair = getPair(options.pairs, id, 'Price not found');
      const isUpToDate = await areStatesUpToDate(options.database, options.clock.now());
      const now = await findCurrentPair(options.database, pair.id);
      const lpPriceInUsd = now && (await lpPriceOf(options, pair, now));
      if (now?.price === undefined || lpPriceInUsd === undefined)
        throw new Fault('not_found', 'Price not found');
      const figures = { latestPrice: exactNumber(now.price), lpPriceInUsd: exactNumber(lpPriceInUsd) };
      return withStaleness(json({ ...figures, pair: pair.name }), isUpToDate);
    },
  });
}

function addPairs(api: Api, options: PairRoutes): void {
  const pairs = [...options.pairs.values()];
  addPublicRoute(api, {
    path: '/api/swap/pairs',
    example: [EXAMPLE_PAIR],
    summary: 'All pairs with their statistics',
    answer: Type.Array(PairRecord),
    cacheSeconds: CACHE_SECONDS,
    staleSeconds: STALE_SECONDS,
    answerHeaders,
    async compute() {
      const { database, clock } = options;
      const now = clock.now();
      const ids = pairs.map(({ id }) => id);
      const listed = await listCurrentPairs(database, ids, { period: dayUpTo(now), now });
      const records: unknown[] = [];
      for (const pair of pairs) {
        const own = listed.get(pair.id);
        if (own === undefined) throw new Error('each pair is listed');
        const { current, usdValue } = own;
        const supply = current?.supply && supplyWithFee(current.supply, current);
        records.push({
          ...pairFields(pair),
          reserve0: current?.reserve0.toString() ?? null,
          reserve1: current?.reserve1.toString() ?? null,
          lp_supply: supply?.toString() ?? null,
          latestPrice: exactNumberOrNull(current?.price),
          lpPriceInUsd: exactNumberOrNull(current && (await lpPriceOf(options, pair, current))),
          vol24h: exactNumber(usdValue),
          updated_at: current?.minedAt.toISOString() ?? null,
        });
      }
      return withCompleteness(
        json(records),
        [...listed.values()].every(({ isRead }) => isRead),
      );
    },
  });
}

async function priceOf({ database, clock }: PairRoutes, value: TokenValue): Promise<Decimal | undefined> {
  if (value === undefined) return undefined;
  if ('fixed' in value) return value.fixed;
  const { asset, maxAgeMs } = value;
  return (await findCurrentPrice(database, asset, { now: clock.now(), maxAgeMs }))?.price;
}

/** In USD, over the past 24 hours. */
function volumeOf({ database, clock }: PairRoutes, pair: ValuedPair): Promise<Decimal> {
  return sumSwapValue(database, pair.id, dayUpTo(clock.now()));
}

const dayUpTo = (until: Date) => ({ after: new Date(until.getTime() - DAY_MS), until });

/** Undefined while the LP supply is unknown, and while the price source of the pair has no price yet. */
async function lpPriceOf(
  options: PairRoutes,
  pair: ValuedPair,
  now: CurrentPair,
): Promise<Decimal | undefined> {
  if (now.supply === undefined) return undefined;
  const [usd0, usd1] = [await priceOf(options, pair.value0), await priceOf(options, pair.value1)];
  const prices = poolPrices(pair, { usd0, usd1 });
  return prices && lpPrice(pair, { ...now, supply: supplyWithFee(now.supply, now) }, prices);
}
