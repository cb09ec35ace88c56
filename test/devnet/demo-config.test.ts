import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { toEventSelector } from 'viem';
import { demoConfig } from '../../devnet/demo-config.ts';
import { planMarket } from '../../devnet/market.ts';
import { pointsOf } from '../../devnet/points-rules.ts';
import type { Address } from '../../src/core/hex.ts';

const deployer: Address = `0x${'14'.repeat(20)}`;
const market = planMarket(deployer);

test('the configuration of the demo loads, with the six pairs of spec 2.3 and what the supply is made of', () => {
  const { pairs, tokens, supply, webhooks } = demoConfig({
    rpc: ['http://127.0.0.1:8545'],
    dataDir: 'demo',
    receiverPort: 8090,
    retryMinutes: undefined,
    priceFeedUrl: 'http://127.0.0.1:8091',
    market,
    tokens: { DUSD: { address: deployer, decimals: 6 } },
    deployer,
    initialCoins: 200_000,
  });
  assert.deepEqual(
    pairs.map(({ id, name, token0Decimals, token1Decimals, fee, usdValueFrom, rewardPid }) =>
      [id, name, token0Decimals, token1Decimals, fee, usdValueFrom, rewardPid].join(' '),
    ),
    [
      '1 RWD/ETH 18 18 300 1 0',
      '2 USDT/ETH 6 18 300 0 1',
      '3 USDC/ETH 6 18 300 0 2',
      '4 SOL/ETH 18 18 300 1 4',
      '5 DOGE/ETH 8 18 300 1 5',
      '6 XRP/ETH 18 18 300 1 6',
    ],
  );
  for (const { token0, token1 } of pairs) assert.ok(token0 < token1 && token1 === market.wrapped);
  assert.deepEqual(Object.keys(tokens), ['USDT', 'USDC', 'SOL', 'DOGE', 'XRP', 'DUSD']);
  assert.deepEqual(Object.keys(supply?.locked.vesting ?? {}), ['team', 'advisors']);
  assert.deepEqual(webhooks.retryMinutes, [1, 3, 10, 15, 60]);
});

test('the rules know every common category of spec 2.1, and listen to events that the contracts emit', () => {
  const { rules } = pointsOf(market, deployer);
  assert.deepEqual([...new Set(rules.map(({ category }) => category))].sort(), [
    'bridge',
    'governance',
    'liquidity_provision',
    'referral',
    'staking',
    'trading',
  ]);
  const selectors = new Set(
    ['@uniswap/v2-core/build/UniswapV2Pair.json', '../../devnet/contracts/artifacts.json'].flatMap((file) => {
      const text = readFileSync(new URL(import.meta.resolve(file)), 'utf8');
      const contents = JSON.parse(text);
      const abis = 'abi' in contents ? [contents.abi] : Object.values(contents).map((one) => Object(one).abi);
      return abis.flat().flatMap((item) => (item.type === 'event' ? toEventSelector(item) : []));
    }),
  );
  for (const rule of rules) {
    assert.ok(rule.type === 'event');
    assert.ok(
      selectors.has(toEventSelector(`event ${rule.source.event}`)),
      `${rule.id}: ${rule.source.event}`,
    );
  }
});
