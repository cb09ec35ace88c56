/**
 * Rounds of violence against a follower, two delivery processes and an API process on one PostgreSQL, all behind a proxy. Each
 * round pays watched addresses and kills or cuts something meanwhile. Then all notifications must be delivered. An oracle that
 * reads the chain independently finds lost, doubled and made-up notifications.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Role } from '../../src/app/roles.ts';
import type { Address } from '../../src/core/hex.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { sql } from '../../src/store/db/sql.ts';
import { createOracle } from '../faults/oracle.ts';
import { findAll, noteRemovals } from '../faults/stage.ts';
import { startChain } from '../kit/anvil.ts';
import { startRestartingServer } from '../kit/postgres-server.ts';
import { type Program, startProgram } from '../kit/program.ts';
import { startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService, type Watcher } from '../kit/service.ts';
import { startTcpProxy } from '../kit/tcp-proxy.ts';
import { waitUntil } from '../kit/wait.ts';
import { createRandom } from './random.ts';

export type Round = {
  round: number;
  strike: string;
  transfers: number;
  /** Webhooks that were repeated after a 2xx, because they were in flight when their lease was lost. */
  repeated: number;
  lost: number;
  doubled: number;
  /** Time from the strike until all notifications were delivered. */
  recoveredMs: number;
};

export type KillStage = {
  /** Runs one more round. @throws AssertionError when it breaks a promise. */
  round(): Promise<Round>;
  [Symbol.asyncDispose](): Promise<void>;
};

type Arrival = { id: number; at: number; isTaken: boolean };

const PROCESSES: readonly { name: string; roles: readonly Role[] }[] = [
  { name: 'follower', roles: ['follower'] },
  { name: 'delivery 1', roles: ['delivery'] },
  { name: 'delivery 2', roles: ['delivery'] },
  { name: 'api', roles: ['api'] },
];
/** After these strikes, every worker still holds the leases of its delivery queues. */
const KEEPING_LEASES: ReadonlySet<string> = new Set(['kill -9 follower', 'kill -9 api']);
/** Each watcher has a separate delivery queue. */
const WATCHERS = 3;
const PAYMENTS_BEFORE = 6;
const PAYMENTS_MEANWHILE = 4;
/** The strike comes after at most this many webhooks of a round. */
const RECEIVED_MAX = 5;
const ANSWER_MS_MAX = 25;
const FAILING = 0.1;
/** 0.6 s between retries. */
const RETRY_MINUTES = [0.01];
/** PostgreSQL and all processes may have to restart on a machine that is busy with other work. */
const RECOVERY_MS_MAX = 90_000;

/** Sets up the stage. The seed determines strikes, their moments and the receiver's responses. */
export async function setKillStage(seed: number): Promise<KillStage> {
  const parts = new AsyncDisposableStack();
  try {
    return await build(parts, createRandom(seed));
  } catch (error) {
    await parts.disposeAsync();
    throw error;
  }
}

