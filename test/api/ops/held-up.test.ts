import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createStatus } from '../../../src/app/status.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createWriteHealth } from '../../../src/store/db/write-health.ts';
import { headerOf, mine } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onPostgres } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory } from '../api-story.ts';

const config = loadConfig({
  env: { CHAINBELL_CHAIN_ID: '31337', CHAINBELL_CHAIN_RPC: 'http://node.example' },
});

onPostgres(({ database }) => {
  test('/readyz and /metrics answer within their time while a lock holds up the tables that they read', async () => {
    await mine(database(), headerOf(1), []);
    const clock = createTestClock();
    const metrics = createMetrics('1.2.3');
    const status = createStatus({
      ...{
        version: '1.2.3',
        config,
        database: database(),
        nodes: undefined,
        proof: undefined,
        clock,
        metrics,
      },
      ...{ onBug: assert.fail, recentStep: () => undefined, writes: createWriteHealth(database(), clock) },
    });
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
    /** Lets time pass until it has an outcome. */
    async function inTime<Outcome>(work: Promise<Outcome>): Promise<Outcome> {
      let isOver = false;
      void work.finally(() => {
        isOver = true;
      });
      await waitUntil(
        () => {
          clock.advance(4);
          return isOver;
        },
        { describe: 'an answer' },
      );
      return work;
    }
    const ready = await inTime(ask('GET', '/readyz'));
    const text = await inTime(readMetrics());
    answered.resolve();
    await holding;
    assert.equal(ready.status, 503);
    const { checks } = ready.json as { checks: Record<string, { ok: boolean; message: string }> };
    assert.equal(checks['database']?.ok, true);
    assert.match(checks['blocks']?.message ?? '', /^no answer: a lock on the table block/);
    assert.match(text, /^chainbell_build_info/m);
    assert.doesNotMatch(text, /^chainbell_webhook_due /m);
    await waitUntil(async () => /^chainbell_webhook_due /m.test(await inTime(readMetrics())), {
      describe: 'the gauge',
    });
    assert.equal((await ask('GET', '/readyz')).status, 200);
  });
});
