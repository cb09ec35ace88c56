/**
 * Answers that are lost, changes in two tabs, and rows that leave a live list: what a visitor sees, and what is stored and sent.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { holdAnswer } from '../kit/browser.ts';
import { createDeliveryTools, idsOf } from '../kit/console-deliveries.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher, freshAddress, type Watcher } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

describe('mishaps', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage({ retryMinutes: [60] });
  });
  after(() => stage[Symbol.asyncDispose]());

  const { watching, received, openLive } = createDeliveryTools(() => stage);

  /** The service handles the next request of this kind, and its answer is lost. */
  const loseAnswer = (page: Page, url: string | RegExp, method = 'POST') =>
    page.route(
      url,
      async (route) => {
        if (route.request().method() !== method) return route.fallback();
        await route.fetch();
        return route.abort();
      },
      { times: 1 },
    );

  const redeliver = ({ key }: Watcher, path: string) =>
    fetch(`${stage.service.apiUrl}/api/notifications/log${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}` },
    });

  const recordsOf = async ({ request }: { request(method: string): Promise<Response> }) =>
    Object(await (await request('GET')).json()).data as {
      id: string;
      webhook_url: string;
      watch_coin: boolean;
    }[];

  test('an address whose answer was lost is watched once when it is sent again', async () => {
    const watcher = await createWatcher(stage.service, 'lost');
    const page = await stage.open('/addresses', { key: watcher.key });
    await page.getByRole('button', { name: 'New address' }).first().click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Address').fill(freshAddress());
    await dialog.getByLabel('Webhook URL').fill(`${stage.receiver.url}/lost`);
    await loseAnswer(page, /watched-addresses$/);
    await dialog.getByRole('button', { name: 'Watch' }).click();
    await dialog.getByText('Chainbell does not answer.').waitFor();
    await dialog.getByRole('button', { name: 'Watch' }).click();
    await page.getByRole('heading', { name: 'Watched address' }).waitFor();
    assert.equal((await recordsOf(watcher)).length, 1);
    await page.context().close();
  });

  test('changes of an address and of its settings in another tab are not undone', async () => {
    const watcher = await createWatcher(stage.service, 'tabs');
    const record = await watcher.watch({ address: freshAddress(), webhookUrl: `${stage.receiver.url}/old` });
    const page = await stage.open(`/addresses/${record.id}`, { key: watcher.key });
    await page.getByRole('button', { name: 'Edit…' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Native coin').uncheck();
    const webhookUrl = `${stage.receiver.url}/new`;
    await watcher.patch(record, { webhook_url: webhookUrl });
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.waitFor({ state: 'detached' });
    const [stored] = await recordsOf(watcher);
    assert.deepEqual([stored?.webhook_url, stored?.watch_coin], [webhookUrl, false]);

    await page.getByLabel('Confirmations').waitFor();
    await watcher.configure(record, { confirmations: 12 });
    await page.getByLabel('Removal notices').check();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByRole('alert').filter({ hasText: 'changed elsewhere' }).waitFor();
    const { data } = Object(await (await watcher.request('GET', `/${record.id}/settings`)).json());
    assert.deepEqual([data.confirmations, data.removed], [12, false]);
    await page.context().close();
  });

  test('drafts, dialogs and verdicts of one watched address are gone on the page of the next one', async () => {
    const watcher = await createWatcher(stage.service, 'neighbors');
    const watch = (name: string) =>
      watcher.watch({ address: freshAddress(), webhookUrl: `${stage.receiver.url}/${name}` });
    const [one, other] = [await watch('one'), await watch('other')];
    const page = await stage.open(`/addresses/${one.id}`, { key: watcher.key });
    const untilShown = (record: { address: string }) =>
      page.locator('main').getByText(record.address).first().waitFor();
    await untilShown(one);
    const confirmations = page.getByLabel('Confirmations');
    const first = await confirmations.inputValue();
    const search = page.getByRole('searchbox').first();
    await search.fill(other.id);
    await search.press('Enter');
    await untilShown(other);
    await confirmations.fill('77');
    await page.getByRole('button', { name: 'Send a test' }).click();
    const verdict = page.locator('section[aria-labelledby=test] .notice');
    await verdict.waitFor();
    await page.getByRole('button', { name: 'Edit…' }).click();
    await page.getByRole('dialog').getByLabel('Native coin').uncheck();
    await page.goBack();
    await untilShown(one);
    assert.equal(await page.getByRole('dialog').count(), 0);
    assert.equal(await confirmations.inputValue(), first);
    assert.equal(await verdict.count(), 0);
    await page.context().close();
  });

  test('Shift+T sends one test webhook, however long it is held, and none while one is under way', async () => {
    const watcher = await createWatcher(stage.service, 'held key');
    const record = await watcher.watch({ address: freshAddress(), webhookUrl: `${stage.receiver.url}/held` });
    const page = await stage.open(`/addresses/${record.id}`, { key: watcher.key });
    await page.getByRole('button', { name: 'Send a test' }).waitFor();
    let sent = 0;
    page.on('request', (one) => {
      if (one.url().endsWith('/test')) sent += 1;
    });
    const verdict = page.locator('section[aria-labelledby=test] .notice');
    const answer = await holdAnswer(page, /\/test$/);
    await page.keyboard.press('Shift+T');
    await answer.held;
    await page.keyboard.down('Shift');
    await page.keyboard.down('T');
    await answer.release();
    await verdict.waitFor();
    await page.keyboard.down('T');
    await page.keyboard.up('T');
    await page.keyboard.up('Shift');
    const again = page.waitForResponse(/\/test$/);
    await page.keyboard.press('Shift+T');
    await again;
    await verdict.waitFor();
    assert.equal(sent, 2);
    await page.context().close();
  });

  test('a delivery whose page was left during a redelivery is loaded no more', async () => {
    const { watcher, pay } = await watching('left');
    await pay();
    await waitUntil(() => received('left').length === 1);
    const page = await openLive('/deliveries', { key: watcher.key });
    await page.locator('tbody tr').first().click();
    const panel = page.getByRole('complementary');
    await panel.getByRole('button', { name: 'Send again…' }).click();
    const answer = await holdAnswer(page, /redeliver$/);
    await panel.getByRole('button', { name: 'Send', exact: true }).click();
    await answer.held;
    await page.getByRole('link', { name: 'Addresses', exact: true }).first().click();
    await page.getByRole('heading', { name: 'Addresses' }).waitFor();
    const loads: string[] = [];
    page.on('request', (one) => /log\/\d+$/.test(one.url()) && loads.push(one.url()));
    await answer.release();
    assert.deepEqual(loads, []);
    await page.context().close();
  });

  test('a second watcher is resumed while the answer for the first is late', async () => {
    for (const name of ['resting one', 'resting two']) {
      const { id } = await createWatcher(stage.service, name);
      await fetch(`${stage.service.apiUrl}/api/admin/watchers/${id}/suspend`, {
        method: 'POST',
        headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
      });
    }
    const page = await stage.open('/watchers', { admin: ADMIN_TOKEN });
    const answer = await holdAnswer(page, /resume$/);
    await page.getByRole('button', { name: 'Resume resting one' }).click();
    await answer.held;
    await page.getByRole('button', { name: 'Resume resting two' }).click();
    await page.getByRole('button', { name: 'Suspend… resting two' }).waitFor();
    await answer.release();
    await page.getByRole('button', { name: 'Suspend… resting one' }).waitFor();
    await page.context().close();
  });

  test('an import does not end by a key, and a redelivery whose answer was lost goes on', async () => {
    const { watcher, pay } = await watching('going-on');
    await pay(3);
    await waitUntil(() => received('going-on').length === 3);
    const page = await stage.open('/deliveries?status=delivered', { key: watcher.key });
    await page.locator('tbody tr').nth(2).waitFor();
    await page.getByRole('button', { name: 'Redeliver…' }).click();
    await loseAnswer(page, /log\/redeliver/);
    await page.getByRole('button', { name: 'Redeliver 3' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('has no answer, so some or all of it may be due too').waitFor();
    await dialog.getByRole('button', { name: 'Repeat and go on' }).click();
    await dialog.getByText(/^\d are due now/).waitFor();
    await waitUntil(() => received('going-on').length >= 6);
    await dialog.getByRole('button', { name: 'Close' }).last().click();

    await page.getByRole('link', { name: 'Addresses', exact: true }).first().click();
    await page.getByRole('button', { name: 'Import a CSV' }).click();
    await dialog.getByLabel('Or paste lines').fill(`${freshAddress()},${stage.receiver.url}/imported`);
    const held = Promise.withResolvers<void>();
    await page.route(/bulk$/, async (route) => {
      await held.promise;
      return route.continue();
    });
    await dialog.getByRole('button', { name: 'Import 1' }).click();
    await dialog.getByText('0 of 1 lines are answered').waitFor();
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    held.resolve();
    await dialog.getByText('1 address is watched').waitFor();
    await page.context().close();
  });

  test('a list whose rows all leave shows the next ones, and never that nothing matches', async () => {
    stage.receiver.setAnswer(({ path }) => (path.endsWith('/draining') ? { status: 500 } : {}));
    const { watcher, pay } = await watching('draining');
    await pay(54);
    await waitUntil(() => received('draining').length === 54);
    const page = await openLive('/deliveries?status=retrying', { key: watcher.key });
    await page.locator('tbody tr').nth(49).waitFor();
    await page.evaluate(`
      window.wasEmpty = false;
      new MutationObserver(() => {
        if (document.querySelector('main .empty') !== null) window.wasEmpty = true;
      }).observe(document.body, { childList: true, subtree: true })`);
    await page.mouse.move(0, 0);
    stage.receiver.setAnswer({});
    for (const id of await idsOf(page)) await redeliver(watcher, `/${id}/redeliver`);
    await page.getByText('4 match').waitFor();
    assert.equal(await page.locator('tbody tr').count(), 4);
    assert.equal(await page.evaluate('window.wasEmpty'), false);
    await page.context().close();
  });

  test('new deliveries that no longer match are not counted', async () => {
    stage.receiver.setAnswer(({ path }) => (path.endsWith('/counted') ? { status: 500 } : {}));
    const { watcher, pay } = await watching('counted');
    const page = await openLive('/deliveries?status=retrying', { key: watcher.key });
    await pay();
    await page.locator('tbody tr').first().hover();
    await pay(2);
    await page.getByRole('button', { name: '2 new' }).waitFor();
    await page.getByText('3 match').waitFor();
    stage.receiver.setAnswer({});
    await redeliver(watcher, '/redeliver?status=retrying');
    await page.getByRole('button', { name: /new$/ }).waitFor({ state: 'detached' });
    await page.context().close();
  });

  test('a page beyond the number of streams says why it is not live', async () => {
    const { watcher } = await watching('streams');
    const page = await stage.open('/supply', { key: watcher.key });
    await page.route('**/attempts/stream', (route) =>
      route.fulfill({ status: 429, json: { success: false, statusMessage: 'Too many streams are open' } }),
    );
    await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
    await page.getByText('as many pages are live as the service allows').waitFor();
    await page.context().close();
  });

  test('points of a transaction that no node knows are not said to be none', async () => {
    const page = await stage.open('/supply', { admin: ADMIN_TOKEN });
    const missing = { message: 'no node answers' };
    await page.route(/points.explain/, (route) =>
      route.fulfill({
        json: { success: true, data: { block_number: null, missing, awards: [], logs: null } },
      }),
    );
    await page.goto(`${stage.service.apiUrl}/console/explain/0x${'ab'.repeat(32)}`);
    await page.getByText('Whether it earned points is not known').waitFor();
    assert.equal(await page.getByText('earned no points').count(), 0);
    await page.context().close();
  });
});
