/**
 * A constant-product pool (Uniswap V2) and the prices that follow from its reserves. Pure and exact.
 */
import { amountOf, type Decimal, decimal, integerRoot } from '../core/decimal.ts';
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
  /** The token that gives the USD value of a swap. */
  usdValueFrom: 0 | 1;
  rewardPid: number;
};

/** Where the USD price of a token comes from; undefined where it has none, and counts as worth 0 (spec 4.3). */
export type TokenValue =
  | { fixed: Decimal }
  /** The symbol whose price feed it has, and the age beyond which a price of that feed doesn't count. */
  | { asset: string; maxAgeMs?: number }
  | undefined;

export type ValuedPair = Pair & {
  value0: TokenValue;
  value1: TokenValue;
  /** Whether both sides have a price, and neither of them comes from this pool. */
  areIndependent: boolean;
};

/** One Swap event, in the smallest units. */
export type Swap = {
  txHash: Hash;
  /** The log's index within its receipt. */
  ordinal: number;
  amount0In: bigint;
  amount1In: bigint;
  amount0Out: bigint;
  amount1Out: bigint;
};

/** The changes that one block made to one pair. */
export type PairEvents = {
  pairId: number;
  swaps: Swap[];
  /** After the block, where it changed them. */
  reserves: Reserves | undefined;
  /** By how much the LP supply grew or shrank. */
  supplyChange: bigint;
  /** The product of the reserves after the last mint or burn of the block, if there was one. */
  liquidityK: bigint | undefined;
};

/** In the smallest units of each token. */
export type Reserves = { reserve0: bigint; reserve1: bigint };

/** What the supply of a pool's LP token depends on besides its reserves. */
export type LpSupply = {
  totalSupply: bigint;
  /** The product of the reserves after the last mint or burn; 0 where no fee was on then. */
  kLast: bigint;
  /** Whether the factory has a recipient of the protocol fee. */
  isFeeOn: boolean;
};

/** USD for one whole token of each side, as far as they are known. */
type SidePrices = { usd0: Decimal | undefined; usd1: Decimal | undefined };

/** Of a pool's LP token, by UniswapV2ERC20. */
const LP_DECIMALS = 18;

/**
 * Units of the token that gives the USD value, for one of the other (DESIGN §7): native per reward for pair 1, stable per
 * native for a stable pair. Undefined without reserves.
 */
export function pairPrice(pair: Pair, { reserve0, reserve1 }: Reserves): Decimal | undefined {
  if (reserve0 === 0n || reserve1 === 0n) return undefined;
  const whole0 = amountOf(reserve0, pair.token0Decimals);
  const whole1 = amountOf(reserve1, pair.token1Decimals);
  return pair.usdValueFrom === 0 ? whole0.div(whole1) : whole1.div(whole0);
}

/** The value of the token that gives the USD value of this pair's swaps. */
export function swapTokenValue({ usdValueFrom, value0, value1 }: ValuedPair): TokenValue {
  return usdValueFrom === 0 ? value0 : value1;
}

/** Whether a price that was observed at one time counts at another one. */
export function isCounted(value: { maxAgeMs?: number }, observedAt: Date, at: Date): boolean {
  return at.getTime() - observedAt.getTime() <= (value.maxAgeMs ?? Number.POSITIVE_INFINITY);
}

/** USD of a swap: what went in and what came out of the valued token, at this price (DESIGN §7). */
export function swapValue(pair: Pair, swap: Omit<Swap, 'txHash' | 'ordinal'>, usd: Decimal): Decimal {
  const [units, decimals] =
    pair.usdValueFrom === 0
      ? [swap.amount0In + swap.amount0Out, pair.token0Decimals]
      : [swap.amount1In + swap.amount1Out, pair.token1Decimals];
  return amountOf(units, decimals).times(usd);
}

/** The supply with the protocol fee that the next mint or burn makes: `_mintFee` of UniswapV2Pair, in its own arithmetic. */
export function supplyWithFee({ totalSupply, kLast, isFeeOn }: LpSupply, reserves: Reserves): bigint {
  if (!isFeeOn || kLast === 0n) return totalSupply;
  const rootK = integerRoot(reserves.reserve0 * reserves.reserve1);
  const rootKLast = integerRoot(kLast);
  if (rootK <= rootKLast) return totalSupply;
  return totalSupply + (totalSupply * (rootK - rootKLast)) / (rootK * 5n + rootKLast);
}

/**
 * USD for one LP token (DESIGN §7): by the fair price 2·√(r0·r1·p0·p1) where both prices are independent of the pool, else by
 * both reserves, of which one without a price is worth as much as the other one. 0 where nothing is valued or there is no
 * supply.
 */
export function lpPrice(
  pair: Pair,
  pool: Reserves & { supply: bigint },
  prices: SidePrices & { areIndependent: boolean },
): Decimal {
  if (pool.supply === 0n) return decimal('0');
  return poolValue(pair, pool, prices).div(amountOf(pool.supply, LP_DECIMALS));
}

function poolValue(
  pair: Pair,
  { reserve0, reserve1 }: Reserves,
  { usd0, usd1, areIndependent }: SidePrices & { areIndependent: boolean },
): Decimal {
  const value0 = usd0?.times(amountOf(reserve0, pair.token0Decimals));
  const value1 = usd1?.times(amountOf(reserve1, pair.token1Decimals));
  if (value0 === undefined && value1 === undefined) return decimal('0');
  if (value0 === undefined || value1 === undefined) return (value0 ?? value1 ?? decimal('0')).times(2);
  return areIndependent ? value0.times(value1).sqrt().times(2) : value0.plus(value1);
}

/** By how much the reserves contradict prices that do not come from the pool; 0.02 is 2 %. */
type PoolDeviation = {
  /** Of the pool's price from that of the feeds, above or below 0. */
  price: Decimal;
  /** Of the LP token by both reserves from its fair price, which trades cannot move; never below 0. */
  lp: Decimal;
};

/** Undefined if the prices are unknown or come from the pool. */
export function poolDeviation(
  pair: Pair,
  { reserve0, reserve1 }: Reserves,
  { usd0, usd1, areIndependent }: SidePrices & { areIndependent: boolean },
): PoolDeviation | undefined {
  const value0 = usd0?.times(amountOf(reserve0, pair.token0Decimals));
  const value1 = usd1?.times(amountOf(reserve1, pair.token1Decimals));
  if (!areIndependent || value0 === undefined || value1 === undefined) return undefined;
  if (value0.lte(0) || value1.lte(0)) return undefined;
  // What the pool asks for one side is worth more than that side, by as much as there is less of it.
  const price = pair.usdValueFrom === 0 ? value0.div(value1) : value1.div(value0);
  const fair = value0.times(value1).sqrt().times(2);
  return { price: price.minus(1), lp: value0.plus(value1).div(fair).minus(1) };
}
