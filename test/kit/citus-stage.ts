/**
 * A service on a Citus cluster whose workers a test can cut off or freeze, with watchers on all workers, payments to them, and an
 * account of what the receiver has accepted.
 */
import assert from 'node:assert/strict';
import type { StatusBody } from '../../src/api/ops/status-body.ts';
import { type Chain, startChain } from './anvil.ts';
import { type CitusCluster, createCluster } from './citus-cluster.ts';
import { type Program, startProgram } from './program.ts';
import { type Receiver, startReceiver } from './receiver.ts';
import { createWatcher, freshAddress, startTestService } from './service.ts';
import { waitUntil } from './wait.ts';

/** Enough for watchers on each worker. */
const WATCHERS = 6;
const TOKEN = 'f00d'.repeat(8);

export type Payee = {
  id: number;
  address: `0x${string}`;
  worker: number;
  paid: string[];
  /** Reads the watched address through the API. */
  read(): Promise<Response>;
  /** Any other request of the watcher, below `/api/notifications`. */
  ask(method: string, path: string): Promise<Response>;
};
export type Stage = {
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

export async function setStage(
  parts: AsyncDisposableStack,
  { coordinator, workers: count, isApart }: { coordinator: string; workers: number; isApart: boolean },
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
    const ask = (method: string, path: string) =>
      fetch(`${service.apiUrl}/api/notifications${path}`, {
        ...{ method, headers: { authorization: `Bearer ${watcher.key}` } },
      });
    watchers.push({ id, address, read, ask, worker: await cluster.workerOf(id), paid: [] });
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
