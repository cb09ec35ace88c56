/**
 * The assets with a USD price, and where each price comes from.
 */
import type { Decimal } from '../core/decimal.ts';
import type { PairRate } from './pair-rate.ts';

/**
 * Where a price comes from: a separate feed, a fixed value, the newest price of a pair against the native coin. none: the
 * token is known, and nothing tells its price.
 */
export type PriceOrigin =
  /** Older prices do not count where there is a `maxAgeMs`; beyond `staleMs` they are called stale. */
  | { kind: 'feed'; maxAgeMs: number | undefined; staleMs: number }
  | { kind: 'fixed'; usd: Decimal }
  | { kind: 'pair'; rate: PairRate }
  | { kind: 'none' };

export type PricedAsset = { asset: string; origin: PriceOrigin };

/** What has a price. The real symbols of native coin and reward token are in `tokens` too. */
export type PriceBook = {
  native: PricedAsset;
  reward: PricedAsset;
  /** By symbol in lower case. */
  tokens: ReadonlyMap<string, PricedAsset>;
};
