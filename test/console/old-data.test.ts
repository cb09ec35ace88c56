/**
 * Data that is old, and figures that only a part of the data is behind: pages say so, and load it again.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page, Route } from 'playwright-core';
import { holdAnswer, openTab, untilTrue } from '../kit/browser.ts';
import { createDeliveryTools } from '../kit/console-deliveries.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher, freshAddress } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const MINUTE_MS = 60_000;
const RECEIVERS = 100;

/** The answer that the service gives to a request, with its data changed. */
async function change(route: Route, edit: (data: never) => unknown): Promise<void> {
  const response = await route.fetch();
  const { data, ...rest } = Object(await response.json());
  await route.fulfill({ response, json: { ...rest, data: edit(data as never) } });
}

const changeStatus = (page: Page, changes: object): Promise<unknown> =>
  page.route(/\/status$/, async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...Object(await response.json()), ...changes } });
  });

/** Pages load again at any time, also while they close. */
async function close(page: Page): Promise<void> {
  await page.unrouteAll({ behavior: 'ignoreErrors' });
  await page.context().close();
}

describe('old data', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage({ retryMinutes: [60] });
  });
  after(() => stage[Symbol.asyncDispose]());

  const { watching, received, sentIds } = createDeliveryTools(() => stage);

  /** A page whose clock the test moves on. */
  async function openWithClock(path: string, fragment: string): Promise<Page> {
    const { page } = await openTab(stage.browser);
    await page.clock.install();
    await page.goto(`${stage.service.apiUrl}/console${path}#${fragment}`);
    return page;
  }

  /** As many receivers as the overview loads, for which nothing waits. */
  const fillReceivers = (page: Page) =>
    page.route(/receivers\?limit=100$/, (route) =>
      change(route, ([first]: [object]) =>
        Array.from({ length: RECEIVERS }, (_, index) => ({
          ...first,
          ...{ origin: `https://r${index}.example`, waiting: 0, oldest_waiting_at: null },
        })),
      ),
    );

  test('the overview does not say that nothing waits when it knows only some of the receivers', async () => {
    const { watcher } = await watching('partly');
    const page = await stage.open('/supply', { key: watcher.key });
    await fillReceivers(page);
    const oldest = new Date(Date.now() - MINUTE_MS).toISOString();
    const failing = {
      ...{ origin: 'https://zzz.example', state: 'failing', last_outcome: 'http_5xx', last_status: 503 },
      ...{ failing_since: oldest, next_attempt_at: null, pending: 5 },
      ...{ waiting: 5, waiting_is_complete: true, oldest_waiting_at: oldest },
    };
    await page.route(/receivers\?failing=true/, (route) => change(route, () => [failing]));
    await page.getByRole('link', { name: 'Overview' }).first().click();
    const figure = page.locator('.figures > div').filter({ has: page.getByText('Waiting', { exact: true }) });
    await figure.getByText('5+', { exact: true }).waitFor();
    await figure.locator('.note.is-warn', { hasText: 'not all receivers are counted' }).waitFor();
    await close(page);
  });

  test('the overview of all watchers has the count of all that waits', async () => {
    await watching('everywhere');
    const page = await stage.open('/supply', { admin: ADMIN_TOKEN });
    await fillReceivers(page);
    const queue = { deferred: 0, held: 0, waiting: 1_234, due: 3, oldest_due_age_seconds: 5 };
    await changeStatus(page, { queue });
    await page.getByRole('link', { name: 'Overview' }).first().click();
    const figure = page.locator('.figures > div').filter({ has: page.getByText('Waiting', { exact: true }) });
    await figure.getByText('1,234', { exact: true }).waitFor();
    await figure.locator('.note', { hasText: '3 due' }).waitFor();
    await changeStatus(page, { queue: null });
    await figure.locator('.note', { hasText: 'not all receivers are counted' }).waitFor();
    await close(page);
  });

  test('prices that can’t be read any more are marked with their time, and never as fresh', async () => {
    const page = await stage.open('/supply');
    const price = { asset: 'ETH', price: '1800', age_seconds: 7, stale: false, sources: [] };
    await changeStatus(page, { prices: [price] });
    await page.goto(`${stage.service.apiUrl}/console/market`);
    const row = page.getByRole('row', { name: 'ETH' });
    await row.getByText('Fresh').waitFor();
    assert.equal(await page.getByText('As of').count(), 0);
    await changeStatus(page, { prices: null });
    await page.locator('p.is-warn', { hasText: 'As of' }).waitFor();
    await row.getByText('Not read now').waitFor();
    assert.equal(await row.getByText('Fresh').count(), 0);
    // The age goes on.
    await row.getByText(/^1\d s$/).waitFor();
    await close(page);
  });

  test('the dialog that deletes an address names only numbers that are known', async () => {
    const { watcher, id } = await watching('uncounted');
    const page = await stage.open('/supply', { key: watcher.key });
    const stats = /watched-addresses\/[^/]+\/stats$/;
    await page.route(stats, (route) => route.fulfill({ status: 503, json: { success: false } }));
    await page.goto(`${stage.service.apiUrl}/console/addresses/${id}`);
    await page.getByRole('button', { name: 'Delete…' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByText('and its unsent notifications are cancelled').waitFor();
    await page.unroute(stats);
    await page.route(stats, (route) =>
      change(route, (data: object) => ({ ...data, waiting: 1_000, held: 0, is_complete: false })),
    );
    await dialog.getByText('its unsent notifications (1,000+) are cancelled').waitFor();
    await close(page);
  });

  test('attempts keep their numbers when the oldest ones are no longer stored', async () => {
    stage.receiver.setAnswer(({ path }) => (path.endsWith('/long-dead') ? { status: 503 } : {}));
    const { watcher, pay } = await watching('long-dead');
    await pay();
    await waitUntil(() => received('long-dead').length === 1);
    const page = await stage.open('/supply', { key: watcher.key });
    await page.route(/notifications\/log\/\d+$/, (route) =>
      change(route, (data: object) => ({ ...data, status: 'failing', failures: 1_440, retry_count: 1_440 })),
    );
    await page.goto(`${stage.service.apiUrl}/console/deliveries/${sentIds('long-dead')[0]}`);
    const panel = page.getByRole('complementary');
    await panel.getByText(/^Attempt 1441 in/).waitFor();
    await panel.getByText('Attempt 1440, the oldest that is still stored').waitFor();
    await panel.locator('.detail-top', { hasText: /oldest stored attempt .+ · 1440 attempts/ }).waitFor();
    await close(page);
  });

  test('the operator chooses a watcher of any page of the list', async () => {
    const [second, third] = [
      await createWatcher(stage.service, 'second page'),
      await createWatcher(stage.service, 'on no page'),
    ];
    const page = await stage.open('/supply', { admin: ADMIN_TOKEN });
    // The second page has only the second watcher, and the third one is beyond all pages.
    await page.route(/admin.watchers\?limit=1000/, async (route) => {
      const response = await route.fetch({ url: route.request().url().replace('&cursor=next', '') });
      const { data, ...rest } = Object(await response.json());
      const isFirst = !route.request().url().includes('cursor');
      const rows = data.filter(({ id }: { id: number }) => (isFirst ? id < second.id : id === second.id));
      const link = isFirst ? { link: '</api/admin/watchers?cursor=next>; rel="next"' } : {};
      await route.fulfill({ headers: { ...response.headers(), ...link }, json: { ...rest, data: rows } });
    });
    await page.goto(`${stage.service.apiUrl}/console/watchers`);
    const choice = page.getByLabel('Watcher', { exact: true }).first();
    await choice.selectOption({ label: 'second page' });
    assert.equal(await choice.inputValue(), String(second.id));
    await page.getByRole('link', { name: 'Show on no page' }).click();
    await page.getByRole('heading', { name: 'Watch your first address' }).waitFor();
    assert.equal(await choice.inputValue(), String(third.id));
    assert.equal(await choice.locator('option:checked').textContent(), 'on no page');
    await close(page);
  });

  test('System dates the configuration with the time at which it was loaded', async () => {
    const page = await stage.open('/system', { admin: ADMIN_TOKEN });
    const date = page.locator('details', { hasText: 'As of' }).locator('time');
    const loadedAt = await date.getAttribute('datetime');
    await page.route(/admin.configuration$/, (route) => route.abort());
    // The page is rendered again with each answer about the status.
    for (let answers = 0; answers < 2; answers += 1) await page.waitForResponse(/admin.status$/);
    const laterMs = Date.parse(`${await date.getAttribute('datetime')}`) - Date.parse(`${loadedAt}`);
    // The page's idea of the server's clock gets better by less than a second.
    assert.ok(Math.abs(laterMs) < 1_000, `${laterMs} ms`);
    await close(page);
  });

  test('lists are loaded again while a page stays open', async () => {
    const keys = await openWithClock('/keys', `admin=${ADMIN_TOKEN}`);
    const watchers = await openWithClock('/watchers', `admin=${ADMIN_TOKEN}`);
    const { watcher } = await watching('listed');
    const addresses = await openWithClock('/addresses', `key=${watcher.key}`);
    for (const page of [keys, watchers, addresses]) await page.locator('tbody tr').first().waitFor();
    await createWatcher(stage.service, 'newcomer');
    await watcher.watch({ address: freshAddress(), webhookUrl: `${stage.receiver.url}/newcomer` });
    for (const page of [keys, watchers, addresses]) {
      await page.clock.fastForward(MINUTE_MS);
      await page.getByRole('row', { name: 'newcomer' }).waitFor();
      await close(page);
    }
  });

  test('points are loaded again while their page stays open', async () => {
    const user = freshAddress();
    const page = await openWithClock('/supply', '');
    let points = '1';
    const answers = {
      leaderboard: () => [{ user, points }],
      'user-by-category': () => [{ category: 'swap', points }],
      user: () => [
        { category: 'swap', points, hash: `0x${'1'.repeat(64)}`, created_at: new Date().toISOString() },
      ],
    };
    for (const [name, data] of Object.entries(answers))
      await page.route(new RegExp(`api.points.${name}\\?`), (route) =>
        route.fulfill({ json: { success: true, data: data() } }),
      );
    await page.goto(`${stage.service.apiUrl}/console/points/${user}`);
    await page.getByRole('cell', { name: '+1', exact: true }).waitFor();
    points = '234';
    await page.clock.fastForward(MINUTE_MS);
    await page.getByRole('cell', { name: '+234', exact: true }).waitFor();
    await page.locator('.big', { hasText: '234' }).waitFor();
    await close(page);
  });

  test('data of an earlier visit is marked with its time until it is loaded again', async () => {
    const page = await openWithClock('/keys', `admin=${ADMIN_TOKEN}`);
    await page.locator('tbody tr').first().waitFor();
    const mark = page.locator('main p.is-warn', { hasText: 'As of' });
    assert.equal(await mark.count(), 0);
    await page.getByRole('link', { name: 'Watchers', exact: true }).first().click();
    await page.getByRole('heading', { name: 'Watchers' }).waitFor();
    await page.clock.fastForward(10 * MINUTE_MS);
    const answer = await holdAnswer(page, /admin.keys\?/);
    await page.getByRole('link', { name: 'Keys', exact: true }).first().click();
    await answer.held;
    await mark.waitFor();
    await page.locator('tbody tr').first().waitFor();
    await answer.release();
    await mark.waitFor({ state: 'detached' });
    await close(page);
  });

  test('when the row that the Tab key reaches leaves, it reaches another one', async () => {
    const { watcher } = await watching('rows');
    const page = await openWithClock('/supply', `key=${watcher.key}`);
    let origins = ['a', 'b', 'c'];
    await page.route(/notifications.receivers\?.*period/, (route) =>
      change(route, ([first]: [object]) =>
        origins.map((name) => ({ ...first, origin: `https://${name}.example` })),
      ),
    );
    await page.getByRole('link', { name: 'Receivers', exact: true }).first().click();
    const links = page.locator('tbody a.row-link');
    await links.first().focus();
    origins = ['b', 'c'];
    await page.clock.fastForward(MINUTE_MS);
    await links.filter({ hasText: 'a.example' }).waitFor({ state: 'detached' });
    await untilTrue(page, `document.querySelector('tbody a.row-link').tabIndex === 0`);
    await close(page);
  });

  test('the chart of a pair without known values says so', async () => {
    const page = await stage.open('/supply');
    const hour = new Date(Math.floor(Date.now() / 3_600_000) * 3_600_000).toISOString();
    const pair = {
      ...{ id: 7, name: 'AAA/BBB', address: `0x${'1'.repeat(40)}`, latestPrice: null, vol24h: 1 },
      ...{ token0: `0x${'2'.repeat(40)}`, token1: `0x${'3'.repeat(40)}`, lpPriceInUsd: null, reward_pid: 1 },
      ...{ token0_decimals: 18, token1_decimals: 18, reserve0: null, reserve1: null, usd_value_from: 1 },
      updated_at: hour,
    };
    await page.route(/api\/swap\//, (route, request) => {
      const { pathname } = new URL(request.url());
      const hours = [{ hour, price: '1', value: null, volume: 5, swaps: 2 }];
      return route.fulfill({
        json: pathname.endsWith('pairs') ? [pair] : pathname.includes('history') ? hours : [],
      });
    });
    await page.goto(`${stage.service.apiUrl}/console/market/7?show=value`);
    await page.getByLabel('No value is known').waitFor();
    assert.doesNotMatch(await page.locator('main').innerHTML(), /Infinity|NaN/);
    await close(page);
  });
});
