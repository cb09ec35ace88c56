/**
 * A worker of a Citus cluster that is lost while a block's two-phase commit is under way: prepared on both workers, and decided or
 * not. Runs where TEST_CITUS_URL names a coordinator with two workers (`npm run citus`).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import pg from 'pg';
import { citusUrl, withHost } from '../kit/citus.ts';
import type { CitusCluster } from '../kit/citus-cluster.ts';
import { setStage } from '../kit/citus-stage.ts';
import { waitUntil } from '../kit/wait.ts';

const coordinator = citusUrl() ?? '';
const skip = coordinator === '' && 'TEST_CITUS_URL is not set: run `npm run citus -- system/citus-commits`';
/** Of the advisory lock that holds up PREPARE TRANSACTION on the worker. */
const KEY = 716_253_401;

for (const { name, isDecided } of [
  { name: 'before the coordinator has decided', isDecided: false },
  { name: 'after the coordinator has committed', isDecided: true },
])
  test(`a worker is lost with a block that it has prepared, ${name}: afterwards each payment is accepted once`, {
    skip,
  }, async () => {
    await using parts = new AsyncDisposableStack();
    const stage = await setStage(parts, { coordinator, workers: 2, isApart: false });
    const { chain, cluster, watchers, pay, told, status } = stage;
    const worker = cluster.workers[1];
    const [near, far] = [0, 1].map((index) => watchers.find((one) => one.worker === index));
    assert.ok(worker !== undefined && near !== undefined && far !== undefined);
    for (const watcher of watchers) await pay(watcher);
    const areTold = () => watchers.every(({ paid }) => paid.every((hash) => (told().get(hash) ?? 0) > 0));
    await waitUntil(areTold, { describe: 'the first payments' });
    const held = await holdPrepares(parts, cluster, 1);

    await chain.pauseMining();
    const hashes = [];
    for (const [index, { address: to }] of [near, far].entries())
      hashes.push(await chain.send({ from: chain.accounts[index] ?? chain.accounts[0], to, valueWei: 1n }));
    await chain.mine();
    const block = (await chain.head()).number;
    await held.isReached();
    worker.freeze('answers');
    await held.letGo();
    await waitUntil(held.isPrepared, { describe: 'a prepared transaction', timeoutMs: 60_000 });
    const isStored = async () => {
      const [row] = await cluster.ask('select max(number)::int as number from block');
      return row?.number === block;
    };
    assert.equal(await isStored(), false);
    if (isDecided) {
      worker.freeze('requests');
      await waitUntil(isStored, { describe: 'the commit on the coordinator' });
      assert.equal(await held.isPrepared(), true);
    }
    await worker.cut();
    worker.thaw();
    near.paid.push(hashes[0] ?? '');
    far.paid.push(hashes[1] ?? '');

    await chain.resumeMining();
    await pay(near);
    const hasGoneOn = async () => {
      const { cursor, lost_shards: shards } = await status();
      return shards !== null && shards.length > 0 && cursor?.number === (await chain.head()).number;
    };
    await waitUntil(hasGoneOn, { describe: 'the newest block, without the lost shards' });
    assert.equal(await held.isPrepared(), true);
    await worker.mend();
    await stage.isAllTold();
    await waitUntil(async () => !(await held.isPrepared()), { describe: 'the end of what was prepared' });
  });

/** Until `letGo`, transactions that write to the delivery queue of the worker wait in PREPARE TRANSACTION. */
async function holdPrepares(parts: AsyncDisposableStack, cluster: CitusCluster, index: number) {
  const { host = '', port = 0 } = cluster.workers[index]?.target ?? {};
  const client = new pg.Client({ connectionString: withHost(cluster.url, host, port) });
  client.on('error', () => {});
  await client.connect();
  parts.defer(() => client.end());
  const shards = await cluster.ask(
    `select s.shardid from pg_dist_shard s join pg_dist_placement p using (shardid) join pg_dist_node n using (groupid)
     where s.logicalrelid = 'queue'::regclass and n.nodeport = $1`,
    [cluster.workers[index]?.port],
  );
  await client.query(`
    set citus.enable_ddl_propagation = off;
    create function hold_commit() returns trigger language plpgsql as $$
      begin perform pg_advisory_xact_lock_shared(${KEY}); return null; end $$`);
  for (const { shardid } of shards)
    await client.query(`
      create constraint trigger hold_commit after insert on queue_${Number(shardid)} deferrable initially deferred
      for each row execute function hold_commit()`);
  await client.query(`select pg_advisory_lock(${KEY})`);
  const has = async (text: string) => {
    const { rows } = await client.query(`select exists (${text}) as found`);
    return rows[0]?.found === true;
  };
  return {
    /** Resolves when a transaction waits. */
    isReached: () =>
      waitUntil(
        () => has(`select from pg_locks where locktype = 'advisory' and objid = ${KEY} and not granted`),
        {
          describe: 'a transaction that waits in PREPARE TRANSACTION',
          timeoutMs: 60_000,
        },
      ),
    letGo: () => client.query(`select pg_advisory_unlock(${KEY})`),
    isPrepared: () => has('select from pg_prepared_xacts where database = current_database()'),
  };
}
