/**
 * A Citus cluster that changes while the service runs: a worker is lost and comes back, and a worker is added. The oracle is the list
 * of payments. Runs where TEST_CITUS_URL names a coordinator with two workers (`npm run citus`).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StatusBody } from '../../src/api/ops/status-body.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { citusUrl } from '../kit/citus.ts';
import { type CitusCluster, createCluster } from '../kit/citus-cluster.ts';
import { type Program, startProgram } from '../kit/program.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const coordinator = citusUrl() ?? '';
const skip = coordinator === '' && 'TEST_CITUS_URL is not set: run `npm run citus -- system/citus`';
/** Enough for watchers on each worker. */
const WATCHERS = 6;
const TOKEN = 'f00d'.repeat(8);

for (const { name, isKilled } of [
  { name: 'a worker is lost', isKilled: false },
  { name: 'a worker is lost and the service is killed', isKilled: true },
])
  test(`while ${name}, blocks and webhooks of the other shards go on, also in a reorg; afterwards each payment is accepted once, and none of an orphaned block`, {
    skip,
  }, async () => {
    await using parts = new AsyncDisposableStack();
    const stage = await setStage(parts, { workers: 2, isApart: isKilled });
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
      return shards.length > 0 && cursor?.number === (await chain.head()).number;
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
    assert.equal(lost.lost_shards.length, 1);
    assert.equal(lost.lost_shards[0]?.worker, '…');
    const { lost_shards: named, problem } = await stage.operatorStatus();
    const [{ worker } = { worker: '' }] = named;
    assert.ok(worker.endsWith(`:${cluster.workers[1]?.port}`));
    assert.ok(problem?.message.includes(worker), problem?.message);
    assert.ok((lost.lost_shards[0]?.blocks ?? 0) > 0);
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
  const stage = await setStage(parts, { workers: 1, isApart: false });
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
  assert.deepEqual(await workers(), new Set([0, 1]));
  for (const watcher of watchers) await pay(watcher);
  await stage.isAllTold();
});

type Payee = {
  id: number;
  address: `0x${string}`;
  worker: number;
  paid: string[];
  /** Reads the watched address through the API. */
  read(): Promise<Response>;
};
type Stage = {
  cluster: CitusCluster;
  chain: Chain;
  receiver: Receiver;
  watchers: Payee[];
  /** Pays the watched address of a watcher, in a block. */
  pay(payee: Payee): Promise<void>;
  /** Kills the process that follows and delivers, and starts another one, if it is a separate one. */
  restart(): Promise<void>;
  /** How often the receiver has accepted the webhook of each payment. */
  told(): Map<string, number>;
  status(): Promise<StatusBody>;
  operatorStatus(): Promise<StatusBody>;
  /** Resolves when each payment has been accepted and stored as such. Each was accepted once. */
  isAllTold(): Promise<void>;
};

async function setStage(
  parts: AsyncDisposableStack,
  { workers: count, isApart }: { workers: number; isApart: boolean },
): Promise<Stage> {
  const chain = parts.use(await startChain());
  const accepted = new Map<string, number>();
  const receiver = parts.use(await startReceiver());
  const cluster = parts.use(await createCluster(coordinator, { count }));
  const service = parts.use(
    await startTestService({
      database: cluster,
      rpc: [chain.url],
      receivers: [receiver],
      retryMinutes: [0.01],
      adminToken: TOKEN,
      ...(isApart && { roles: ['api'] as const }),
    }),
  );
  let program: Program | undefined;
  async function startApart(): Promise<void> {
    const started = startProgram({
      database: cluster,
      rpc: [chain.url],
      startBlock: 1,
      receiver,
      roles: ['follower', 'delivery', 'prices'],
      retryMinutes: [0.01],
    });
    program = started;
    parts.defer(() => end(started));
    await waitUntil(() => started.log.includes('"service.started"'), { describe: 'a start' });
  }
  async function end({ child, ended }: Program): Promise<void> {
    child.kill('SIGKILL');
    await ended;
  }
  if (isApart) await startApart();
  const watchers: Payee[] = [];
  for (let number = 1; number <= WATCHERS; number += 1) {
    const watcher = await createWatcher(service, `watcher-${number}`);
    const address = freshAddress();
    const record = await watcher.watch({ address, webhookUrl: receiver.url });
    const { id } = watcher;
    const read = () => watcher.request('GET', `/${record.id}`);
    watchers.push({ id, address, read, worker: await cluster.workerOf(id), paid: [] });
  }
  const answer = receiver.setAnswer;
  const setAnswer: Receiver['setAnswer'] = (given) =>
    answer((request) => {
      const { hash } = Object(request.json);
      const isAccepted = typeof given === 'object' && 'status' in given && given.status === 200;
      if (isAccepted) accepted.set(hash, (accepted.get(hash) ?? 0) + 1);
      return typeof given === 'function' ? given(request, 0) : given;
    });
  setAnswer({ status: 200 });
  const told = () => accepted;
  return {
    cluster,
    chain,
    receiver: Object.assign(receiver, { setAnswer }),
    watchers,
    async pay({ address, paid }) {
      const { hash } = await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 1n });
      paid.push(hash);
    },
    async restart() {
      if (program === undefined) return;
      await end(program);
      await startApart();
    },
    told,
    status: async () => (await (await fetch(`${service.apiUrl}/status`)).json()) as StatusBody,
    async operatorStatus() {
      const headers = { authorization: `Bearer ${TOKEN}` };
      const response = await fetch(`${service.apiUrl}/api/admin/status`, { headers });
      const { data } = (await response.json()) as { data: StatusBody };
      return data;
    },
    async isAllTold() {
      const paid = watchers.flatMap((watcher) => watcher.paid);
      await waitUntil(() => paid.every((hash) => accepted.has(hash)), {
        describe: 'each payment told',
        timeoutMs: 60_000,
      });
      const isSettled = async () => {
        const [row] = await cluster.ask(`
          select count(*) filter (where state <> 'processed')::int as waiting, count(*)::int as all
          from notification_status where state <> 'withdrawn'`);
        return row?.waiting === 0 && row.all === paid.length;
      };
      await waitUntil(isSettled, { describe: 'one processed notification for each payment' });
      assert.deepEqual(new Map(accepted), new Map(paid.map((hash) => [hash, 1])));
    },
  };
}
