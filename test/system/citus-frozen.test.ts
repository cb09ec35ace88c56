/**
 * A worker of a Citus cluster that keeps its connections open but answers nothing, as when its processes are stopped: only its shards
 * may wait. Runs where TEST_CITUS_URL names a coordinator with two workers (`npm run citus`).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { citusUrl } from '../kit/citus.ts';
import { type Payee, setStage } from '../kit/citus-stage.ts';
import { waitUntil } from '../kit/wait.ts';

const coordinator = citusUrl() ?? '';
const skip = coordinator === '' && 'TEST_CITUS_URL is not set: run `npm run citus -- system/citus-frozen`';
/** More than the API has connections. */
const REQUESTS = 30;
/** Far less than the time after which a statement is given up, and long enough for a busy machine. */
const FAST_MS = 5_000;

test('while a worker answers nothing, requests, blocks and webhooks of the other shards go on; afterwards each payment is accepted once', {
  skip,
}, async () => {
  await using parts = new AsyncDisposableStack();
  const stage = await setStage(parts, { coordinator, workers: 2, isApart: false });
  const { chain, cluster, watchers, pay, told, status } = stage;
  const [near, far] = [0, 1].map((index) => watchers.filter(({ worker }) => worker === index));
  const [one, other] = [near?.[0], far?.[0]];
  assert.ok(near !== undefined && far !== undefined && one !== undefined && other !== undefined);
  const areTold = (payees: readonly Payee[]) =>
    payees.every(({ paid }) => paid.every((hash) => (told().get(hash) ?? 0) > 0));
  for (const watcher of watchers) await pay(watcher);
  await waitUntil(() => areTold(watchers), { describe: 'the first payments' });

  // While partitions are created, every few days, a worker that stops answering would hold up all shards.
  const hasPartitions = async () => {
    const [row] = await cluster.ask(`
      select count(distinct inhparent)::int as tables from pg_inherits join pg_class on pg_class.oid = inhrelid
      where relname ~ '_[0-9]{8}_[0-9]{8}$'`);
    return row?.tables === 3;
  };
  await waitUntil(hasPartitions, { describe: 'partitions of each table' });
  cluster.workers[1]?.freeze();
  const asked = Array.from({ length: REQUESTS }, () => other.read());
  for (const watcher of watchers) await pay(watcher);
  const hasGoneOn = async () => {
    const { cursor, lost_shards: shards } = await status();
    return shards !== null && shards.length > 0 && cursor?.number === (await chain.head()).number;
  };
  await waitUntil(hasGoneOn, { describe: 'the newest block, without the lost shards', timeoutMs: 60_000 });
  await waitUntil(() => areTold(near), { describe: 'webhooks of the other worker', timeoutMs: 60_000 });
  const statuses = (await Promise.all(asked)).map((response) => response.status);
  assert.deepEqual(new Set(statuses), new Set([503]));
  const isShown = async () => {
    const { state, lost_shards: shards } = await status();
    return state === 'degraded' && shards?.length === 1;
  };
  await waitUntil(isShown, { describe: 'a status with the lost shards' });

  for (let round = 0; round < 5; round += 1) {
    const refused: Promise<Response>[] = Array.from({ length: REQUESTS }, () => other.read());
    const startedMs = performance.now();
    assert.equal((await one.read()).status, 200);
    for (const path of ['/log', '/log?code=200&direction=in', '/log/count', '/receivers'])
      assert.equal((await one.ask('GET', path)).status, 200, path);
    assert.equal((await one.ask('POST', '/log/redeliver?from_block=1000000')).status, 200);
    await pay(one);
    await waitUntil(() => areTold([one]), { describe: 'a webhook while a worker is lost' });
    const tookMs = performance.now() - startedMs;
    assert.ok(tookMs < FAST_MS, `${tookMs} ms`);
    for (const response of await Promise.all(refused)) assert.equal(response.status, 503);
  }
  assert.equal(areTold(far), false);

  cluster.workers[1]?.thaw();
  await stage.isAllTold();
  await waitUntil(async () => (await status()).state === 'ok', { describe: 'the state ok' });
  assert.deepEqual((await status()).lost_shards, []);
});
