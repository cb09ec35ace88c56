/**
 * Resolves the names of tokens and contracts in rules, and finds the price of each token.
 */
import { type Fraction, fractionFrom } from '../../core/fraction.ts';
import type { Address } from '../../core/hex.ts';
import type { Surroundings } from './text.ts';

/** The asset of a price feed, and the age beyond which its price isn't used. */
export type FedPrice = { asset: string; maxAgeMs?: number };

export type TokenInfo = {
  decimals: number;
  /** A fixed value, or the asset whose price is used. Undefined if the token can't be valued. */
  price: { usd: Fraction } | FedPrice | undefined;
};

const NATIVE_DECIMALS = 18;
/** Liquidity tokens of Uniswap V2 (UniswapV2ERC20.decimals). */
const LP_DECIMALS = 18;

/** Tokens by the symbols that every expression may use. */
export function tokensBySymbol(surroundings: Surroundings): Map<string, TokenInfo> {
  const { nativeSymbol, rewardSymbol, tokens, pairs } = surroundings;
  const known = new Map<string, TokenInfo>();
  known.set(nativeSymbol, { decimals: NATIVE_DECIMALS, price: feedOf(surroundings, nativeSymbol) });
  const reward = pairs.find(({ id }) => id === 1)?.token0;
  const rewardInfo = reward && tokenAt(surroundings, reward);
  if (rewardInfo !== undefined) known.set(rewardSymbol, rewardInfo);
  for (const [symbol, token] of Object.entries(tokens))
    known.set(symbol, infoOf(surroundings, symbol, token));
  return known;
}

/** The token of this contract. Undefined if the configuration doesn't define its decimals. */
export function tokenAt(surroundings: Surroundings, address: Address): TokenInfo | undefined {
  const { nativeSymbol, rewardSymbol, wrapped, tokens, pairs } = surroundings;
  const listed = Object.entries(tokens).find(([, token]) => token.address === address);
  if (listed?.[1].usd !== undefined) return infoOf(surroundings, ...listed);
  const decimals = pairs
    .flatMap(({ token0, token1, token0Decimals, token1Decimals }) => [
      { token: token0, decimals: token0Decimals },
      { token: token1, decimals: token1Decimals },
    ])
    .find(({ token }) => token === address)?.decimals;
  if (address === wrapped)
    return { decimals: decimals ?? NATIVE_DECIMALS, price: feedOf(surroundings, nativeSymbol) };
  if (listed !== undefined) return infoOf(surroundings, ...listed);
  // Token 0 of pair 1 is the reward token (spec 4.2).
  const isReward = pairs.some(({ id, token0 }) => id === 1 && token0 === address);
  if (decimals !== undefined)
    return { decimals, price: isReward ? feedOf(surroundings, rewardSymbol) : undefined };
  const isPair = pairs.some((pair) => pair.address === address);
  return isPair ? { decimals: LP_DECIMALS, price: undefined } : undefined;
}

/**
 * The tokens that expressions about a contract's events may name: `token` is the contract, `token0` and `token1` are those of
 * a pair.
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
 * The contract of a text such as `pair:2`, `token:USDT` or an address. Returns an error message if there is none.
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

function infoOf(
  surroundings: Surroundings,
  symbol: string,
  { decimals, usd }: { decimals: number; usd?: number },
): TokenInfo {
  const price = usd === undefined ? feedOf(surroundings, symbol) : { usd: fractionFrom(String(usd)) };
  return { decimals, price };
}

function feedOf({ feeds }: Surroundings, symbol: string): TokenInfo['price'] {
  return Object.hasOwn(feeds, symbol) ? { asset: symbol, ...feeds[symbol] } : undefined;
}
