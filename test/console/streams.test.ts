/**
 * What live pages do when the database, the chain, the service or the watcher changes beside the stream, in a real browser.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sql } from '../../src/store/db/sql.ts';
import { hideTab, openTab } from '../kit/browser.ts';
import { createDeliveryTools, idsOf } from '../kit/console-deliveries.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher, freshAddress, type Watcher } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const HOUR_MS = 3_600_000;
const DAY_SECONDS = 86_400;
/** Longer than a list that isn't busy goes without a refresh. */
const REFRESH_MS = 31_000;

describe('streams', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage({ retryMinutes: [60] });
  });
  after(() => stage[Symbol.asyncDispose]());

  const { watching, received, sentIds, openLive } = createDeliveryTools(() => stage);

  async function logOf({ key }: Watcher): Promise<{ status: string; last_attempt: object | null }[]> {
    const response = await fetch(`${stage.service.apiUrl}/api/notifications/log?limit=100`, {
      headers: { authorization: `Bearer ${key}` },
    });
    return Object(await response.json()).data;
  }

  test('another database is noticed, although it knows the id of the last event', async () => {
    const { watcher, pay, id } = await watching('swapped');
    const page = await openLive('', { key: watcher.key });
    await pay(2);
    await page.locator('tbody tr').nth(1).waitFor();
    const { database } = stage.service;
    await database.query(sql`update migration set applied_at = applied_at + interval '1 hour'`);
    await database.query(sql`delete from notification where watched_address_id = ${id}::uuid`);
    await hideTab(page, true);
    await hideTab(page, false);
    await page.getByText('No transfer of your addresses has been seen yet').waitFor();
    await pay();
    await page.locator('tbody tr').first().waitFor();
    assert.deepEqual(await idsOf(page), sentIds('swapped').slice(0, 1));
    await page.context().close();
  });

  test('a watcher who is suspended learns it, and goes on once resumed', async () => {
    const { watcher, pay } = await watching('suspended');
    const page = await openLive('/deliveries', { key: watcher.key });
    const change = (what: 'suspend' | 'resume') =>
      fetch(`${stage.service.apiUrl}/api/admin/watchers/${watcher.id}/${what}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
      });
    await change('suspend');
    const strip = page.locator('.strip', { hasText: 'This watcher is suspended' });
    await strip.waitFor();
    await change('resume');
    await strip.waitFor({ state: 'detached' });
    await pay();
    await page.locator('tbody tr').first().waitFor();
    await page.context().close();
  });

  test('the live tail begins with the newest attempts, also those of older deliveries', async () => {
    const slow = Promise.withResolvers<void>();
    let first: unknown;
    stage.receiver.setAnswer(async ({ path, json }) => {
      if (!path.endsWith('/overtaken') || first !== undefined) return {};
      first = Object(json).id;
      await slow.promise;
      return {};
    });
    const { watcher, pay } = await watching('overtaken');
    const attempted = async () =>
      (await logOf(watcher)).filter(({ last_attempt: last }) => last !== null).length;
    await pay(12);
    await waitUntil(async () => (await attempted()) === 11);
    slow.resolve();
    await waitUntil(async () => (await attempted()) === 12);
    const page = await stage.open('', { key: watcher.key });
    await waitUntil(async () => String((await idsOf(page))[0]) === String(first));
    // Outcomes of attempts at the same time may be recorded in another order than they arrived in.
    const others = (await idsOf(page)).slice(1).map(String);
    assert.equal(new Set(others).size, 9);
    const sent = new Set(sentIds('overtaken').map(String));
    assert.ok(others.every((id) => sent.has(id) && id !== String(first)));
    await page.context().close();
    stage.receiver.setAnswer({});
  });

  test('a stream that ends at once each time is opened less and less often', async () => {
    const { watcher } = await watching('ending');
    const page = await stage.open('/supply', { key: watcher.key });
    let count = 0;
    await page.route('**/attempts/stream', (route) => {
      count += 1;
      return route.fulfill({ contentType: 'text/event-stream', body: 'retry: 2000\n\n' });
    });
    await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
    await page
      .getByText(/next try in ([6-9]|[12]\d) s/)
      .first()
      .waitFor();
    assert.ok(count <= 6, `${count} streams`);
    await page.context().close();
  });

  for (const [where, path] of [
    ['a list', '/deliveries'],
    ['the live tail of the overview', ''],
  ] as const)
    test(`${where} without new attempts shows a reorg within half a minute`, async () => {
      const { watcher, pay } = await watching(`reorged${path.length}`);
      const { page, context } = await openTab(stage.browser);
      await page.clock.install();
      await page.goto(`${stage.service.apiUrl}/console${path}#key=${watcher.key}`);
      await page.getByTitle('Live', { exact: true }).waitFor();
      await pay();
      await page.locator('tbody .state', { hasText: 'Delivered' }).waitFor();
      await stage.chain.reorg(1);
      await stage.chain.mine();
      await waitUntil(async () => (await logOf(watcher))[0]?.status === 'orphaned');
      await page.clock.fastForward(REFRESH_MS);
      await page.locator('tbody .state', { hasText: 'Orphaned' }).waitFor();
      await context.close();
    });

  test('a delivery that no longer matches leaves a live list, unless the pointer is on it', async () => {
    stage.receiver.setAnswer(({ path }) => (path.endsWith('/leaving-list') ? { status: 500 } : {}));
    const { watcher, pay } = await watching('leaving-list');
    const page = await openLive('/deliveries?status=retrying', { key: watcher.key });
    await pay(2);
    await page.locator('tbody tr').nth(1).waitFor();
    const [newest, older] = await idsOf(page);
    stage.receiver.setAnswer({});
    const sendAgain = (id: number | undefined) =>
      fetch(`${stage.service.apiUrl}/api/notifications/log/${id}/redeliver`, {
        method: 'POST',
        headers: { authorization: `Bearer ${watcher.key}` },
      });
    await sendAgain(newest);
    await page.locator('tbody tr').nth(1).waitFor({ state: 'detached' });
    assert.deepEqual(await idsOf(page), [older]);
    await page.locator('tbody tr').hover();
    await sendAgain(older);
    await page.locator('tbody .state', { hasText: 'Delivered' }).waitFor();
    await page.context().close();
  });

  test('live lists of one direction take the transfers of all addresses of a watcher with hundreds', async () => {
    const { watcher, pay } = await watching('hundreds-in');
    const payer = stage.chain.accounts[2];
    await watcher.watch({ address: payer, webhookUrl: `${stage.receiver.url}/hundreds-out` });
    const webhookUrl = `${stage.receiver.url}/hundreds-in`;
    for (let count = 0; count < 205; count += 1) await watcher.watch({ address: freshAddress(), webhookUrl });
    const last = freshAddress();
    await watcher.watch({ address: last, webhookUrl });
    const incoming = await openLive('/deliveries?direction=in', { key: watcher.key });
    const outgoing = await openLive('/deliveries?direction=out', { key: watcher.key });
    await pay();
    await stage.chain.transferNative({ from: payer, to: freshAddress(), valueWei: 1n });
    await stage.chain.transferNative({ from: stage.chain.accounts[1], to: last, valueWei: 1n });
    for (const [page, rows, name] of [
      [incoming, 2, 'hundreds-in'],
      [outgoing, 1, 'hundreds-out'],
    ] as const) {
      await page
        .locator('tbody tr')
        .nth(rows - 1)
        .waitFor();
      assert.deepEqual(await idsOf(page), sentIds(name));
      await page.context().close();
    }
  });

  test('an event that was damaged on its way is asked for again', async () => {
    const { watcher, pay } = await watching('damaged');
    const page = await stage.open('/supply', { key: watcher.key });
    let body = 'id: 1\nevent: attempt\ndata: {"id":1,"notif\n\n';
    const asked: (string | undefined)[] = [];
    await page.route('**/attempts/stream', async (route) => {
      asked.push(route.request().headers()['last-event-id']);
      if (body === '') return route.continue();
      await route.fulfill({ contentType: 'text/event-stream', body });
      body = '';
    });
    await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
    await waitUntil(() => asked.length > 1);
    assert.deepEqual(asked.slice(0, 2), [undefined, undefined]);
    await pay();
    await page.locator('tbody .state', { hasText: 'Delivered' }).waitFor();
    await page.context().close();
  });

  test('the time since when Chainbell does not answer is the server’s', async () => {
    const { page, context } = await openTab(stage.browser);
    await page.clock.install({ time: Date.now() + HOUR_MS });
    await page.goto(`${stage.service.apiUrl}/console#key=${stage.watcher.key}`);
    await page.getByRole('banner').getByText('ago').waitFor();
    await page.route(/\/(api|status)/, (route) => route.abort());
    const strip = page.locator('.strip', { hasText: /\(\d+ s\)/ });
    await strip.waitFor();
    const [, hours, minutes] = /since (\d\d):(\d\d):\d\d /.exec((await strip.textContent()) ?? '') ?? [];
    const shownSeconds = (Number(hours) * 60 + Number(minutes)) * 60;
    const secondsAgo = (Date.now() / 1000 - shownSeconds + DAY_SECONDS) % DAY_SECONDS;
    assert.ok(secondsAgo < HOUR_MS / 1000 / 2, `${hours}:${minutes} is ${secondsAgo} s ago`);
    await context.close();
  });

  test('a redelivery of several ends when its tab gets another session', async () => {
    const { watcher, pay } = await watching('leaving');
    await pay(2);
    await waitUntil(() => received('leaving').length === 2);
    const other = await createWatcher(stage.service, 'arriving');
    const page = await stage.open('/deliveries', { key: watcher.key });
    await page.locator('tbody tr').nth(1).waitFor();
    await page.getByLabel('Select all shown').click();
    const [asked, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const keys: (string | undefined)[] = [];
    await page.route('**/redeliver', async (route, request) => {
      keys.push(request.headers().authorization);
      asked.resolve();
      await gate.promise;
      await route.continue();
    });
    await page.getByRole('button', { name: 'Redeliver 2…' }).click();
    await page.getByRole('button', { name: 'Redeliver 2', exact: true }).click();
    await asked.promise;
    await page.evaluate(`void (location.hash = '#key=${other.key}')`);
    await page.getByText(`watcher ${other.id}`).waitFor();
    gate.resolve();
    await page.getByText('another key or watcher is in use now').waitFor();
    assert.deepEqual(keys, [`Bearer ${watcher.key}`]);
    await page.context().close();
  });
});
