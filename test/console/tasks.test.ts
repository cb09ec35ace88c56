/**
 * What visitors do in the console: redeliver from several pages, correct a file, use dialogs by keyboard, wait for a service that
 * is away, and look after suspended watchers.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { openTab, untilTrue } from '../kit/browser.ts';
import { createDeliveryTools } from '../kit/console-deliveries.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher, freshAddress } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

/** The time limit of a request. */
const REQUEST_MS = 35_000;

describe('tasks', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage({ retryMinutes: [60] });
  });
  after(() => stage[Symbol.asyncDispose]());

  const { watching, received, openLive } = createDeliveryTools(() => stage);

  /** What the button copied. */
  async function copyFrom(page: Page): Promise<string> {
    await page.evaluate('navigator.clipboard.writeText = async (text) => { window.copied = text; }');
    await page.getByRole('button', { name: 'Copy as curl' }).last().click();
    await untilTrue(page, 'window.copied');
    return page.evaluate<string>('window.copied');
  }

  test('a page that is opened while the service is away appears as soon as it is back', async () => {
    const { key } = await createWatcher(stage.service, 'away');
    const page = await stage.open('/deliveries', { key });
    await page.getByText('No transfers of your addresses yet').waitFor();
    await stage.restart(async () => {
      await page.getByText('No connection to Chainbell since').waitFor();
      await page.getByRole('link', { name: 'Receivers' }).first().click();
      await page.waitForURL('**/console/receivers');
    });
    await page.getByRole('heading', { name: 'Receivers' }).waitFor();
    assert.equal(await page.getByText('could not be loaded').count(), 0);
    await page.context().close();
  });

  test('a file that a newer console no longer has is not waited for', async () => {
    const { key } = await createWatcher(stage.service, 'newer');
    const page = await stage.open('/deliveries', { key });
    await page.getByText('No transfers of your addresses yet').waitFor();
    await page.route('**/assets/receivers*', (route) => route.fulfill({ status: 404 }));
    await page.getByRole('link', { name: 'Receivers' }).first().click();
    await page.getByText('The service may have a newer console').waitFor();
    await page.unroute('**/assets/receivers*');
    await page.getByRole('button', { name: 'Reload' }).click();
    await page.getByRole('heading', { name: 'Receivers' }).waitFor();
    await page.context().close();
  });

  test('a page whose file could not be loaded comes back, although the service hung meanwhile', async () => {
    const page = await stage.open('/supply', { key: stage.watcher.key });
    await page.getByRole('heading', { name: 'Supply' }).waitFor();
    await page.route('**/assets/receivers*', (route) => route.abort(), { times: 1 });
    const hung = Promise.withResolvers<void>();
    await page.route('**/console/receivers', () => hung.resolve(), { times: 1 });
    await page.getByRole('link', { name: 'Receivers' }).click();
    await hung.promise;
    await page.getByRole('heading', { name: 'Receivers' }).waitFor();
    await page.context().close();
  });

  test('the stream stays open for longer than a request may take', async () => {
    const { key } = await createWatcher(stage.service, 'lasting');
    const { page, context } = await openTab(stage.browser);
    await page.addInitScript(
      'const timeout = AbortSignal.timeout.bind(AbortSignal); AbortSignal.timeout = (ms) => timeout(ms / 5);',
    );
    let streams = 0;
    page.on('request', (request) => {
      if (request.url().endsWith('/attempts/stream')) streams += 1;
    });
    await page.goto(`${stage.service.apiUrl}/console/deliveries#key=${key}`);
    await page.getByTitle('Live', { exact: true }).waitFor();
    await page.evaluate(
      `new Promise((resolve) => { AbortSignal.timeout(${2 * REQUEST_MS}).onabort = () => resolve(0); })`,
    );
    assert.equal(streams, 1);
    await context.close();
  });

  test('a redelivery from several pages names all receivers, and giving it up keeps the selection and the focus', async () => {
    const { watcher, pay } = await watching('pages');
    await pay(52);
    await waitUntil(() => received('pages').length === 52);
    const page = await stage.open('/deliveries', { key: watcher.key });
    await page.getByText('52 in the log').waitFor();
    await page.getByRole('button', { name: 'Redeliver…' }).press('Enter');
    await page.getByText('Select deliveries, or set a filter').waitFor();
    assert.equal(
      await page
        .getByRole('dialog')
        .getByRole('button', { name: /^Redeliver/ })
        .count(),
      0,
    );
    await page.keyboard.press('Escape');
    await page.locator('tbody input').first().check();
    await page.route(/notifications.log\?.*cursor/, async (route) => {
      const response = await route.fetch();
      const { data, ...rest } = Object(await response.json());
      const rows = data.map((row: object) => ({ ...row, origin: 'https://other.example' }));
      await route.fulfill({ response, json: { ...rest, data: rows } });
    });
    await page.getByRole('link', { name: 'Older' }).click();
    await page.waitForURL('**cursor=*');
    await page.locator('tbody tr').nth(2).waitFor({ state: 'detached' });
    assert.match(await copyFrom(page), /log\?(.*&)?cursor=\d+/);
    await page.locator('tbody input').first().check();
    const button = page.getByRole('button', { name: 'Redeliver 2…' });
    await button.press('Enter');
    await page.getByText(/^Redeliver 2 to .* and 1 other receiver\./).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).press('Enter');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await waitUntil(
      async () => (await page.evaluate('document.activeElement.textContent')) === 'Redeliver 2…',
    );
    await page.context().close();
  });

  test('to select all rows of a page, or none, keeps what is selected on other pages', async () => {
    const { watcher, pay } = await watching('both');
    await pay(3);
    await waitUntil(() => received('both').length === 3);
    const page = await stage.open('/supply', { key: watcher.key });
    await page.route(/notifications.log\?/, (route) =>
      route.continue({
        url: route
          .request()
          .url()
          .replace(/limit=\d+/, 'limit=2'),
      }),
    );
    await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
    const all = page.getByLabel('Select all shown');
    const untilSelected = (count: number) =>
      page.getByRole('button', { name: `Redeliver ${count}…` }).waitFor();
    await all.click();
    await untilSelected(2);
    await page.getByRole('link', { name: 'Older' }).click();
    await page.locator('tbody tr').nth(1).waitFor({ state: 'detached' });
    await all.click();
    await untilSelected(3);
    await all.click();
    await untilSelected(2);
    await page.context().close();
  });

  test('a file of addresses that was corrected can be chosen again', async () => {
    const { key } = await createWatcher(stage.service, 'corrected');
    const page = await stage.open('/addresses', { key });
    await page.getByRole('button', { name: 'Import a CSV…' }).first().click();
    const input = page.locator('input[type=file]');
    for (const [address, shown] of [
      ['0x12', '0 lines can be sent, 1 can’t'],
      [freshAddress(), '1 line can be sent'],
    ] as const) {
      const buffer = Buffer.from(`${address},${stage.receiver.url}\n`);
      await input.setInputFiles({ name: 'addresses.csv', mimeType: 'text/csv', buffer });
      await page.getByText(shown).waitFor();
      // A browser reports a choice only if it differs from the value.
      assert.equal(await input.inputValue(), '');
    }
    await page.context().close();
  });

  test('a dialog that is given up returns the focus to what opened it', async () => {
    await createWatcher(stage.service, 'focus');
    const page = await stage.open('/keys', { admin: ADMIN_TOKEN });
    await page.getByRole('button', { name: 'New key…' }).press('Enter');
    for (const [opener, end] of [
      ['New key…', 'Cancel'],
      ['New key…', 'Close'],
      [/^Revoke…/, 'Cancel'],
    ] as const) {
      if ((await page.getByRole('dialog').count()) === 0)
        await page.getByRole('button', { name: opener }).first().press('Enter');
      await page.getByRole('dialog').getByRole('button', { name: end, exact: true }).press('Enter');
      await page.getByRole('dialog').waitFor({ state: 'detached' });
      const name = typeof opener === 'string' ? /^New key…$/ : opener;
      await waitUntil(async () => name.test(await page.evaluate('document.activeElement.textContent')));
    }
    await page.context().close();
  });

  test('to the operator of all watchers, a delivery names its watcher and leads to its address', async () => {
    const { watcher, pay, id } = await watching('everybody');
    await pay();
    await waitUntil(() => received('everybody').length === 1);
    const page = await openLive('/deliveries', { admin: ADMIN_TOKEN });
    await page.getByRole('row', { name: 'everybody' }).first().click();
    const panel = page.getByRole('complementary');
    await panel.getByText('Incoming native transfer').waitFor();
    await panel.getByText('everybody', { exact: true }).waitFor();
    await panel.getByRole('link', { name: 'watched' }).click();
    await page.waitForURL(`**/console/addresses/${id}`);
    assert.equal(await page.getByLabel('Watcher', { exact: true }).first().inputValue(), String(watcher.id));
    await page.context().close();
  });

  test('a delivery of a suspended watcher says that it waits for that', async () => {
    stage.receiver.setAnswer(({ path: to }) => (to.endsWith('/idle') ? { status: 500 } : {}));
    const { watcher, pay } = await watching('idle');
    await pay();
    await waitUntil(() => received('idle').length === 1);
    await fetch(`${stage.service.apiUrl}/api/admin/watchers/${watcher.id}/suspend`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
    });
    const page = await stage.open('/deliveries', { admin: ADMIN_TOKEN });
    await page.getByRole('row', { name: 'idle' }).first().click();
    const panel = page.getByRole('complementary');
    await panel.getByText('Attempt 2 waits, because the watcher is suspended.').waitFor();
    assert.equal(await panel.getByRole('button', { name: 'Deliver now' }).count(), 0);
    await page.getByLabel('Watcher', { exact: true }).first().selectOption({ label: 'idle' });
    await page.getByRole('link', { name: 'Overview' }).first().click();
    await page.getByText('No receiver fails. 1 waits, because the watcher is suspended.').waitFor();
    await page.getByRole('row', { name: 'Retrying' }).first().click();
    await panel.getByText('Attempt 2 waits, because the watcher is suspended.').waitFor();
    await page.context().close();
    stage.receiver.setAnswer({});
  });

  test('a copied command holds no character that a shell reads, whatever the address of the page', async () => {
    const page = await stage.open(`/explain/x'!-2'(*)`, { admin: ADMIN_TOKEN });
    assert.match(await copyFrom(page), /^curl -sS 'http:[^'!()*]*x%27%21-2%27%28%2A%29' /);
    await page.context().close();
  });
});
