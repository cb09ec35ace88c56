/**
 * Ten fail-overs in a row, of the leading process and of the database, while payments arrive. The oracle is the list of payments.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import pg from 'pg';
import { startChain } from '../kit/anvil.ts';
import { startPostgresPair } from '../kit/postgres-pair.ts';
import { type Program, startProgram } from '../kit/program.ts';
import { startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService } from '../kit/service.ts';
import { startTcpProxy } from '../kit/tcp-proxy.ts';
import { waitUntil } from '../kit/wait.ts';

/** In the end the standby takes over, and refuses writes (SQLSTATE 25006) until it is promoted. */
const ROUNDS = [
  ...['leader', 'database', 'leader', 'database', 'leader'],
  ...['database', 'leader', 'database', 'leader', 'promotion'],
] as const;

test('ten fail-overs in a row lose no payment, tell none twice under another id, and invent none', async (t) => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const receiver = parts.use(await startReceiver());
  const pair = parts.use(await startPostgresPair());
  const proxy = parts.use(await startTcpProxy({ host: '127.0.0.1', port: pair.primary.port }));
  const dataDir = await mkdtemp(path.join(tmpdir(), 'chainbell-failovers-'));
  parts.defer(() => rm(dataDir, { recursive: true }));
  const url = new URL(pair.primary.url);
  url.port = String(proxy.port);
  const database = { url: url.href, dataDir };
  const address = freshAddress();
  const setUp = await startTestService({ database, rpc: [chain.url], receivers: [receiver], roles: ['api'] });
  const watcher = await createWatcher(setUp, 'acme');
  await watcher.watch({ address, webhookUrl: receiver.url });
  await setUp.stop();

  const programs: Program[] = [];
  async function start(): Promise<void> {
    const program = startProgram({
      database,
      rpc: [chain.url],
      startBlock: 1,
      receiver,
      retryMinutes: [0.01],
    });
    programs.push(program);
    parts.defer(async () => {
      program.child.kill('SIGKILL');
      await program.ended;
    });
    await waitUntil(() => program.log.includes('"service.started"'), { describe: 'a start' });
  }
  async function ask<Row>(text: string): Promise<Row | undefined> {
    const client = new pg.Client({ connectionString: url.href });
    client.on('error', () => {});
    try {
      await client.connect();
      return (await client.query(text)).rows[0];
    } finally {
      await client.end().catch(() => {});
    }
  }
  /** The operating system's process that holds the leader's lock. */
  async function findLeader(): Promise<Program> {
    return waitUntil(async () => {
      const row = await ask<{ pid: number }>(
        'select pid from process where leads order by seen_at desc limit 1',
      );
      return programs.find(({ child }) => child.pid === row?.pid && child.exitCode === null && !child.killed);
    });
  }
  const faults = {
    async leader() {
      const leader = await findLeader();
      leader.child.kill('SIGKILL');
      await leader.ended;
      await pay();
      await start();
    },
    /** The death of any backend makes PostgreSQL end all of them, recover and start again. */
    async database() {
      const client = new pg.Client({ connectionString: pair.primary.url });
      client.on('error', () => {});
      await client.connect();
      const { rows } = await client.query('select pg_backend_pid() as pid');
      process.kill(rows[0].pid, 'SIGKILL');
      await pay();
    },
    async promotion() {
      await pair.killPrimary();
      await proxy.cut();
      proxy.target = { host: '127.0.0.1', port: pair.standby.port };
      await proxy.mend();
      await pay();
      const meetsStandby = () => programs.some(({ log }) => /read-only/.test(log));
      await waitUntil(meetsStandby, { describe: 'a write that the standby refuses' });
      await pair.promote();
    },
  };

  const paid: string[] = [];
  async function pay(): Promise<void> {
    const { hash } = await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 1n });
    paid.push(hash);
  }
  const told = () =>
    receiver.requests.map(({ json }) => ({ hash: String(Object(json).hash), id: Number(Object(json).id) }));
  const areAllTold = () => new Set(told().map(({ hash }) => hash)).size === paid.length;

  await start();
  await start();
  for (const [index, kind] of ROUNDS.entries()) {
    await pay();
    const startedMs = performance.now();
    await faults[kind]();
    await pay();
    await waitUntil(areAllTold, { describe: `round ${index + 1}, ${kind}: each payment told` });
    t.diagnostic(
      `${index + 1} ${kind}: all told after ${((performance.now() - startedMs) / 1_000).toFixed(1)} s`,
    );
  }
  const ids = Map.groupBy(told(), ({ hash }) => hash);
  assert.deepEqual([...ids.keys()].sort(), paid.toSorted());
  for (const [hash, requests] of ids)
    assert.equal(new Set(requests.map(({ id }) => id)).size, 1, `${hash} has one id`);
  const isSettled = async () => {
    const row = await ask<{ waiting: number; all: number }>(`
      select count(*) filter (where state <> 'processed')::int as waiting, count(*)::int as all from notification_status`);
    return row?.waiting === 0 && row.all === paid.length;
  };
  await waitUntil(isSettled, { describe: 'one processed notification for each payment' });
  t.diagnostic(`${paid.length} payments, ${told().length} requests`);
});
