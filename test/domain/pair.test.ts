/**
 * Prices and deviations that follow from the reserves of a pool.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decimal, decimalText } from '../../src/core/decimal.ts';
import {
  lpPrice,
  type Pair,
  pairPrice,
  poolDeviation,
  poolPrices,
  supplyWithFee,
} from '../../src/domain/pair.ts';
import { addressOf } from '../kit/chain-story.ts';

const pairOf = (parts: Partial<Pair> = {}): Pair => ({
  ...{ id: 1, name: 'RWD/ETH', address: addressOf(1), token0: addressOf(2), token1: addressOf(3) },
  ...{ token0Decimals: 18, token1Decimals: 18, fee: 300, usdValueFrom: 1, rewardPid: 0 },
  ...parts,
});
const coins = (count: number) => BigInt(count) * 10n ** 18n;

test('a pair valued by token1 has a price in token1 per token0: native per reward', () => {
  const price = pairPrice(pairOf(), { reserve0: coins(8), reserve1: coins(2) });
  assert.equal(price && decimalText(price), '0.25');
});

test('a pair valued by token0 has a price in token0 per token1: stable per native', () => {
  const pair = pairOf({ usdValueFrom: 0, token0Decimals: 6 });
  const price = pairPrice(pair, { reserve0: 5_000_000_001n, reserve1: coins(2) });
  assert.equal(price && decimalText(price), '2500.0000005');
});

test('a pool without one of its tokens has no price', () => {
  assert.equal(pairPrice(pairOf(), { reserve0: 0n, reserve1: 1n }), undefined);
  assert.equal(pairPrice(pairOf(), { reserve0: 1n, reserve1: 0n }), undefined);
});

test('the supply includes the fee that the next mint would create, and no fee if the fee is off', () => {
  const reserves = { reserve0: 400n, reserve1: 400n };
  // √k went from 100 to 400: 1000 · 300 / (5 · 400 + 100).
  const lp = { totalSupply: 1000n, kLast: 10_000n, isFeeOn: true };
  assert.equal(supplyWithFee(lp, reserves), 1000n + 142n);
  assert.equal(supplyWithFee({ ...lp, isFeeOn: false }, reserves), 1000n);
  assert.equal(supplyWithFee({ ...lp, kLast: 0n }, reserves), 1000n, 'the fee was off at the last mint');
  assert.equal(supplyWithFee({ ...lp, kLast: 200_000n }, reserves), 1000n, 'k has not grown');
});

test('an LP token has the fair price if both tokens have one', () => {
  const pool = { reserve0: coins(4), reserve1: coins(9), supply: coins(6) };
  const prices = { usd0: decimal('2'), usd1: decimal('2') };
  // 2 · √(4 · 9 · 2 · 2) / 6, where the reserves are worth 26 / 6.
  assert.equal(decimalText(lpPrice(pairOf(), pool, prices)), '4');
});

// This test asserted the sum of both reserves before. With a price that the pool only contributes to, a trade could raise that sum.
test('a trade leaves the value of an LP token as it was, also if a feed has the pool among its sources', () => {
  const prices = poolPrices(
    { ...pairOf(), value0: { fixed: decimal('1') }, value1: { asset: 'ETH' }, areIndependent: false },
    { usd0: decimal('1'), usd1: decimal('2500') },
  );
  assert.ok(prices);
  for (const [reserve0, reserve1] of [
    [coins(250_000), coins(100)],
    [coins(1_000_000), coins(25)],
    [coins(62_500), coins(400)],
  ] as const) {
    const pool = { reserve0, reserve1, supply: coins(5_000) };
    assert.equal(decimalText(lpPrice(pairOf(), pool, prices)), '100');
  }
});

test('an LP token has no value while one of two feeds has no price, but a removed feed is no feed', () => {
  const pair = { ...pairOf(), value0: { asset: 'SOL' }, value1: { asset: 'ETH' }, areIndependent: true };
  const [usd0, usd1] = [decimal('1'), decimal('2500')];
  const none = undefined;
  assert.equal(poolPrices(pair, { usd0: none, usd1 }), undefined);
  assert.equal(poolPrices(pair, { usd0, usd1: none }), undefined);
  assert.equal(poolPrices({ ...pair, value0: { fixed: usd0 } }, { usd0, usd1: none }), undefined);
  const removed = { asset: 'SOL', maxAgeMs: 0 };
  assert.deepEqual(poolPrices({ ...pair, value0: removed }, { usd0: none, usd1 }), { usd0: none, usd1 });
  assert.equal(poolPrices({ ...pair, value0: removed }, { usd0: none, usd1: none }), undefined);
  assert.equal(poolPrices({ ...pair, value0: removed, value1: none }, { usd0: none, usd1: none }), undefined);
  assert.deepEqual(poolPrices({ ...pair, value0: none }, { usd0: none, usd1 }), { usd0: none, usd1 });
});

test('a side without a price counts as much as the other one', () => {
  const pool = { reserve0: 1n, reserve1: coins(10), supply: coins(5) };
  const prices = { usd0: undefined, usd1: decimal('3') };
  assert.equal(decimalText(lpPrice(pairOf(), pool, prices)), '12');
});

test('an LP token is worth 0 if neither side has a price or the pool is empty', () => {
  const pool = { reserve0: coins(4), reserve1: coins(9), supply: coins(6) };
  const none = { usd0: undefined, usd1: undefined };
  assert.equal(decimalText(lpPrice(pairOf(), pool, none)), '0');
  const prices = { usd0: decimal('1'), usd1: decimal('1') };
  assert.equal(decimalText(lpPrice(pairOf(), { ...pool, supply: 0n }, prices)), '0');
});

test('a manipulated pool deviates from the feeds in its price, and by less in its LP token', () => {
  const prices = { usd0: decimal('2'), usd1: decimal('0.5'), areIndependent: true };
  const at = (reserve0: bigint, reserve1: bigint, parts: Partial<Pair> = {}) => {
    const deviation = poolDeviation(pairOf(parts), { reserve0, reserve1 }, prices);
    return deviation && [deviation.price, deviation.lp].map((ratio) => ratio.toFixed(4));
  };
  assert.deepEqual(at(coins(1), coins(4)), ['0.0000', '0.0000']);
  // Token 0 costs four times the feeds' price, then a quarter of it: (2 + 8) / 2√16 is 1.25 in both cases.
  assert.deepEqual(at(coins(1), coins(16)), ['3.0000', '0.2500']);
  assert.deepEqual(at(coins(4), coins(4)), ['-0.7500', '0.2500']);
  assert.deepEqual(at(coins(4), coins(4), { usdValueFrom: 0 }), ['3.0000', '0.2500']);
  assert.deepEqual(at(10n ** 6n, coins(4), { token0Decimals: 6 }), ['0.0000', '0.0000']);
});

test('a pool without reserves or independent prices has no deviation', () => {
  const prices = { usd0: decimal('2'), usd1: decimal('0.5'), areIndependent: true };
  const full = { reserve0: 1n, reserve1: 1n };
  assert.equal(poolDeviation(pairOf(), { ...full, reserve1: 0n }, prices), undefined);
  assert.equal(poolDeviation(pairOf(), full, { ...prices, areIndependent: false }), undefined);
  assert.equal(poolDeviation(pairOf(), full, { ...prices, usd0: undefined }), undefined);
});

test('a pool that is worth almost nothing has no deviation, instead of a division by zero', () => {
  const prices = { usd0: decimal('1'), usd1: decimal('1000'), areIndependent: true };
  const reserves = { reserve0: 1n, reserve1: coins(1) };
  assert.equal(poolDeviation(pairOf({ token0Decimals: 77 }), reserves, prices), undefined);
  assert.notEqual(poolDeviation(pairOf({ token0Decimals: 75 }), reserves, prices), undefined);
});
