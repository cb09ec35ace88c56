/**
 * Bugs in a running service. In work that blocks and webhooks don't depend on: only this work stops, every process says so, and it
 * goes on when it can. Elsewhere: the process ends, and the others say why.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startService } from '../../src/app/service.ts';
import { createLog } from '../../src/core/log.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import type { KnownStatus } from '../kit/known-status.ts';
import { startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService, testConfig } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

test('webhooks go on while a bug stops the statistics, and /status of each process names it', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const receiver = parts.use(await startReceiver());
  const database = parts.use(await createTestDatabase('postgres'));
  let text = '';
  const log = createLog({ level: 'error', format: 'pretty' }, { write: (line) => (text += line) });
  const common = { database, rpc: [chain.url], receivers: [receiver] };
  const service = parts.use(await startTestService({ ...common, log, roles: ['follower', 'delivery'] }));
  const api = parts.use(await startTestService({ ...common, roles: ['api'] }));
  let failed: Error | undefined;
  void service.failed.then((error) => {
    failed = error;
  });
  const watcher = await createWatcher(api, 'acme');
  const address = freshAddress();
  await watcher.watch({ address, webhookUrl: `${receiver.url}/acme` });
  const status = async () => (await (await fetch(`${api.apiUrl}/status`)).json()) as KnownStatus;
  await waitUntil(async () => (await status()).state === 'ok');

  await api.database.query(sql`alter table receiver_window rename to former_window`);
  const body = await waitUntil(async () => {
    const now = await status();
    return now.failing_work.length > 0 && now;
  });
  const [failing] = body.failing_work;
  assert.deepEqual([body.failing_work.length, failing?.work, body.state], [1, 'statistics', 'degraded']);
  assert.ok(body.processes.some((one) => one.id === failing?.process && one.roles.includes('delivery')));
  assert.deepEqual(body.problem, { message: failing?.message, since: failing?.since });
  assert.match(body.problem?.message ?? '', /statistics.*loop\.bug/);
  assert.match(text, /loop\.bug.*"loop":"statistics".*receiver_window/s);
  const ready = await fetch(`${api.apiUrl}/readyz`);
  assert.equal(ready.status, 200);

  await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 1n });
  await waitUntil(() => receiver.requests.length === 1);
  assert.equal(failed, undefined);

  await api.database.query(sql`alter table former_window rename to receiver_window`);
  // It leaves the list a minute later (test/app/work-watch.test.ts).
  await waitUntil(async () => (await api.database.query(sql`select from receiver_window`)).length > 0);
  assert.equal(failed, undefined);
});

test('a process that a bug ended is reported as such, not as stopped on request', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const receiver = parts.use(await startReceiver());
  const database = parts.use(await createTestDatabase('postgres'));
  let text = '';
  const log = createLog({ level: 'info', format: 'pretty' }, { write: (line) => (text += line) });
  const common = { database, rpc: [chain.url], receivers: [receiver] };
  // The test kit's service would end this test with the bug.
  const service = await startService(testConfig({ ...common, chain: { startBlock: 'latest' } }), {
    log,
    roles: ['follower'],
  });
  parts.defer(() => service.stop());
  const asked = parts.use(await startTestService({ ...common, roles: ['delivery'] }));
  const api = parts.use(await startTestService({ ...common, roles: ['api'] }));
  const status = async () => (await (await fetch(`${api.apiUrl}/status`)).json()) as KnownStatus;
  await waitUntil(async () => (await status()).processes.length === 3);
  await api.database.query(sql`alter table block rename to former_block`);
  await chain.mine(1);
  const bug = await service.failed;
  // Each part that reads blocks may be the first to fail.
  assert.match(bug.message, /failed: relation "block" does not exist/);
  await service.stop();
  await asked.stop();
  await api.database.query(sql`alter table former_block rename to block`);
  const body = await waitUntil(async () => {
    const now = await status();
    return now.missing.length > 0 && now;
  });
  const stateOf = (role: string) => body.processes.find(({ roles }) => roles.includes(role))?.state;
  assert.deepEqual(
    [stateOf('follower'), stateOf('delivery'), stateOf('api')],
    ['failed', 'stopped', 'running'],
  );
  assert.match(body.missing[0]?.message ?? '', /a bug ended process .*service\.failed/);
  assert.match(text, /service\.failed .*relation "block" does not exist/s);
  assert.doesNotMatch(text, /service\.stopped/);
});
