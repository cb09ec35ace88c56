/**
 * Derives prices from the reserves of a constant-product pool (Uniswap V2). Pure and exact.
 */
import { amountOf, type Decimal, decimal, integerRoot, squareRoot } from '../core/decimal.ts';
import type { Address, Hash } from '../core/hex.ts';

/** A trading pair (spec 2.3). */
export type Pair = {
  id: number;
  name: string;
  address: Address;
  token0: Address;
  token1: Address;
  token0Decimals: number;
  token1Decimals: number;
  fee: number;
  /** The token whose amount determines the USD value of a swap. */
  usdValueFrom: 0 | 1;
  rewardPid: number;
};

/** Where the USD price of a token comes from. Undefined if it has no price; it then counts as worth 0 (spec 4.3). */
export type TokenValue =
  | { fixed: Decimal }
  /** The symbol of its price feed, and the age beyond which a price of that feed isn't used: 0 if the feed was removed. */
  | { asset: string; maxAgeMs?: number }
  | undefined;

export type ValuedPair = Pair & {
  value0: TokenValue;
  value1: TokenValue;
  /** Whether both sides have a price, and neither of them comes from this pool: only such prices can contradict the pool. */
  areIndependent: boolean;
};

/** One Swap event, in the smallest units. */
export type Swap = {
  txHash: Hash;
  /** The log's index within its receipt. */
  ordinal: number;
  /** The log's index within its block. */
  logIndex: number;
  amount0In: bigint;
  amount1In: bigint;
  amount0Out: bigint;
  amount1Out: bigint;
};

/** The changes that one block made to one pair. */
export type PairEvents = {
  pairId: number;
  swaps: Swap[];
  /** The reserves after the block. Undefined if the block didn't change them. */
  reserves: Reserves | undefined;
  /** The change of the LP supply. */
  supplyChange: bigint;
  /** The product of the reserves after the last mint or burn of the block, if there was one. */
  liquidityK: bigint | undefined;
};

/** In the smallest units of each token. */
export type Reserves = { reserve0: bigint; reserve1: bigint };

/** Values besides the reserves that determine the supply of a pool's LP token. */
export type LpSupply = {
  totalSupply: bigint;
  /** The product of the reserves after the last mint or burn. 0 if the protocol fee was off then. */
  kLast: bigint;
  /** Whether the factory has a recipient of the protocol fee. */
  isFeeOn: boolean;
};

/** USD for one whole token of each side. Undefined if unknown. */
type SidePrices = { usd0: Decimal | undefined; usd1: Decimal | undefined };

/** Decimals of a pool's LP token, as in UniswapV2ERC20. */
const LP_DECIMALS = 18;

/**
 * The price of one token of the pair, in units of the token that determines the USD value: native per reward for pair 1,
 * stable per native for a stable pair. Undefined without reserves.
 */
export function pairPrice(pair: Pair, { reserve0, reserve1 }: Reserves): Decimal | undefined {
  if (reserve0 === 0n || reserve1 === 0n) return undefined;
  const whole0 = amountOf(reserve0, pair.token0Decimals);
  const whole1 = amountOf(reserve1, pair.token1Decimals);
  return pair.usdValueFrom === 0 ? whole0.div(whole1) : whole1.div(whole0);
}

/** The value of the token that determines the USD value of this pair's swaps. */
export function swapTokenValue({ usdValueFrom, value0, value1 }: ValuedPair): TokenValue {
  return usdValueFrom === 0 ? value0 : value1;
}

/** Whether a price that was observed at `observedAt` may still be used at `at`. */
export function isCounted(value: { maxAgeMs?: number }, observedAt: Date, at: Date): boolean {
  return at.getTime() - observedAt.getTime() <= (value.maxAgeMs ?? Number.POSITIVE_INFINITY);
}

/**
 * The prices of a pair's tokens. Undefined if a price is missing that a fixed value or a feed should give: a price from the pool in its
 * place could be moved by a trade. A token with a removed feed has no source, but a pair with only such tokens has no value either, while
 * a pair without any counts as worth 0.
 */
