/**
 * The database crashes while webhooks are under way. The process lives, so it records their outcomes once the database is back, and sends
 * none of them again.
 */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { startChain } from '../kit/anvil.ts';
import { startRestartingServer } from '../kit/postgres-server.ts';
import { startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const CRASHES = 3;

test('receivers that answer while the database is away, or after it is back, get no webhook twice', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const receiver = parts.use(await startReceiver());
  const server = await startRestartingServer();
  parts.defer(server.stop);
  const dataDir = await mkdtemp(path.join(tmpdir(), 'chainbell-crash-'));
  parts.defer(() => rm(dataDir, { recursive: true, force: true }));
  const service = parts.use(
    await startTestService({
      database: { url: server.url, dataDir },
      rpc: [chain.url],
      receivers: [receiver],
    }),
  );
  const payees = [];
  for (const name of ['early', 'late', 'next']) {
    const watcher = await createWatcher(service, name);
    const address = freshAddress();
    await watcher.watch({ address, webhookUrl: `${receiver.url}/${name}` });
    payees.push({ name, address });
  }
  const requests = (name: string) => receiver.requests.filter(({ path: at }) => at.endsWith(`/${name}`));
  const [early, late, next] = payees;
  assert.ok(early !== undefined && late !== undefined && next !== undefined);
  for (let crash = 1; crash <= CRASHES; crash += 1) {
    const answers = new Map(['early', 'late'].map((name) => [name, Promise.withResolvers<void>()]));
    receiver.setAnswer(async ({ path: at }) => {
      await answers.get(at.split('/').at(-1) ?? '')?.promise;
      return { status: 200 };
    });
    for (const { address: to } of [early, late])
      await chain.transferNative({ from: chain.accounts[1], to, valueWei: 1n });
    await waitUntil(() => requests('early').length === crash && requests('late').length === crash);
    const restarted = server.restart('SIGKILL');
    answers.get('early')?.resolve();
    await restarted;
    const isBack = async () => (await fetch(`${service.apiUrl}/readyz`)).status === 200;
    await waitUntil(isBack, { describe: 'writes that succeed' });
    answers.get('late')?.resolve();
    await chain.transferNative({ from: chain.accounts[1], to: next.address, valueWei: 1n });
    await waitUntil(() => requests('next').length === crash, { describe: 'webhooks to go on' });
    await service.drained();
  }
  for (const { name } of payees) assert.equal(requests(name).length, CRASHES, name);
});
