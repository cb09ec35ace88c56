import assert from 'node:assert/strict';
import { test } from 'node:test';
import packageJson from '../../../package.json' with { type: 'json' };
import { headerOf, mine } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory } from '../api-story.ts';

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the chain is described without a key, and with the time between its newest blocks', async () => {
    const first = createApiStory(database());
    const { json, headers } = await first.ask('GET', '/api/chain');
    const chain = {
      ...{ id: 1, name: 'Ethereum', native_symbol: 'BELL', native_decimals: 18 },
      ...{ version: packageJson.version, block_time_ms: null },
      has: { points: true, prices: true, pairs: false, supply: false, admin: false },
      tokens: [{ address: `0x${'33'.repeat(20)}`, symbol: 'USDT', decimals: 6 }],
    };
    assert.deepEqual(json, chain);
    assert.equal(headers['cache-control'], 'public, max-age=10');
    for (const number of [1, 2, 3]) await mine(database(), headerOf(number), []);
    const { json: later } = await createApiStory(database()).ask('GET', '/api/chain');
    assert.deepEqual(later, { ...chain, block_time_ms: 1_000 });
  });
});
