/**
 * Chooses a price source for the tokens of configured pairs, and recognizes pools that are part of that source.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { valuedPairs } from '../../src/app/valued-pairs.ts';
import { type ConfigOverrides, loadConfig } from '../../src/config/load.ts';
import { decimalText } from '../../src/core/decimal.ts';
import { addressOf } from '../kit/chain-story.ts';

const [usdt, sol, meme, coin] = [1, 2, 3, 9].map(addressOf) as [string, string, string, string];
const pairOf = (id: number, token0: string) => ({
  ...{ id, name: `T${id}/BELL`, address: addressOf(100 + id), token0, token1: coin },
  ...{ token0Decimals: 18, token1Decimals: 18, fee: 300, usdValueFrom: 0 as const, rewardPid: 0 },
});
const pairs = [pairOf(2, usdt), pairOf(4, sol), pairOf(5, meme)];
const pairSource = (pair: number) => ({
  ...{ everySeconds: 30, maxAgeSeconds: 600 },
  sources: [{ type: 'pair' as const, pair, minutes: 30 }],
});
const fixed = { everySeconds: 30, sources: [{ type: 'fixed' as const, price: '3' }] };

const valued = (prices: NonNullable<ConfigOverrides['prices']>) =>
  valuedPairs(
    loadConfig({
      env: {},
      overrides: {
        chain: { id: 1, rpc: ['http://node.example'], native: { symbol: 'BELL', wrapped: coin } },
        pairs,
        tokens: {
          USDT: { address: usdt, decimals: 18, usd: 1.01 },
          SOL: { address: sol, decimals: 18 },
        },
        prices,
      },
    }),
  );

test('a token has its fixed price or else the price of its feed, and the wrapped coin has the price of the native coin', () => {
  const [stable, priced, unpriced] = valued({ native: fixed, tokens: { SOL: fixed } });
  const { value0 } = stable ?? {};
  assert.equal(value0 !== undefined && 'fixed' in value0 && decimalText(value0.fixed), '1.01');
  assert.deepEqual([stable?.value1, priced?.value0], [{ asset: 'BELL' }, { asset: 'SOL' }]);
  assert.deepEqual([unpriced?.value0, unpriced?.value1], [undefined, { asset: 'BELL' }]);
});

test('the reward token and the wrapped coin may have a fixed price, also under their symbols', () => {
  const config = loadConfig({
    env: {},
    overrides: {
      chain: { id: 1, rpc: ['http://node.example'], native: { symbol: 'USDC', wrapped: coin } },
      pairs: [pairOf(1, sol)],
      tokens: {
        RWD: { address: sol, decimals: 18, usd: 2 },
        USDC: { address: coin, decimals: 18, usd: 1 },
      },
      prices: { native: fixed },
    },
  });
  const values = valuedPairs(config).flatMap(({ value0, value1 }) => [value0, value1]);
  assert.deepEqual(
    values.map((value) => value !== undefined && 'fixed' in value && decimalText(value.fixed)),
    ['2', '1'],
  );
});

test('without a feed, no price of a token or of the native coin counts, whatever prices are stored', () => {
  const values = valued({ tokens: {} }).flatMap(({ value0, value1 }) => [value0, value1]);
  const ages = values.slice(1).map((value) => value && 'asset' in value && value.maxAgeMs);
  assert.deepEqual(
    ages.filter((age) => age !== undefined),
    [0, 0, 0, 0],
  );
});

test('the value of a token carries the maxAgeSeconds of its feed', () => {
  const [, priced] = valued({ native: { ...fixed, maxAgeSeconds: 60 }, tokens: { SOL: fixed } });
  assert.deepEqual([priced?.value1, priced?.value0], [{ asset: 'BELL', maxAgeMs: 60_000 }, { asset: 'SOL' }]);
});

test('a pool is compared only with prices that it does not contribute to, on either side', () => {
  const independent = (prices: Parameters<typeof valued>[0]) =>
    valued(prices).flatMap(({ id, areIndependent }) => (areIndependent ? [id] : []));
  assert.deepEqual(independent({ native: fixed, tokens: { SOL: fixed } }), [2, 4]);
  assert.deepEqual(independent({ native: pairSource(2), tokens: { SOL: fixed } }), [4]);
  assert.deepEqual(independent({ native: fixed, tokens: { SOL: pairSource(4) } }), [2]);
});