export function poolPrices(
  { value0, value1 }: ValuedPair,
  { usd0, usd1 }: SidePrices,
): SidePrices | undefined {
  const isMissing = (hasSource(value0) && usd0 === undefined) || (hasSource(value1) && usd1 === undefined);
  const isUnpriced = usd0 === undefined && usd1 === undefined && (value0 ?? value1) !== undefined;
  return isMissing || isUnpriced ? undefined : { usd0, usd1 };
}

/** A removed feed gives no price of any age. */
const hasSource = (value: TokenValue) => value !== undefined && ('fixed' in value || value.maxAgeMs !== 0);

/** The USD value of a swap: the amounts of the valued token that went in and out, at this price. */
export function swapValue(
  pair: Pair,
  swap: Omit<Swap, 'txHash' | 'ordinal' | 'logIndex'>,
  usd: Decimal,
): Decimal {
  const [units, decimals] =
    pair.usdValueFrom === 0
      ? [swap.amount0In + swap.amount0Out, pair.token0Decimals]
      : [swap.amount1In + swap.amount1Out, pair.token1Decimals];
  return amountOf(units, decimals).times(usd);
}

/** The supply including the protocol fee that the next mint or burn creates, computed like `_mintFee` of UniswapV2Pair. */
export function supplyWithFee({ totalSupply, kLast, isFeeOn }: LpSupply, reserves: Reserves): bigint {
  if (!isFeeOn || kLast === 0n) return totalSupply;
  const rootK = integerRoot(reserves.reserve0 * reserves.reserve1);
  const rootKLast = integerRoot(kLast);
  if (rootK <= rootKLast) return totalSupply;
  return totalSupply + (totalSupply * (rootK - rootKLast)) / (rootK * 5n + rootKLast);
}

/**
 * USD for one LP token (docs/explanation/prices.md): the fair price 2·√(r0·r1·p0·p1) divided by the supply, because a trade can raise the
 * sum of both reserves at these prices, but not their product. That also holds for a price that is the average of this pool. If
 * only one side has a price, the other reserve counts as much. 0 if neither side has a price or there is no supply.
 */
export function lpPrice(pair: Pair, pool: Reserves & { supply: bigint }, prices: SidePrices): Decimal {
  if (pool.supply === 0n) return decimal('0');
  return poolValue(pair, pool, prices).div(amountOf(pool.supply, LP_DECIMALS));
}

/** USD for both reserves, by the rule of `lpPrice`. 0 if neither side has a price. */
export function poolValue(pair: Pair, { reserve0, reserve1 }: Reserves, { usd0, usd1 }: SidePrices): Decimal {
  const value0 = usd0?.times(amountOf(reserve0, pair.token0Decimals));
  const value1 = usd1?.times(amountOf(reserve1, pair.token1Decimals));
  if (value0 === undefined && value1 === undefined) return decimal('0');
  if (value0 === undefined || value1 === undefined) return (value0 ?? value1 ?? decimal('0')).times(2);
  return squareRoot(value0.times(value1)).times(2);
}

/** The deviation of the reserves from prices that don't come from the pool. 0.02 is 2 %. */
type PoolDeviation = {
  /** Deviation of the pool's price from the feeds' price, above or below 0. */
  price: Decimal;
  /** Deviation of the LP price by both reserves from the fair price, which trades can't move. Never below 0. */
  lp: Decimal;
};

/** Undefined if a price is unknown or comes from the pool (see ValuedPair), or the reserves are worth nothing. */
export function poolDeviation(
  pair: Pair,
  { reserve0, reserve1 }: Reserves,
  { usd0, usd1, areIndependent }: SidePrices & Pick<ValuedPair, 'areIndependent'>,
): PoolDeviation | undefined {
  const value0 = usd0?.times(amountOf(reserve0, pair.token0Decimals));
  const value1 = usd1?.times(amountOf(reserve1, pair.token1Decimals));
  if (!areIndependent || value0 === undefined || value1 === undefined) return undefined;
  if (value0.lte(0) || value1.lte(0)) return undefined;
  const fair = squareRoot(value0.times(value1)).times(2);
  // Roots have 36 decimals, so that of a tiny value is 0.
  if (fair.eq(0)) return undefined;
  // The pool overprices the side whose reserve has the smaller value, by the ratio of the two values.
  const price = pair.usdValueFrom === 0 ? value0.div(value1) : value1.div(value0);
  return { price: price.minus(1), lp: value0.plus(value1).div(fair).minus(1) };
}
