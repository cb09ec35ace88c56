/**
 * A Citus cluster that changes while the service runs: a worker is lost and comes back, and a worker is added. The oracle is the list
 * of payments. Runs where TEST_CITUS_URL names a coordinator with two workers (`npm run citus`).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { citusUrl } from '../kit/citus.ts';
import { setStage } from '../kit/citus-stage.ts';
import { waitUntil } from '../kit/wait.ts';

const coordinator = citusUrl() ?? '';
const skip = coordinator === '' && 'TEST_CITUS_URL is not set: run `npm run citus -- system/citus`';

for (const { name, isKilled } of [
  { name: 'a worker is lost', isKilled: false },
  { name: 'a worker is lost and the service is killed', isKilled: true },
])
  test(`while ${name}, blocks and webhooks of the other shards go on, also in a reorg; afterwards each payment is accepted once, and none of an orphaned block`, {
    skip,
  }, async () => {
    await using parts = new AsyncDisposableStack();
    const stage = await setStage(parts, { coordinator, workers: 2, isApart: isKilled });
    const { chain, cluster, receiver, watchers, pay, told, status } = stage;
    const [near, far] = [0, 1].map((index) => watchers.filter(({ worker }) => worker === index));
    const [one, other] = [near?.[0], far?.[0]];
    assert.ok(near !== undefined && far !== undefined && one !== undefined && other !== undefined);
    const areTold = (hashes: readonly string[]) => hashes.every((hash) => (told().get(hash) ?? 0) > 0);

    receiver.setAnswer({ status: 503 });
    for (const watcher of watchers) await pay(watcher);
    const orphaned = { ...other, paid: [] };
    await pay(orphaned);
    const areAllTried = () =>
      new Set(receiver.requests.map(({ json }) => Object(json).hash)).size === watchers.length + 1;
    await waitUntil(areAllTried, { describe: 'an attempt of each payment' });
    await cluster.workers[1]?.cut();
    await chain.reorg(1);
    for (const watcher of watchers) await pay(watcher);
    const hasGoneOn = async () => {
      const { cursor, lost_shards: shards } = await status();
      return shards !== null && shards.length > 0 && cursor?.number === (await chain.head()).number;
    };
    await waitUntil(hasGoneOn, { describe: 'the newest block, without the lost shards', timeoutMs: 60_000 });
    receiver.setAnswer({ status: 200 });
    await waitUntil(() => areTold(near.flatMap(({ paid }) => paid)), {
      describe: 'the payments in the shards of the other worker',
      timeoutMs: 60_000,
    });
    assert.equal((await one.read()).status, 200);
    assert.equal((await other.read()).status, 503);
    const lost = await status();
    assert.equal(lost.state, 'degraded');
    assert.match(lost.problem?.message ?? '', /^worker … did not answer, so its shards wait for blocks/);
    assert.equal(lost.lost_shards?.length, 1);
    assert.equal(lost.lost_shards?.[0]?.worker, '…');
    const { lost_shards: named, problem } = await stage.operatorStatus();
    const worker = named?.[0]?.worker ?? '';
    assert.ok(worker.endsWith(`:${cluster.workers[1]?.port}`));
    assert.ok(problem?.message.includes(worker), problem?.message);
    assert.ok((lost.lost_shards?.[0]?.blocks ?? 0) > 0);
    assert.notEqual(lost.cursor, null);

    // A process that is killed before it has recorded an outcome sends the webhook again.
    for (const { id } of near)
      await waitUntil(async () => {
        const [row] = await cluster.ask('select count(*)::int as count from queue where shard_id = $1', [id]);
        return row?.count === 0;
      });
    await stage.restart();
    for (const watcher of watchers) await pay(watcher);
    await waitUntil(() => areTold(near.flatMap(({ paid }) => paid)), {
      describe: 'payments after the restart',
    });
    assert.equal(areTold(far.flatMap(({ paid }) => paid)), false);

    await cluster.workers[1]?.mend();
    await stage.isAllTold();
    await waitUntil(async () => (await status()).state === 'ok', { describe: 'the state ok' });
    assert.deepEqual((await status()).lost_shards, []);
  });

test('a worker is added, and shards move to it while payments arrive: each payment is accepted once', {
  skip,
}, async () => {
  await using parts = new AsyncDisposableStack();
  const stage = await setStage(parts, { coordinator, workers: 1, isApart: false });
  const { cluster, watchers, pay } = stage;
  const workers = async () => {
    const found = new Set<number>();
    for (const { id } of watchers) found.add(await cluster.workerOf(id));
    return found;
  };
  assert.deepEqual(await workers(), new Set([0]));

  let isMoved = false;
  const moving = (async () => {
    await cluster.addWorker(1);
    await cluster.ask(`select citus_rebalance_start(shard_transfer_mode => 'block_writes')`);
    await cluster.ask('select citus_rebalance_wait()');
  })().finally(() => {
    isMoved = true;
  });
  for (let round = 0; !isMoved || round < 3; round += 1) for (const watcher of watchers) await pay(watcher);
  await moving;
  // Citus balances by size, so it may have moved all of them.
  assert.ok((await workers()).has(1), 'no shard of a watcher has moved');
  for (const watcher of watchers) await pay(watcher);
  await stage.isAllTold();
});
