/**
 * What a rule may call a token, and which price is that token's.
 */
import { type Fraction, fractionFrom } from '../fraction.ts';
import type { Address } from '../hex.ts';
import type { Surroundings } from './text.ts';

export type TokenInfo = {
  decimals: number;
  /** A fixed value, the asset whose price in force counts, or none: then it cannot be valued. */
  price: { usd: Fraction } | { asset: string } | undefined;
};

const NATIVE_DECIMALS = 18;
/** Liquidity tokens of Uniswap V2 (UniswapV2ERC20.decimals). */
const LP_DECIMALS = 18;

/** Tokens by the symbols that every expression may use. */
export function tokensBySymbol(surroundings: Surroundings): Map<string, TokenInfo> {
  const { nativeSymbol, rewardSymbol, tokens, pairs } = surroundings;
  const known = new Map<string, TokenInfo>();
  known.set(nativeSymbol, { decimals: NATIVE_DECIMALS, price: { asset: nativeSymbol } });
  const rewardPair = pairs.find(({ id }) => id === 1);
  if (rewardPair !== undefined)
    known.set(rewardSymbol, { decimals: rewardPair.token0Decimals, price: { asset: rewardSymbol } });
  for (const [symbol, token] of Object.entries(tokens)) known.set(symbol, infoOf(symbol, token));
  return known;
}

/** The token of this contract; undefined when nothing in the configuration says its decimals. */
export function tokenAt(surroundings: Surroundings, address: Address): TokenInfo | undefined {
  const { nativeSymbol, rewardSymbol, tokens, pairs } = surroundings;
  const listed = Object.entries(tokens).find(([, token]) => token.address === address);
  if (listed?.[1].usd !== undefined) return infoOf(...listed);
  // token1 of every pair is the wrapped native coin (spec 2.3), token0 of pair 1 the reward token (spec 4.2).
  const wrapped = pairs.find(({ token1 }) => token1 === address);
  if (wrapped !== undefined) return { decimals: wrapped.token1Decimals, price: { asset: nativeSymbol } };
  const side = pairs.find(({ token0 }) => token0 === address);
  if (side?.id === 1) return { decimals: side.token0Decimals, price: { asset: rewardSymbol } };
  if (listed !== undefined) return infoOf(...listed);
  if (side !== undefined) return { decimals: side.token0Decimals, price: undefined };
  const isPair = pairs.some((pair) => pair.address === address);
  return isPair ? { decimals: LP_DECIMALS, price: undefined } : undefined;
}

/**
 * What expressions about a contract's events may call `token0` and `token1` (of a pair) or `token` (itself).
 */
export function tokensOf(surroundings: Surroundings, contract: Address): Map<string, TokenInfo> {
  const pair = surroundings.pairs.find(({ address }) => address === contract);
  const named: [string, TokenInfo | undefined][] = [
    ['token', tokenAt(surroundings, contract)],
    ['token0', pair && tokenAt(surroundings, pair.token0)],
    ['token1', pair && tokenAt(surroundings, pair.token1)],
  ];
  return new Map(named.flatMap(([name, info]) => (info === undefined ? [] : [[name, info] as const])));
}

/**
 * The contract that `pair:2`, `token:USDT` or an address stands for. A message when there is none.
 */
export function findContract(
  { tokens, pairs }: Surroundings,
  text: string,
): { address: Address } | { message: string } {
  const [kind, name] = text.startsWith('0x')
    ? []
    : [text.slice(0, text.indexOf(':')), text.slice(text.indexOf(':') + 1)];
  if (name === undefined) return { address: text as Address };
  if (kind === 'pair') {
    const pair = pairs.find(({ id }) => String(id) === name);
    return pair === undefined ? { message: `no pair has the id ${name}` } : { address: pair.address };
  }
  const token = Object.hasOwn(tokens, name) ? tokens[name] : undefined;
  return token === undefined ? { message: `no token has the symbol ${name}` } : { address: token.address };
}

function infoOf(symbol: string, { decimals, usd }: { decimals: number; usd?: number }): TokenInfo {
  return { decimals, price: usd === undefined ? { asset: symbol } : { usd: fractionFrom(String(usd)) } };
}
