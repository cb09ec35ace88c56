/**
 * Defines the assets with a USD price, and the origin of each price.
 */
import type { Decimal } from '../core/decimal.ts';
import type { PairRate } from './pair-rate.ts';

/**
 * Where a price comes from: a feed, a fixed value, or the newest price of a pair with the native coin. none: the token is
 * known, but has no price.
 */
export type PriceOrigin =
  /** The feed of `of`. Prices older than `maxAgeMs` are not used. Prices older than `staleMs` are reported as stale. */
  | { kind: 'feed'; of: string; maxAgeMs: number | undefined; staleMs: number }
  | { kind: 'fixed'; usd: Decimal }
  | { kind: 'pair'; rate: PairRate }
  | { kind: 'none' };

export type PricedAsset = { asset: string; origin: PriceOrigin };

/** All assets. `tokens` also has the native coin and the reward token, under their configured symbols. */
export type PriceBook = {
  native: PricedAsset;
  reward: PricedAsset;
  /** By symbol in lower case. */
  tokens: ReadonlyMap<string, PricedAsset>;
};
