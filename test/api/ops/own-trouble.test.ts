/**
 * A process whose trouble is its own: it lacks the secret under which keys are stored, as after a rotation that overlooked it, or its pooler
 * is away.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createDeploymentStatus } from '../../../src/app/deployment-status.ts';
import { createProcessRegistry } from '../../../src/app/process-registry.ts';
import { createStatus } from '../../../src/app/status.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { Fault } from '../../../src/core/fault.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { generateApiKey } from '../../../src/domain/api-key.ts';
import { deriveKeyRing, type KeyRing, kekIdsOf } from '../../../src/domain/key-ring.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { createWriteHealth } from '../../../src/store/db/write-health.ts';
import { rekeyBatch } from '../../../src/store/watchers/rekey.ts';
import { createTestClock, type TestClock } from '../../kit/clock.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { inTime } from '../../kit/in-time.ts';
import { createApiStory, keyRing, PATH } from '../api-story.ts';

const config = loadConfig({
  env: { CHAINBELL_CHAIN_ID: '31337', CHAINBELL_CHAIN_RPC: 'http://node.example' },
});
const { signal } = new AbortController();

/** `pooled`: the database for everything but heartbeats. */
function startProcess(database: Database, clock: TestClock, ring: KeyRing, pooled = database) {
  const metrics = createMetrics('1');
  const kekIds = kekIdsOf(ring);
  const deployment = createProcessRegistry({
    ...{ database, clock, roles: ['follower', 'api'], version: '1', kekIds },
    leads: () => false,
    report: async () => ({ state: 'ok', head: 9, problem: undefined }),
  });
  const status = createStatus({
    onBug: assert.fail,
    ...{ version: '1', config, database: pooled, clock, metrics, nodes: undefined, proof: undefined, kekIds },
    writes: createWriteHealth(database, clock),
    recentStep: () => undefined,
    deployment: createDeploymentStatus({ config, database: pooled, deployment, clock, metrics }),
  });
  return { id: deployment.id, metrics, status, beat: () => deployment.beat(signal) };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a process that lacks the secret of stored keys says so, and refuses no key for good', async () => {
    const clock = createTestClock();
    const renewed = deriveKeyRing(Buffer.alloc(32, 9), [Buffer.alloc(32, 7)]);
    const [lacking, complete] = [keyRing, renewed].map((ring) => startProcess(database(), clock, ring));
    assert.ok(lacking !== undefined && complete !== undefined);
    const { ask, issue, clock: apiClock } = createApiStory(database(), lacking.status);
    const { key } = await issue('acme');
    const read = async (one: typeof lacking) => {
      clock.advance(2_000);
      apiClock.advance(2_000);
      await lacking.beat();
      await complete.beat();
      const { state, problem } = await one.status.status();
      return { state, problem, secret: (await one.status.checks()).secret?.ok };
    };
    const unknown = { key: generateApiKey().text };
    assert.deepEqual(await read(lacking), { state: 'ok', problem: null, secret: true });
    assert.equal((await ask('GET', PATH, { key })).status, 200);
    assert.equal((await ask('GET', PATH, unknown)).status, 401);

    while ((await rekeyBatch({ database: database(), keyRing: renewed })) > 0);
    const first = await read(lacking);
    assert.deepEqual([first.state, first.secret], ['degraded', false]);
    assert.match(
      first.problem?.message ?? '',
      new RegExp(`${lacking.id} \\(api, follower\\)\\. Set the current`),
    );
    const seen = await read(complete);
    assert.deepEqual([seen.state, seen.secret], ['degraded', true]);
    assert.equal(seen.problem?.message, first.problem?.message);
    // Since the same time, although the process is read again.
    assert.deepEqual((await read(lacking)).problem, first.problem);
    const answer = await ask('GET', PATH, { key });
    assert.equal(answer.status, 503, answer.text);
    assert.equal((await ask('GET', '/readyz')).status, 503);
  });

  test('a reading of the secrets of stored keys that is late does not make a process unready', async () => {
    const clock = createTestClock();
    let isLate = false;
    const late: Database = {
      ...database(),
      query: (statement) =>
        isLate && /from signing_secret/.test(statement.text)
          ? new Promise<never>(() => {})
          : database().query(statement),
    };
    const one = startProcess(database(), clock, keyRing, late);
    await createApiStory(database()).issue('acme');
    const read = async () => (await one.status.checks()).secret;
    assert.deepEqual(await read(), { ok: true, message: 'ok' });
    isLate = true;
    assert.deepEqual(await inTime(clock, read()), { ok: true, message: 'ok' });
  });

  test('while its pooler is away, /readyz, /status and the metrics of a process name the same state', async () => {
    const clock = createTestClock();
    const away = new Fault('unavailable', 'database: no connection (ECONNREFUSED)');
    const pooled: Database = { ...database(), query: () => Promise.reject(away) };
    const { beat, metrics, status } = startProcess(database(), clock, keyRing, pooled);
    await beat();
    const { ask } = createApiStory(database(), status);
    const { state, problem } = await status.status();
    assert.equal(state, 'degraded');
    assert.match(problem?.message ?? '', /no connection/);
    const { deployment } = (await ask('GET', '/readyz')).json as { deployment?: Record<string, unknown> };
    assert.deepEqual(deployment, { state, message: problem?.message });
    await status.refreshMetrics().catch(() => {});
    assert.match(await metrics.registry.metrics(), /^chainbell_state\{state="degraded"\} 1$/m);
  });
});
