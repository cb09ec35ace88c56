/**
 * Derives the price of one token of a pair in the other token.
 */

/** `latestPrice` of the pair, or one divided by it, is the price of the asset in the pair's other token. */
export type PairRate = { pairId: number; isInverse: boolean };

/** The price of one side of a pair in the other side: `latestPrice` counts in the token that gives the USD value (DESIGN §7). */
export function pairRate(pair: { id: number; usdValueFrom: 0 | 1 }, side: 0 | 1): PairRate {
  return { pairId: pair.id, isInverse: pair.usdValueFrom === side };
}
