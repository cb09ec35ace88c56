/**
 * Stops the real program while a receiver or the database hangs. Other processes continue its work.
 */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import type { Role } from '../../src/app/roles.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startDatabaseProxy } from '../faults/database-proxy.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { type Program, startProgram } from '../kit/program.ts';
import { startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

type Options = { roles?: readonly Role[]; stopSeconds?: number; url?: string };

/** A chain, a database with a watched address for `/slow` and one for `/fast`, and a receiver that answers `/slow` on request. */
async function setUp(parts: AsyncDisposableStack) {
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('postgres'));
  const answered = Promise.withResolvers<void>();
  const receiver = parts.use(
    await startReceiver({
      async answer({ path }) {
        if (path.startsWith('/slow')) await answered.promise;
        return { status: 200 };
      },
    }),
  );
  parts.defer(answered.resolve);
  const addresses = { '/slow': freshAddress(), '/fast': freshAddress() };
  const service = await startTestService({
    database: place,
    rpc: [chain.url],
    receivers: [receiver],
    roles: ['api'],
  });
  const watcher = await createWatcher(service, 'acme');
  for (const [path, address] of Object.entries(addresses))
    await watcher.watch({ address, webhookUrl: new URL(path, receiver.url).href });
  await service.stop();
  return {
    ...{ chain, place, receiver, key: watcher.key },
    /** A port that nothing listens on. */
    port: Number(new URL(service.apiUrl).port),
    database: await place.open(),
    answerSlow: answered.resolve,
    at: (path: keyof typeof addresses) => receiver.requests.filter((one) => one.path === path),
    pay: (path: keyof typeof addresses) =>
      chain.transferNative({ from: chain.accounts[1], to: addresses[path], valueWei: 1n }),
    async start({ roles, stopSeconds, url = place.url }: Options): Promise<Program> {
      const program = startProgram({
        ...{ database: { url, dataDir: place.dataDir }, rpc: [chain.url], startBlock: 1, receiver },
        ...(roles !== undefined && { roles }),
        ...(stopSeconds !== undefined && { stopSeconds }),
      });
      parts.defer(async () => {
        program.child.kill('SIGKILL');
        await program.ended;
      });
      await waitUntil(() => program.log.includes('"service.started"'), { describe: program.log });
      return program;
    },
  };
}

test('a stop waits for a receiver that is slow to answer, and meanwhile another process follows the chain', async () => {
  await using parts = new AsyncDisposableStack();
  const { database, start, pay, at, answerSlow } = await setUp(parts);
  const first = await start({ roles: ['follower', 'delivery'] });
  await start({ roles: ['follower'] });
  await pay('/slow');
  await waitUntil(() => at('/slow').length === 1);
  const leader = async () => {
    const [lock] = await database.query<{ pid: number }>(sql`
      select pid from pg_locks where locktype = 'advisory' and classid = ${0x6362_0004} and objid = 1 and granted`);
    return lock?.pid;
  };
  const former = await leader();
  first.child.kill('SIGTERM');
  await waitUntil(async () => ![undefined, former].includes(await leader()));
  assert.equal(first.child.exitCode, null, 'the first process still waits for the receiver');
  answerSlow();
  await first.ended;
  assert.equal(first.child.exitCode, 0, first.log);
  assert.match(first.log, /"service\.stopped"/);

  await start({ roles: ['delivery'] });
  await pay('/fast');
  await waitUntil(() => at('/fast').length === 1);
  assert.equal(at('/slow').length, 1);
});

test('an attempt that outlasts the stop is repeated by another process under the same id', async () => {
  await using parts = new AsyncDisposableStack();
  const { start, pay, at, answerSlow } = await setUp(parts);
  const first = await start({ stopSeconds: 3 });
  await pay('/slow');
  await waitUntil(() => at('/slow').length === 1);
  // As a terminal that is closed does.
  first.child.kill('SIGHUP');
  await first.ended;
  assert.equal(first.child.exitCode, 0, first.log);
  answerSlow();
  await start({ roles: ['delivery'] });
  const [one, other] = await waitUntil(() => at('/slow').length === 2 && at('/slow'));
  assert.equal(Object(one?.json).id, Object(other?.json).id);
});

test('a database that hangs does not keep a process from stopping, and another one loses nothing', async () => {
  await using parts = new AsyncDisposableStack();
  const { place, start, pay, at } = await setUp(parts);
  let hangs = false;
  const moment = { statements: ['insert into block'], when: 'asked' } as const;
  const proxy = parts.use(
    await startDatabaseProxy(place.url, moment, () => {
      hangs = true;
    }),
  );
  const first = await start({ url: proxy.url, stopSeconds: 5 });
  await pay('/fast');
  await waitUntil(() => hangs);
  first.child.kill('SIGTERM');
  // A statement may take two minutes, as long as this waits.
  let isOver = false;
  void first.ended.then(() => {
    isOver = true;
  });
  await waitUntil(() => isOver, { timeoutMs: 60_000, describe: 'the process to stop' });
  assert.equal(first.child.exitCode, 0, first.log);
  assert.match(first.log, /"left":\[[^\]]*"follower".*"service\.stop_cut"/);
  await start({});
  await pay('/fast');
  await waitUntil(() => at('/fast').length === 2);
});

test('a stop while the start waits for nodes begins no further attempt, and is cut in time', async () => {
  await using parts = new AsyncDisposableStack();
  const { place, receiver, key, port, start, pay, at } = await setUp(parts);
  await start({ roles: ['follower'] });
  const first = startProgram({
    ...{ database: place, rpc: ['http://127.0.0.1:1'], startBlock: 1, receiver },
    ...{ port, stopSeconds: 5 },
  });
  parts.defer(async () => {
    first.child.kill('SIGKILL');
    await first.ended;
  });
  await pay('/fast');
  await waitUntil(() => at('/fast').length === 1);
  const isOpen = () =>
    fetch(`http://127.0.0.1:${port}/livez`).then(
      ({ ok }) => ok,
      () => false,
    );
  await waitUntil(isOpen, { describe: first.log });
  // A request that never ends holds up the end of the API for as long as requests may take.
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  parts.defer(() => void socket.destroy());
  socket.write(
    `POST /api/notifications/watched-addresses HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n` +
      'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{',
  );
  // The server answers in order, so it has read the request by then.
  assert.ok(await isOpen());
  first.child.kill('SIGTERM');
  await waitUntil(async () => !(await isOpen()));
  await pay('/fast');
  await first.ended;
  assert.equal(first.child.exitCode, 0, first.log);
  assert.doesNotMatch(first.log, /"service\.started"/);
  assert.match(first.log, /"service\.stop_cut"/);
  assert.equal(at('/fast').length, 1);
  await start({ roles: ['delivery'] });
  await waitUntil(() => at('/fast').length === 2);
});
