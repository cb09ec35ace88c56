/**
 * Values of any length on screens of any width: each stays in view, or is shortened and has its whole text in a title. And details
 * of pages: keys, heads of tables, and figures that are old.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { createDeliveryTools } from '../kit/console-deliveries.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher, freshAddress } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const DAY_MS = 86_400_000;
const PHONE = { width: 360, height: 740 };
/** A name without a blank, at which a line could break. */
const NAME = 'w'.repeat(60);
const HOST = `${'h'.repeat(60)}.${'o'.repeat(60)}.${'s'.repeat(60)}.example.com.tld`;
const SYMBOL = 'S'.repeat(32);
const TOKEN = freshAddress();
const LARGEST = String(2n ** 256n - 1n);

/** Elements with contents that are cut off or scroll sideways. */
const cutOf = (page: Page, selector: string): Promise<string[]> =>
  page.evaluate<string[]>(
    `[...document.querySelectorAll('${selector}')].filter((one) => one.clientWidth > 1 && one.scrollWidth > one.clientWidth)
      .map((one) => one.textContent.slice(0, 60) + ': ' + one.scrollWidth + ' px in ' + one.clientWidth)`,
  );

/** Changes the rows of an answer. */
const changeRows = (page: Page, url: RegExp, changes: object): Promise<unknown> =>
  page.route(url, async (route) => {
    const response = await route.fetch();
    const { data, ...rest } = Object(await response.json());
    const rows = Array.isArray(data)
      ? data.map((row: object) => ({ ...row, ...changes }))
      : { ...data, ...changes };
    await route.fulfill({ response, json: { ...rest, data: rows } });
  });

/** A token with a symbol as long as a token may have. */
const addToken = (page: Page): Promise<unknown> =>
  page.route(/api.chain$/, async (route) => {
    const response = await route.fetch();
    const tokens = [{ address: TOKEN, symbol: SYMBOL, decimals: 18 }];
    await route.fulfill({ response, json: { ...Object(await response.json()), tokens } });
  });

/** Closes the tab. What its routes still ask for has no reader then. */
async function close(page: Page): Promise<void> {
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.context().close();
}

