/**
 * A process whose start fails after it has registered: the others say so, with the reason.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { test } from 'node:test';
import { roles } from '../../src/app/roles.ts';
import { startService } from '../../src/app/service.ts';
import { silentLog } from '../../src/core/log.ts';
import { insertChain } from '../../src/store/blocks/blocks.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import type { KnownStatus } from '../kit/known-status.ts';
import { CHAIN_ID, startTestService, testConfig } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

test('a process whose start fails is listed as failed with the reason, and one that was asked to end during its start as stopped', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const database = parts.use(await createTestDatabase('postgres'));
  const common = { database, rpc: [chain.url] };
  const api = parts.use(await startTestService({ ...common, roles: ['api'] }));
  const status = async () => (await (await fetch(`${api.apiUrl}/status`)).json()) as KnownStatus;
  const processOf = async (role: string) =>
    (await status()).processes.find(({ roles }) => roles.includes(role));

  const taken = testConfig({ ...common, port: Number(new URL(api.apiUrl).port) });
  const events: string[] = [];
  const log = { ...silentLog(), info: (...words: unknown[]) => void events.push(String(words.at(-1))) };
  await assert.rejects(startService(taken, { log, roles: ['api', 'follower'] }), { code: 'conflict' });
  assert.deepEqual(events, [], 'it did not stop cleanly');
  const failed = await waitUntil(() => processOf('follower'));
  assert.equal(failed.state, 'failed');
  assert.match(failed.error ?? '', /http\.port/);
  const problem = await waitUntil(async () => (await status()).problem ?? undefined);
  assert.match(
    problem.message,
    new RegExp(`^no process follows the chain: the start of process ${failed.id} failed: .*http\\.port`),
  );

  const asked = new AbortController();
  const unreachable = testConfig({ ...common, rpc: ['http://127.0.0.1:1'] });
  const starting = startService(unreachable, {
    ...{ log, roles: ['follower', 'prices'], signal: asked.signal },
  });
  await waitUntil(() => processOf('prices'));
  asked.abort();
  await assert.rejects(starting);
  assert.deepEqual(
    await waitUntil(async () => {
      const one = await processOf('prices');
      return one?.state !== 'running' && [one?.state, one?.error];
    }),
    ['stopped', null],
  );
  assert.equal(events.at(-1), 'service.stopped');
});

test('no role starts on the database of another chain, and none registers a process there', async () => {
  await using parts = new AsyncDisposableStack();
  const database = parts.use(await createTestDatabase('postgres'));
  const all = await database.open();
  await insertChain(all, CHAIN_ID + 1, undefined);
  const config = testConfig({ database, rpc: ['http://127.0.0.1:1'] });
  const message = `the database belongs to chain ${CHAIN_ID + 1}, but chain.id is ${CHAIN_ID}. Change chain.id, or use another database`;
  for (const role of roles)
    await assert.rejects(
      startService(config, { log: silentLog(), roles: [role] }).then(async (service) => {
        await service.stop();
      }),
      { code: 'conflict', message },
      role,
    );
  assert.deepEqual(await all.query(sql`select from process limit 1`), [], 'a process has registered');
});

test('a start that waits for a node without an answer ends as soon as it is asked to', async () => {
  await using parts = new AsyncDisposableStack();
  const asks: Socket[] = [];
  const node = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => asks.push(socket));
  }).listen(0, '127.0.0.1');
  await once(node, 'listening');
  parts.defer(() => void node.close());
  parts.defer(() => {
    for (const socket of asks) socket.destroy();
  });
  const { port } = node.address() as AddressInfo;
  const config = testConfig({
    database: parts.use(await createTestDatabase('postgres')),
    rpc: [`http://127.0.0.1:${port}`],
  });
  const warnings: string[] = [];
  const log = { ...silentLog(), warn: (about: object) => void warnings.push(JSON.stringify(about)) };
  const asked = new AbortController();
  const starting = startService(config, { log, roles: ['follower'], signal: asked.signal });
  await waitUntil(() => asks.length > 0);
  asked.abort();
  await assert.rejects(starting, (error) => error === asked.signal.reason);
  assert.deepEqual(
    warnings.filter((one) => one.includes('does not answer')),
    [],
    'the request ended because of the stop, not because its time was over',
  );
});