async function build(parts: AsyncDisposableStack, random: () => number): Promise<KillStage> {
  const pick = <T>(list: readonly T[]): T => {
    const one = list[Math.floor(random() * list.length)];
    assert(one !== undefined);
    return one;
  };
  const dataDir = await mkdtemp(path.join(tmpdir(), 'chainbell-kills-'));
  parts.defer(() => rm(dataDir, { recursive: true, force: true }));
  const server = await startRestartingServer();
  parts.defer(server.stop);
  const direct = new URL(server.url);
  const proxy = parts.use(await startTcpProxy({ host: direct.hostname, port: Number(direct.port) }));
  const proxied = new URL(direct);
  proxied.port = String(proxy.port);
  const chain = parts.use(await startChain());
  const startBlock = (await chain.head()).number + 1;

  /** All webhooks in the order of their arrival. */
  const received: Arrival[] = [];
  const receiver = parts.use(
    await startReceiver({
      async answer({ json }) {
        const isTaken = random() >= FAILING;
        received.push({ id: (json as { id: number }).id, at: performance.now(), isTaken });
        await delay(random() * ANSWER_MS_MAX);
        return { status: isTaken ? 204 : 503 };
      },
    }),
  );

  const database = await openDatabase({ url: direct.href, dataDir });
  parts.defer(() => database.close());
  const rpc = [chain.url, chain.wsUrl];
  const start = (roles: readonly Role[]) =>
    startProgram({
      database: { url: proxied.href, dataDir },
      ...{ rpc, startBlock, receiver, roles, retryMinutes: RETRY_MINUTES },
      // Anvil 1.7.1 sometimes hangs for good when it is traced while it mines.
      internalTransfers: 'off',
    });
  const programs = new Map<string, Program>();
  const get = (name: string): Program => {
    const program = programs.get(name);
    assert(program !== undefined);
    return program;
  };
  const kill = async (names: readonly string[]) => {
    for (const name of names) get(name).child.kill('SIGKILL');
    for (const name of names) await get(name).ended;
  };
  const killAndRestart = async (names: readonly string[]) => {
    await kill(names);
    for (const { name, roles } of PROCESSES) if (names.includes(name)) programs.set(name, start(roles));
  };

  // Migrates the database and issues the keys. After that, only the processes use it.
  const place = { url: direct.href, dataDir };
  const issuer = await startTestService({ database: place, rpc, receivers: [receiver], roles: ['api'] });
  await noteRemovals(database);
  const api = {
    get apiUrl() {
      return /"api":"(http[^"]+)"/.exec(get('api').log)?.[1] ?? 'http://127.0.0.1:1';
    },
    issueKey: issuer.issueKey,
  };
  const watchers: Watcher[] = [];
  for (let watcher = 1; watcher <= WATCHERS; watcher += 1)
    watchers.push(await createWatcher(api, `watcher ${watcher}`));
  await issuer.stop();
  for (const { name, roles } of PROCESSES) programs.set(name, start(roles));
  parts.defer(() => kill([...programs.keys()]));

  const records = new Map<Address, string>();
  /** Watches a new address through the API, with retries until a request succeeds. */
  const register = async (watcher = pick(watchers)) => {
    const added = await waitUntil(
      async () => {
        const address = freshAddress();
        const record = await watcher.watch({ address, webhookUrl: receiver.url }).catch(() => undefined);
        return record && { address, id: record.id };
      },
      { describe: 'the API to take an address', timeoutMs: RECOVERY_MS_MAX },
    );
    records.set(added.address, added.id);
  };
  for (const watcher of watchers) await register(watcher);

  let amount = 0n;
  /** Mines each payment in a separate block. */
  const pay = async (payments: number) => {
    for (let paid = 0; paid < payments; paid += 1) {
      amount += 1n;
      await chain.transferNative({
        from: chain.accounts[1],
        to: pick([...records.keys()]),
        valueWei: amount,
      });
    }
  };
  const settled = async () => {
    const head = await chain.head();
    const isSettled = async () => {
      const rows = await database
        .query(sql`
          select from block where '0x' || encode(hash, 'hex') = ${head.hash}
            and number = (select max(number) from block) and not exists (select from notification_status where state = 'waiting')`)
        .catch(() => []);
      return rows.length === 1;
    };
    await waitUntil(isSettled, { describe: 'the chain to be stored and told', timeoutMs: RECOVERY_MS_MAX });
  };

  const strikes: Record<string, () => Promise<void>> = {
    ...Object.fromEntries(PROCESSES.map(({ name }) => [`kill -9 ${name}`, () => killAndRestart([name])])),
    'kill -9 all processes': () => killAndRestart([...programs.keys()]),
    'kill -9 PostgreSQL': () => server.restart('SIGKILL'),
    'restart PostgreSQL': () => server.restart('SIGINT'),
    'cut a connection in mid-commit': () => proxy.cutAt('commit\0'),
    async 'cut all connections'() {
      await proxy.cut();
      await proxy.mend();
    },
  };
  /** Rows that are processed without a 2xx. */
  const countUntaken = async () => {
    const taken = new Set(received.filter(({ isTaken }) => isTaken).map(({ id }) => id));
    const rows = await database.query<{ id: number }>(sql`
      select id from notification_status where state = 'processed' order by id limit 100000`);
    return rows.filter(({ id }) => !taken.has(id)).length;
  };
  /** Stored attempts that the receiver did not see. */
  const countMadeUp = async () => {
    const rows = await database.query<{ id: number; count: number }>(sql`
      select notification_id as id, count(*) as count from delivery_attempt group by 1 order by 1 limit 100000`);
    const receivedOf = Map.groupBy(received, ({ id }) => id);
    return rows.filter(({ id, count }) => count > (receivedOf.get(id)?.length ?? 0)).length;
  };
  const oracle = createOracle(() => chain.url, records, startBlock);
  let rounds = 0;

  return {
    async round() {
      rounds += 1;
      const strike = pick(Object.keys(strikes));
      const receivedBefore = received.length;
      const receivedUntil = receivedBefore + Math.floor(random() * (RECEIVED_MAX + 1));
      await pay(PAYMENTS_BEFORE);
      await waitUntil(() => received.length >= receivedUntil, {
        describe: 'the moment of the strike',
        timeoutMs: RECOVERY_MS_MAX,
      });
      const startedAt = performance.now();
      await Promise.all([strikes[strike]?.(), pay(PAYMENTS_MEANWHILE), register()]);
      await settled();
      const recoveredMs = Math.round(performance.now() - startedAt);

      for (const [name, { child, log }] of programs)
        assert(
          child.exitCode === null && child.signalCode === null,
          `${name} has ended by itself: ${log.slice(-2_000)}`,
        );
      const verdict = await oracle.judge(await findAll({ service: { database }, receiver }), {
        mayRepeat: true,
      });
      const { wrongBlocks, doubled, falseNotices, falseRollbacks, transfers } = verdict;
      const lost = verdict.lost + (await countUntaken());
      const broken = {
        wrongBlocks,
        lost,
        doubled,
        falseNotices,
        falseRollbacks,
        madeUp: await countMadeUp(),
      };
      const nothing = { wrongBlocks: 0, lost: 0, doubled: 0, falseNotices: 0, falseRollbacks: 0, madeUp: 0 };
      assert.deepEqual(broken, nothing, strike);
      const repeated = countRepeated(received, { strike, startedAt, from: receivedBefore });
      return { round: rounds, strike, transfers, repeated, lost, doubled, recoveredMs };
    },
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
}

/**
 * Counts the webhooks of this round that were repeated after a 2xx; `from` is the round's start. A repetition is allowed only
 * after a strike that takes leases, and only for a webhook that was in flight when the lease was lost: received in this
 * round, and again after the strike.
 */
function countRepeated(
  received: readonly Arrival[],
  { strike, startedAt, from }: { strike: string; startedAt: number; from: number },
): number {
  const taken = new Map<number, number>();
  let repeated = 0;
  for (const [index, { id, at, isTaken }] of received.entries()) {
    const takenIndex = taken.get(id);
    if (takenIndex !== undefined && index >= from) {
      const isExplained = !KEEPING_LEASES.has(strike) && takenIndex >= from && at >= startedAt;
      assert(isExplained, `${id} came again ${Math.round(at - startedAt)} ms after ${strike}`);
      repeated += 1;
    }
    if (isTaken) taken.set(id, index);
  }
  return repeated;
}
