/**
 * Derives the price of one token of a pair in the other token.
 */

/** The price of the asset in the pair's other token is `latestPrice` of the pair, or 1 / `latestPrice` if `isInverse`. */
export type PairRate = { pairId: number; isInverse: boolean };

/** The rate of one side of a pair. The unit of `latestPrice` is the token that determines the USD value. */
export function pairRate(pair: { id: number; usdValueFrom: 0 | 1 }, side: 0 | 1): PairRate {
  return { pairId: pair.id, isInverse: pair.usdValueFrom === side };
}
