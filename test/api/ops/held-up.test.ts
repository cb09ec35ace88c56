import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createStatus } from '../../../src/app/status.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { decimal } from '../../../src/core/decimal.ts';
import { Fault } from '../../../src/core/fault.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createWriteHealth } from '../../../src/store/db/write-health.ts';
import { insertPairStates } from '../../../src/store/market/pair-states.ts';
import { insertPrice } from '../../../src/store/prices/prices.ts';
import { asDistributed } from '../../kit/as-distributed.ts';
import { addressOf, headerOf, mine, noon } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { inTime } from '../../kit/in-time.ts';
import { addFollowedPair } from '../../kit/pair-story.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory } from '../api-story.ts';

const [usdt, wrapped] = [1, 2].map(addressOf);
const config = loadConfig({
  env: {
    ...{ CHAINBELL_CHAIN_ID: '31337', CHAINBELL_CHAIN_RPC: 'http://node.example' },
    CHAINBELL_TOKENS: JSON.stringify({ USDT: { address: usdt, decimals: 0, usd: 1 } }),
    CHAINBELL_PAIRS: JSON.stringify([
      {
        ...{ id: 2, name: 'USDT/ETH', address: addressOf(12), token0: usdt, token1: wrapped },
        ...{ token0Decimals: 0, token1Decimals: 0, fee: 300, usdValueFrom: 0, rewardPid: 2 },
      },
    ]),
    CHAINBELL_PRICES_NATIVE_SOURCES: JSON.stringify([{ type: 'fixed', price: '2000' }]),
  },
});
/** The gauges that are read from the database: of `queue`, of pairs, which also read `block`, and all. */
const QUEUE = ['webhook_due', 'webhook_oldest_due_age_seconds', 'webhook_waiting'];
const PAIRS = ['pair_deviates', 'pair_lp_deviation_ratio', 'pair_price_deviation_ratio'];
const STORED = [
  ...['lost_workers', 'missed_blocks', ...PAIRS, 'price_age_seconds', 'price_stale'],
  ...[...QUEUE, 'webhook_orphaned'],
];

function createStory(database: Database) {
  const clock = createTestClock();
  const metrics = createMetrics('1.2.3');
  const options = { version: '1.2.3', config, nodes: undefined, proof: undefined, clock, metrics };
  const writes = createWriteHealth(database, clock);
  const status = createStatus({
    ...{ ...options, database, writes, onBug: assert.fail, recentStep: () => undefined },
  });
  return { clock, metrics, status };
}

/** A price, and a pair with a reserve. */
async function storeMarket(database: Database): Promise<void> {
  const price = decimal('2000');
  await insertPrice(database, { asset: 'ETH', price, observedAt: noon, source: 'x' });
  await addFollowedPair(database, 2);
  const state = {
    ...{ pairId: 2, blockNumber: 1, minedAt: noon, reserve0: 20_000n, reserve1: 10n, price },
    ...{ supplyChange: 0n, liquidityK: undefined },
  };
  await database.transaction((tx) => insertPairStates(tx, [state]));
}

/** Those of the gauges that /metrics shows. */
const shownGauges = (text: string): string[] =>
  STORED.filter((name) => new RegExp(`^chainbell_${name}[ {]`, 'm').test(text));

onPostgres(({ database }) => {
  test('/readyz and /metrics answer within their time while a lock holds up the tables that they read', async () => {
    await mine(database(), headerOf(1), []);
    await storeMarket(database());
    const { clock, metrics, status } = createStory(database());
    const { ask } = createApiStory(database(), status);
    const readMetrics = async () => {
      await status.refreshMetrics();
      return metrics.registry.metrics();
    };
    await readMetrics();
    const locked = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<void>();
    const holding = database().transaction(async (tx) => {
      await tx.query(sql`lock table block, queue in access exclusive mode`);
      locked.resolve();
      await answered.promise;
    });
    await locked.promise;
    const ready = await inTime(clock, ask('GET', '/readyz'));
    const text = await inTime(clock, readMetrics());
    answered.resolve();
    await holding;
    assert.equal(ready.status, 503);
    const { checks } = ready.json as { checks: Record<string, { ok: boolean; message: string }> };
    assert.equal(checks['database']?.ok, true);
    assert.match(checks['blocks']?.message ?? '', /^no answer: a lock on the table block/);
    assert.match(text, /^chainbell_build_info/m);
    assert.deepEqual(
      shownGauges(text),
      STORED.filter((name) => ![...QUEUE, ...PAIRS].includes(name)),
      'the lock hides only what is read from these tables',
    );
    await waitUntil(async () => /^chainbell_webhook_due /m.test(await inTime(clock, readMetrics())), {
      describe: 'the gauge',
    });
    assert.equal((await ask('GET', '/readyz')).status, 200);
  });
});

onSampledDatabase(import.meta.url, ({ database }) => {
  test('requests to /readyz at the same time share the statements of one', async () => {
    await mine(database(), headerOf(1), []);
    let statements = 0;
    const { status } = createStory({
      ...database(),
      query(statement) {
        statements += 1;
        return database().query(statement);
      },
    });
    await status.checks();
    const ofOne = statements;
    const all = await Promise.all(Array.from({ length: 300 }, () => status.checks()));
    assert.equal(statements, 2 * ofOne);
    assert.ok(all.every((checks) => Object.values(checks).every(({ ok }) => ok)));
  });

  test('/metrics leaves out all that it would read while the database is down, on Citus too', async () => {
    await storeMarket(database());
    let isDown = false;
    const breaking = await asDistributed(database(), async () => {
      if (isDown) throw new Fault('unavailable', 'database: connection refused');
    });
    const { metrics, status } = createStory(breaking);
    const read = async () => {
      await status.refreshMetrics().catch((error: unknown) => assert.ok(error instanceof Fault));
      return shownGauges(await metrics.registry.metrics());
    };
    assert.deepEqual(await read(), STORED);
    isDown = true;
    assert.deepEqual(await read(), []);
    isDown = false;
    assert.deepEqual(await read(), STORED);
  });
});
