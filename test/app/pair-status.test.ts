/**
 * Pools next to the price feeds, in /status and in the metrics.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createStatus } from '../../src/app/status.ts';
import { loadConfig } from '../../src/config/load.ts';
import { decimal } from '../../src/core/decimal.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createWriteHealth } from '../../src/store/db/write-health.ts';
import { insertPairStates } from '../../src/store/market/pair-states.ts';
import { insertPrice } from '../../src/store/prices/prices.ts';
import { createApiStory } from '../api/api-story.ts';
import { addressOf, later } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { addFollowedPair } from '../kit/pair-story.ts';

const [usdt, wrapped, meme] = [1, 2, 3].map(addressOf);
const pairOf = (id: number, token0: string | undefined) => ({
  ...{ id, name: `T${id}/ETH`, address: addressOf(10 + id), token0, token1: wrapped },
  ...{ token0Decimals: 0, token1Decimals: 0, fee: 300, usdValueFrom: 0, rewardPid: id },
});
const config = loadConfig({
  env: {
    ...{ CHAINBELL_CHAIN_ID: '31337', CHAINBELL_CHAIN_RPC: 'http://127.0.0.1:1' },
    CHAINBELL_TOKENS: JSON.stringify({ USDT: { address: usdt, decimals: 0, usd: 1 } }),
    CHAINBELL_PAIRS: JSON.stringify([pairOf(2, usdt), pairOf(3, meme)]),
    CHAINBELL_PRICES_NATIVE_MAX_AGE_SECONDS: '600',
    CHAINBELL_PRICES_NATIVE_SOURCES: JSON.stringify([{ type: 'fixed', price: '2000' }]),
  },
});

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a pool whose price is far from the feeds is reported until a price is too old to compare', async () => {
    const [clock, metrics] = [createTestClock(later(0)), createMetrics('test')];
    const options = { version: 'test', config, database: database(), nodes: undefined, proof: undefined };
    const writes = createWriteHealth(database(), clock);
    const status = createStatus({
      onBug: assert.fail,
      ...options,
      writes,
      recentStep: () => undefined,
      clock,
      metrics,
    });
    const { ask } = createApiStory(database(), status);
    const see = async () => {
      const { pairs } = (await ask('GET', '/status')).json as { pairs: Record<string, unknown>[] };
      await status.refreshMetrics();
      const text = await metrics.registry.metrics();
      const gauges = [...text.matchAll(/^chainbell_pair_(\w+)\{pair="(\d)"\} (.+)$/gm)];
      return { pairs, gauges: gauges.map(([, name, pair, value]) => `${name} ${pair} ${value}`).sort() };
    };
    const reserves = (block: number, reserve0: bigint) =>
      database().transaction((tx) =>
        insertPairStates(
          tx,
          [2, 3].map((pairId) => ({
            ...{ pairId, blockNumber: block, minedAt: later(block * 1000), reserve0, reserve1: 10n },
            ...{ price: decimal(reserve0).div(10), supplyChange: 0n, liquidityK: undefined },
          })),
        ),
      );
    await insertPrice(database(), {
      asset: 'ETH',
      price: decimal('2000'),
      observedAt: later(0),
      source: 'x',
    });
    for (const id of [2, 3]) await addFollowedPair(database(), id);
    await reserves(1, 20_200n);
    const unread = { volume_complete: false };
    const unjudged = { price_deviation: null, lp_deviation: null, deviates: false, ...unread };
    assert.deepEqual(await see(), {
      pairs: [
        {
          ...{ id: 2, name: 'T2/ETH', price: '2020', updated_at: later(1_000).toISOString() },
          ...{ price_deviation: 0.01, lp_deviation: 0.000012, deviates: false, ...unread },
        },
        { id: 3, name: 'T3/ETH', price: '2020', updated_at: later(1_000).toISOString(), ...unjudged },
      ],
      gauges: ['deviates 2 0', 'lp_deviation_ratio 2 0.000012', 'price_deviation_ratio 2 0.01'],
    });
    await reserves(2, 30_000n);
    const pushed = await see();
    assert.deepEqual(
      pushed.pairs.map(({ price_deviation, deviates }) => [price_deviation, deviates]),
      [
        [0.5, true],
        [null, false],
      ],
    );
    assert.ok(pushed.gauges.includes('deviates 2 1'));
    clock.advance(600_001);
    const old = await see();
    assert.deepEqual(old.pairs[0], {
      ...{ id: 2, name: 'T2/ETH', price: '3000', updated_at: later(2_000).toISOString(), ...unjudged },
    });
    assert.deepEqual(old.gauges, []);
  });
});
