/**
 * How far the pools deviate from the price feeds, read from the database, so that every process shows the same.
 */
import type { Config } from '../config/schema.ts';
import { type Decimal, decimalText } from '../core/decimal.ts';
import type { Metrics } from '../core/metrics.ts';
import { poolDeviation, type TokenValue, type ValuedPair } from '../domain/pair.ts';
import type { Db } from '../store/db/db.ts';
import { listLatestPairStates } from '../store/market/pair-states.ts';
import { findReadPairs } from '../store/market/pairs.ts';
import { findFreshPrice } from '../store/prices/prices.ts';
import { listFeeds, staleSeconds } from './price-feeds.ts';
import { valuedPairs } from './valued-pairs.ts';

/** A larger deviation of the LP token's price by reserves from its fair price suggests that someone manipulates the pool. */
const LP_DEVIATION_MAX = '0.02';
/** Enough for an alarm. */
const RATIO_DIGITS = 6;

/** For /status: each pair with its newest price, and how far that is from the feeds. */
export async function describePairs(config: Config, database: Db, now: Date) {
  const pairs = valuedPairs(config);
  if (pairs.length === 0) return [];
  const states = await listLatestPairStates(
    database,
    pairs.map(({ id }) => id),
  );
  const byId = new Map(states.map((state) => [state.pairId, state]));
  const read = await findReadPairs(
    database,
    pairs.map(({ id }) => id),
    now,
  );
  const usdOf = await readPrices(config, pairs, { database, now });
  return pairs.map((pair) => {
    const state = byId.get(pair.id);
    const { areIndependent, value0, value1 } = pair;
    const prices = { usd0: usdOf(value0), usd1: usdOf(value1), areIndependent };
    const deviation = state && poolDeviation(pair, state, prices);
    return {
      id: pair.id,
      name: pair.name,
      price: state?.price === undefined ? null : decimalText(state.price),
      updated_at: state?.minedAt.toISOString() ?? null,
      price_deviation: ratioOf(deviation?.price),
      lp_deviation: ratioOf(deviation?.lp),
      deviates: deviation?.lp.gt(LP_DEVIATION_MAX) ?? false,
      volume_complete: read.has(pair.id),
    };
  });
}

/** Sets the gauges of the pairs whose deviation is known. */
export async function refreshPairMetrics(
  config: Config,
  { database, metrics }: { database: Db; metrics: Metrics },
  now: Date,
): Promise<void> {
  const pairs = await describePairs(config, database, now);
  removePairMetrics(metrics);
  for (const { id, price_deviation, lp_deviation, deviates } of pairs) {
    if (price_deviation === null || lp_deviation === null) continue;
    const pair = String(id);
    metrics.pairPriceDeviation.set({ pair }, price_deviation);
    metrics.pairLpDeviation.set({ pair }, lp_deviation);
    metrics.pairDeviates.set({ pair }, deviates ? 1 : 0);
  }
}

/** While the database can't be read, because the deviations would be old. */
export function removePairMetrics(metrics: Metrics): void {
  metrics.pairPriceDeviation.reset();
  metrics.pairLpDeviation.reset();
  metrics.pairDeviates.reset();
}

/** The current prices, with one query for each asset. A price that is too old counts as missing. */
async function readPrices(
  config: Config,
  pairs: readonly ValuedPair[],
  { database, now }: { database: Db; now: Date },
): Promise<(value: TokenValue) => Decimal | undefined> {
  const feeds = new Map(listFeeds(config).map(({ asset: { asset }, feed }) => [asset, feed]));
  const values = pairs.flatMap(({ areIndependent, value0, value1 }) =>
    areIndependent ? [value0, value1] : [],
  );
  const assets = new Set(
    values.flatMap((value) => (value !== undefined && 'asset' in value ? [value.asset] : [])),
  );
  const prices = new Map<string, Decimal>();
  for (const asset of assets) {
    const feed = feeds.get(asset);
    const maxAgeMs = feed === undefined ? 0 : staleSeconds(feed) * 1000;
    const found = await findFreshPrice(database, asset, { now, maxAgeMs });
    if (found !== undefined) prices.set(asset, found.price);
  }
  return (value) =>
    value === undefined ? undefined : 'fixed' in value ? value.fixed : prices.get(value.asset);
}

const ratioOf = (value: Decimal | undefined) =>
  value === undefined ? null : Number(value.toFixed(RATIO_DIGITS));
