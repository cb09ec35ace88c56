/**
 * The configured pairs, with the source of each token's price in USD.
 */
import type { Config } from '../config/schema.ts';
import { decimal } from '../core/decimal.ts';
import type { Address } from '../core/hex.ts';
import type { Pair, TokenValue, ValuedPair } from '../domain/pair.ts';

/** Prices come from the configured tokens (a fixed price or a feed) and from the wrapped native coin. */
export function valuedPairs(config: Config): ValuedPair[] {
  return config.pairs.map((pair) => {
    const [value0, value1] = [tokenValue(config, pair.token0), tokenValue(config, pair.token1)];
    const areIndependent = [value0, value1].every(
      (value) => value !== undefined && !isPricedBy(config, value, pair.id),
    );
    return { ...pair, value0, value1, areIndependent };
  });
}

/** The source of a token's USD price; undefined for a token without a symbol. */
export function tokenValue(config: Config, address: Address): TokenValue {
  const { chain, tokens, prices } = config;
  const [symbol, token] = Object.entries(tokens).find(([, one]) => one.address === address) ?? [];
  if (token?.usd !== undefined) return { fixed: decimal(String(token.usd)) };
  if (address === wrappedNative(config)) return feedValue(chain.native.symbol, prices.native);
  return symbol === undefined ? undefined : feedValue(symbol, prices.tokens[symbol]);
}

/** Without a feed no price counts: those that are stored are of one that was removed, and would count at any age. */
function feedValue(asset: string, feed: { maxAgeSeconds?: number } | undefined): TokenValue {
  if (feed === undefined) return { asset, maxAgeMs: 0 };
  return { asset, ...(feed.maxAgeSeconds !== undefined && { maxAgeMs: feed.maxAgeSeconds * 1000 }) };
}

/** The side of the pair that is the native coin; undefined if neither is. */
export function nativeSide(config: Config, { token0, token1 }: Pair): 0 | 1 | undefined {
  const wrapped = wrappedNative(config);
  return token1 === wrapped ? 1 : token0 === wrapped ? 0 : undefined;
}

/** The contract of the wrapped native coin; undefined if neither the configuration nor a pair says it. */
export const wrappedNative = ({ chain, pairs }: Config): Address | undefined =>
  chain.native.wrapped ?? pairs[0]?.token1;

/** Whether a feed takes its price from this pool, alone or among others. */
function isPricedBy({ chain, prices }: Config, value: NonNullable<TokenValue>, pairId: number): boolean {
  if ('fixed' in value) return false;
  const feed = value.asset === chain.native.symbol ? prices.native : prices.tokens[value.asset];
  return feed?.sources.some((source) => source.type === 'pair' && source.pair === pairId) ?? false;
}
