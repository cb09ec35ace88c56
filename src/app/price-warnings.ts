/**
 * Warnings about tokens that have two prices at once.
 */
import type { Config } from '../config/schema.ts';
import type { Warning } from './chain-warnings.ts';

/** Shown by `chainbell config check` and logged at each start. */
export function priceWarnings({ tokens, prices }: Pick<Config, 'tokens' | 'prices'>): Warning[] {
  return Object.keys(prices.tokens).flatMap((symbol) => {
    const usd = tokens[symbol]?.usd;
    if (usd === undefined) return [];
    return [
      {
        path: `tokens.${symbol}.usd`,
        message: `is ${usd}, and ${symbol} also has a feed (prices.tokens.${symbol}). /api/price shows the feed's price, but swaps, LP tokens and points use the fixed one. Keep only one, unless you want both.`,
      },
    ];
  });
}