describe('sizes', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage({ retryMinutes: [60] });
  });
  after(() => stage[Symbol.asyncDispose]());

  const { watching, received } = createDeliveryTools(() => stage);

  /** A watcher with one delivery. */
  async function paid(name: string) {
    const one = await watching(name);
    await one.pay();
    await waitUntil(() => received(name).length === 1);
    return one;
  }

  test('dialogs about a watcher with a long name fit', async () => {
    await createWatcher(stage.service, NAME);
    for (const width of [PHONE.width, 1280]) {
      const page = await stage.open('/watchers', { admin: ADMIN_TOKEN, width });
      const row = page.locator('tr, li').filter({ hasText: NAME });
      await row.waitFor();
      assert.deepEqual(await cutOf(page, '.table'), []);
      for (const name of ['Suspend', 'Delete', 'Rotate', 'Revoke']) {
        if (name === 'Rotate') await page.goto(`${stage.service.apiUrl}/console/keys`);
        await row.getByRole('button', { name }).click();
        assert.deepEqual(await cutOf(page, 'dialog, dialog *'), [], `${name} at ${width} px`);
        await page.keyboard.press('Escape');
      }
      assert.deepEqual(await cutOf(page, '.table'), []);
      await close(page);
    }
  });

  test('the overview of a watcher with a long name fits', async () => {
    const watcher = await createWatcher(stage.service, NAME.slice(1));
    for (const width of [PHONE.width, 1280]) {
      const page = await stage.open('', { key: watcher.key, width });
      await page.getByText('Watch your first address').waitFor();
      assert.equal(await page.evaluate('document.documentElement.scrollWidth'), width);
      assert.deepEqual(await cutOf(page, '.head, .rail, .rail *'), []);
      await close(page);
    }
  });

  test('the dialog that deletes a watched address fits into a small screen', async () => {
    const { watcher, id } = await watching('to-delete');
    const page = await stage.open(`/addresses/${id}`, { key: watcher.key, width: 320 });
    await page.getByRole('button', { name: 'Delete' }).click();
    assert.deepEqual(await cutOf(page, 'dialog, dialog *'), []);
    const [dialog, button] = await Promise.all(
      ['dialog', 'dialog footer .is-bad'].map((one) => page.locator(one).boundingBox()),
    );
    assert.ok(
      dialog && button && button.x + button.width <= dialog.x + dialog.width - 16,
      JSON.stringify(button),
    );
    await close(page);
  });

  test('a long host leaves room for the other columns', async () => {
    const { watcher } = await paid('long-host');
    const origin = `https://${HOST}`;
    for (const width of [768, 1024, 1440]) {
      const page = await stage.open('/supply', { key: watcher.key, width });
      await changeRows(page, /notifications.receivers/, { origin });
      await changeRows(page, /notifications.log\?/, { origin });
      await changeRows(page, /notifications.watched-addresses\?/, { webhook_url: `${origin}/deposits` });
      for (const name of ['Receivers', 'Deliveries', 'Addresses', 'Overview']) {
        await page.getByRole('link', { name, exact: true }).first().click();
        await page.getByRole('heading', { name, exact: true }).waitFor();
        await page.locator('tbody a.row-link').waitFor();
        assert.deepEqual(await cutOf(page, '.table'), [], `${name} at ${width} px`);
        assert.equal(await page.evaluate('document.documentElement.scrollWidth'), width);
        if (width > 1000) assert.notEqual(await page.getByTitle(origin).count(), 0, name);
      }
      await page.goto(`${stage.service.apiUrl}/console/receivers?origin=${encodeURIComponent(origin)}`);
      await page.getByText('Other receivers are unaffected').waitFor();
      assert.deepEqual(await cutOf(page, '.table, .notice'), [], `explanation at ${width} px`);
      await page.goto(`${stage.service.apiUrl}/console/deliveries?origin=${encodeURIComponent(origin)}`);
      await page.getByRole('link', { name: 'Remove' }).waitFor();
      assert.deepEqual(await cutOf(page, '.chips'), [], `filter at ${width} px`);
      await close(page);
    }
  });

  test('an amount keeps its digits and its unit', async () => {
    const { watcher } = await paid('rich');
    for (const width of [PHONE.width, 768, 1280]) {
      const page = await stage.open('/supply', { key: watcher.key, width });
      await addToken(page);
      await changeRows(page, /notifications.log\?/, { amount: LARGEST, asset: TOKEN });
      await page.goto(`${stage.service.apiUrl}/console/deliveries`);
      await page.getByText('115,792,089,237').first().waitFor();
      assert.deepEqual(await cutOf(page, '.table, td.amount, .rows .row-link > b'), [], `${width} px`);
      assert.equal(await page.evaluate('document.documentElement.scrollWidth'), width);
      if (width > PHONE.width) await page.getByTitle(SYMBOL).first().waitFor();
      await close(page);
    }
  });

  test('the second line of a row keeps the counterparty and the countdown', async () => {
    const name = 'a-watcher-with-a-rather-long-name';
    stage.receiver.setAnswer(({ path }) => (path.endsWith(`/${name}`) ? { status: 503 } : {}));
    await paid(name);
    const page = await stage.open('/deliveries', { admin: ADMIN_TOKEN, ...PHONE });
    await page.locator('.below-line', { hasText: name }).filter({ hasText: 'next in' }).waitFor();
    assert.deepEqual(await cutOf(page, '.below-line > *'), []);
    await close(page);
  });

  test('beside a long URL, it stays in view what an address watches', async () => {
    const { watcher } = await watching('long-url');
    await watcher.watch({ address: freshAddress(), webhookUrl: `${stage.receiver.url}/${'u'.repeat(300)}` });
    const page = await stage.open('/addresses', { key: watcher.key, ...PHONE });
    await page.getByText('coin and tokens').first().waitFor();
    assert.deepEqual(await cutOf(page, '.below-line > :last-child'), []);
    await close(page);
  });

  test('deliveries fit beside the rail, beside the detail and with a long symbol', async () => {
    const { watcher } = await paid('fitting');
    const at = new Date(Date.now() - DAY_MS).toISOString();
    const long = {
      ...{
        status: 'failing',
        amount: '1234567123456789012345678',
        created_at: at,
        retry_count: 12,
        origin: `https://${HOST}`,
      },
      last_attempt: { id: 1, started_at: at, duration_ms: 10_000, outcome: 'connect', status: null },
    };
    const cut: string[] = [];
    for (const asset of ['ETH', TOKEN])
      for (const width of [768, 1000, 1280]) {
        const page = await stage.open('/supply', { key: watcher.key, width });
        await addToken(page);
        await changeRows(page, /notifications.log\?/, { ...long, asset });
        await page.goto(`${stage.service.apiUrl}/console`);
        await page.locator('tbody a.row-link').first().waitFor();
        const name = `${asset === 'ETH' ? 'ETH' : 'symbol'}-${width}`;
        cut.push(...(await cutOf(page, '.table')).map((one) => `overview ${name} ${one}`));
        await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
        await page.getByText('in the log').waitFor();
        await page.locator('tbody a.row-link').first().waitFor();
        cut.push(...(await cutOf(page, '.table')).map((one) => `deliveries ${name} ${one}`));
        await page.locator('tbody a.row-link').first().click();
        await page.getByRole('complementary').getByText('Request body').waitFor();
        cut.push(...(await cutOf(page, '.table')).map((one) => `detail ${name} ${one}`));
        await close(page);
      }
    assert.deepEqual(cut, []);
  });

  test('all filters are in view on a small screen', async () => {
    const { watcher } = await watching('filters');
    const page = await stage.open('/deliveries', { key: watcher.key, ...PHONE });
    await page.getByRole('button', { name: 'State' }).waitFor();
    assert.deepEqual(await cutOf(page, '.chips'), []);
    await close(page);
  });

  test('beside a node’s long error its state stays in view, and a disproved answer has its time', async () => {
    const page = await stage.open('/supply', { admin: ADMIN_TOKEN, width: 390, height: 844 });
    const message = `block 7 (0x${'5'.repeat(64)}) is not proved: its receipts root does not hold`;
    await page.route(/\/status$/, async (route) => {
      const answer = Object(await (await route.fetch()).json());
      const data = answer.data ?? answer;
      const [node] = data.nodes ?? [];
      if (node !== undefined)
        data.nodes = [
          { ...node, name: `https://${'n'.repeat(60)}.example`, state: 'failing', error: message },
          { ...node, disproved: { message, at: new Date(Date.now() - 3 * DAY_MS).toISOString() } },
        ];
      Object.assign(data, { state: 'holding', problem: { message, since: new Date().toISOString() } });
      await route.fulfill({ json: answer });
    });
    await page.goto(`${stage.service.apiUrl}/console/watchers`);
    await page.locator('.strip', { hasText: 'is not proved' }).waitFor();
    assert.deepEqual(await cutOf(page, 'html, .strip'), []);
    await page.goto(`${stage.service.apiUrl}/console/system`);
    await page.locator('.state', { hasText: 'Failing' }).waitFor();
    assert.deepEqual(await cutOf(page, 'html, .table'), []);
    await page.locator('.reason', { hasText: 'Last disproved' }).locator('time').waitFor();
    await close(page);
  });

  test('a receiver’s reason and what waits for it are whole on a phone, and more than can be counted has a plus', async () => {
    await paid('w'.repeat(30));
    const page = await stage.open('/supply', { admin: ADMIN_TOKEN, ...PHONE });
    const failing = { state: 'failing', last_status: 503, waiting: 1_000, waiting_is_complete: false };
    await changeRows(page, /api.admin.receivers\?/, failing);
    await page.goto(`${stage.service.apiUrl}/console/receivers`);
    await page.locator('.below-line', { hasText: '1,000+ waiting' }).first().waitFor();
    assert.deepEqual(await cutOf(page, '.below-line, .below-line > *'), []);
    await close(page);
  });

  test('the request of a test can be scrolled by keyboard', async () => {
    const { watcher } = await watching('tested');
    stage.receiver.setAnswer({ body: 'thanks' });
    const { id } = await watcher.watch({
      address: freshAddress(),
      webhookUrl: `${stage.receiver.url}/${'u'.repeat(1_500)}`,
    });
    const page = await stage.open(`/addresses/${id}`, { key: watcher.key, ...PHONE });
    await page.getByRole('button', { name: 'Send a test' }).click();
    await page.getByText('Request body').waitFor();
    await page.evaluate(AXE);
    const { violations } = await page.evaluate<{ violations: { id: string; nodes: { html: string }[] }[] }>(
      'axe.run()',
    );
    assert.deepEqual(violations, []);
    for (const name of ['Answer', 'Request', 'Request body'])
      await page.getByRole('group', { name, exact: true }).waitFor();
    await close(page);
  });

  test('while the database is away, all figures of the overview are dim', async () => {
    const { watcher } = await paid('dim');
    const page = await stage.open('', { key: watcher.key });
    await page.locator('.figures', { hasText: 'nothing waits' }).waitFor();
    await page.getByRole('link', { name: 'Receivers', exact: true }).first().click();
    await page.getByRole('heading', { name: 'Receivers' }).waitFor();
    await page.route(/api.notifications/, (route) =>
      route.fulfill({ status: 503, json: { success: false } }),
    );
    await page.getByRole('link', { name: 'Overview', exact: true }).first().click();
    const bright = page.locator('.figures > div').filter({ has: page.locator('.value:not(.is-old)') });
    // The head comes from another answer.
    await waitUntil(async () => (await bright.count()) === 1);
    await close(page);
  });

  test('Esc leads from a user back to the row, and the tables of the user have heads', async () => {
    const user = freshAddress();
    const at = new Date().toISOString();
    const page = await stage.open('/supply');
    const answers = {
      leaderboard: [freshAddress(), user].map((one) => ({ user: one, points: '5.5' })),
      'user-by-category': [{ category: 'swap', points: '5.5' }],
      user: [{ category: 'swap', points: '5.5', hash: `0x${'1'.repeat(64)}`, created_at: at }],
    };
    for (const [name, data] of Object.entries(answers))
      await page.route(new RegExp(`api.points.${name}\\?`), (route) =>
        route.fulfill({ json: { success: true, data } }),
      );
    for (const width of [1440, 1000, PHONE.width]) {
      await page.setViewportSize({ width, height: 740 });
      await page.goto(`${stage.service.apiUrl}/console/points`);
      await page.locator('tbody a.row-link').nth(1).press('Enter');
      await page.getByRole('heading', { name: 'Newest awards' }).waitFor();
      assert.equal(await page.getByRole('complementary').getByRole('columnheader').count(), 6);
      await page.keyboard.press('Escape');
      await waitUntil(
        async () => (await page.evaluate('document.activeElement.pathname')) === `/console/points/${user}`,
      );
    }
    await close(page);
  });
});
