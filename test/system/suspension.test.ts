/**
 * Suspends a watcher while several processes send its webhooks. The webhooks stop, new notifications wait, and none is lost
 * or sent twice.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../../src/core/clock.ts';
import { sql } from '../../src/store/db/sql.ts';
import { beginRemoval, removeBatch } from '../../src/store/watchers/watcher-removal.ts';
import { resumeWatcher, suspendWatcher } from '../../src/store/watchers/watchers.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import { startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

for (const kind of sampledKinds(import.meta.url))
  test(`${kind}: a suspended watcher gets no webhooks, and all of them once, the oldest first, when it is resumed`, async () => {
    await using parts = new AsyncDisposableStack();
    const chain = parts.use(await startChain());
    const place = parts.use(await createTestDatabase(kind));
    const receiver = parts.use(await startReceiver());
    const other = parts.use(await startReceiver());
    const options = {
      ...{ database: place, rpc: [chain.url], receivers: [receiver, other], retryMinutes: [0.01] },
      // The chain keeps mining, and must not be traced meanwhile.
      chain: { internalTransfers: 'off' },
    } as const;
    const service = parts.use(await startTestService(options));
    if (kind === 'postgres') parts.use(await startTestService({ ...options, roles: ['delivery'] }));
    const [acme, neighbour] = [await createWatcher(service, 'acme'), await createWatcher(service, 'other')];
    const address = freshAddress();
    await acme.watch({ address, webhookUrl: receiver.url });
    await neighbour.watch({ address, webhookUrl: other.url });

    let paid = 0;
    let isPaying = true;
    const paying = (async () => {
      while (isPaying) {
        paid += 1;
        await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: BigInt(paid) });
      }
    })();
    parts.defer(async () => {
      isPaying = false;
      await paying;
    });
    const { database } = service;
    await receiver.waitFor(5, 60_000);
    // Failed attempts are due again at once, because retries must stop too.
    receiver.setAnswer({ status: 500 });
    const failing = () =>
      database.query(
        sql`select from notification_status where watcher_id = ${acme.id} and retry_count > 1 limit 1`,
      );
    await waitUntil(async () => (await failing()).length > 0, { describe: 'a retry' });
    const isSending = async () =>
      (await database.query(sql`select from lane where watcher_id = ${acme.id} and owner is not null`))
        .length > 0;
    const retries = async () => {
      const [row] = await database.query<{ count: number }>(
        sql`select sum(retry_count)::int8 as count from notification_status where watcher_id = ${acme.id}`,
      );
      return row?.count;
    };

    await suspendWatcher(database, acme.id, systemClock().now());
    await waitUntil(async () => !(await isSending()), { describe: 'attempts under way to end' });
    const stopped = receiver.requests.length;
    const retryCount = await retries();
    /** Waits long enough for workers to lease, retry and send. */
    const othersGoOn = async () => {
      const count = other.requests.length;
      await waitUntil(() => other.requests.length > count + 20, { describe: 'the neighbour to be sent to' });
    };
    await othersGoOn();
    assert.equal((await acme.request('GET')).status, 403);
    // A process that starts finds the suspension.
    if (kind === 'postgres') parts.use(await startTestService({ ...options, roles: ['delivery'] }));
    await othersGoOn();
    assert.equal(receiver.requests.length, stopped);
    assert.equal(await retries(), retryCount, 'waiting is no attempt');

    isPaying = false;
    await paying;
    await service.inSync(chain);
    receiver.setAnswer({});
    assert.equal(await resumeWatcher(database, acme.id), 'active');
    await service.drained();
    const amounts = receiver.requests
      .filter((_request, index) => index >= stopped)
      .map(({ json }) => Number(Object(json).amount));
    const before = await database.query<{ amount: number }>(sql`
      select amount::int8 as amount from notification_status
      where watcher_id = ${acme.id} and state = 'processed' order by id limit 10000`);
    assert.deepEqual(
      before.map(({ amount }) => amount),
      Array.from({ length: paid }, (_, index) => index + 1),
    );
    assert.equal(new Set(amounts).size, amounts.length, 'none twice');
    // Those that nothing was sent of before the suspension. Many are under way at once, so a receiver sees them in another order.
    const tried = new Set(receiver.requests.slice(0, stopped).map(({ json }) => Number(Object(json).amount)));
    const firsts = amounts.filter((amount) => !tried.has(amount));
    const oldest = firsts.indexOf(Math.min(...firsts));
    assert.ok(oldest >= 0 && oldest < 128, `the oldest was sent after ${oldest} others`);
  });

test('a watcher can be deleted during deliveries and transfers, even if the first caller is killed', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('postgres'));
  const receiver = parts.use(await startReceiver());
  const chainOptions = { internalTransfers: 'off' } as const;
  const options = { database: place, rpc: [chain.url], receivers: [receiver], chain: chainOptions };
  const service = parts.use(await startTestService(options));
  const acme = await createWatcher(service, 'acme');
  const addresses = Array.from({ length: 50 }, freshAddress);
  for (const address of addresses) await acme.watch({ address, webhookUrl: receiver.url });
  let isPaying = true;
  const paying = (async () => {
    for (let index = 0; isPaying; index += 1) {
      const to = addresses[index % addresses.length] ?? freshAddress();
      await chain.transferNative({ from: chain.accounts[1], to, valueWei: 1n });
    }
  })();
  parts.defer(async () => {
    isPaying = false;
    await paying;
  });
  await receiver.waitFor(20, 60_000);
  const { database } = service;
  assert.ok(await beginRemoval(database, acme.id, systemClock().now()));
  assert.equal((await acme.request('GET')).status, 401);
  // The first caller ends after one batch.
  await waitUntil(async () => (await removeBatch(database, acme.id)) !== 'sending', { describe: 'a batch' });
  await waitUntil(async () => (await removeBatch(database, acme.id)) === 'gone', { describe: 'the rest' });
  const sent = receiver.requests.length;
  const { number } = await chain.head();
  await waitUntil(async () => (await chain.head()).number > number + 10, { describe: 'more payments' });
  isPaying = false;
  await paying;
  await service.inSync(chain);
  assert.equal(receiver.requests.length, sent);
  for (const table of [
    'watcher',
    'watched_address',
    'notification',
    'queue',
    'ended',
    'lane',
    'delivery_attempt',
    'watcher_queue',
  ])
    assert.deepEqual(await database.query({ text: `select * from ${table}`, values: [] }), [], table);
});
