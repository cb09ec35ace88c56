/**
 * What pages say while something is missing: data that loads, a part of the service that is away, a request that is refused.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { holdAnswer } from '../kit/browser.ts';
import { createDeliveryTools } from '../kit/console-deliveries.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const HOUR_MS = 3_600_000;
const MESSAGE = 'database: cannot be reached';
/** As the API gives it, without an id and a name. */
const pairFields = {
  ...{ address: `0x${'1'.repeat(40)}`, latestPrice: 0.00001950437, vol24h: 1, updated_at: null },
  ...{ token0: `0x${'2'.repeat(40)}`, token1: `0x${'3'.repeat(40)}`, lpPriceInUsd: null, reward_pid: 1 },
  ...{ token0_decimals: 18, token1_decimals: 18, reserve0: null, reserve1: null, usd_value_from: 1 },
};
const problem = { message: MESSAGE, since: new Date().toISOString() };

describe('problems', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage();
  });
  after(() => stage[Symbol.asyncDispose]());

  const { watching, received } = createDeliveryTools(() => stage);

  /** Answers from now on as the service does while the database is away. */
  const takeDatabase = (page: Page) =>
    changeStatus(page, {
      cursor: null,
      queue: null,
      receivers: null,
      late: null,
      prices: null,
      pairs: null,
      problem,
    });
  const changeStatus = (page: Page, gone: object) =>
    page.route(/\/status$/, async (route) => {
      const response = await route.fetch();
      const answer = Object(await response.json());
      const { data } = answer;
      await route.fulfill({
        json: data === undefined ? { ...answer, ...gone } : { ...answer, data: { ...data, ...gone } },
      });
    });

  test('the reason of a problem is read by keyboard and on a small screen', async () => {
    const page = await stage.open('/supply', { width: 360, height: 740 });
    await changeStatus(page, { problem });
    const pill = page.getByRole('button', { name: 'trouble since' });
    await pill.waitFor();
    const reason = page.getByText(MESSAGE);
    assert.equal(await reason.isVisible(), false);
    await pill.press('Enter');
    await reason.waitFor();
    const box = await reason.boundingBox();
    assert.ok(box !== null && box.x >= 0 && box.x + box.width <= 360, JSON.stringify(box));
    await page.context().close();
  });

  test('a follower that holds is named once on each page, and System does not call it in sync', async () => {
    const page = await stage.open('/system', { admin: ADMIN_TOKEN });
    await page.getByText('in sync').waitFor();
    await changeStatus(page, { state: 'holding', problem: { ...problem, message: `${MESSAGE}.` } });
    await page.locator('.notice', { hasText: MESSAGE }).waitFor();
    await page.getByText('in sync').waitFor({ state: 'detached' });
    await page.getByText('held at').waitFor();
    assert.equal(await page.locator('.strip').count(), 0);
    await page.getByRole('link', { name: 'Watchers', exact: true }).first().click();
    await page.locator('.strip', { hasText: `: ${MESSAGE}. Figures` }).waitFor();
    await page.context().close();
  });

  test('without the database, System does not say that all is well', async () => {
    const page = await stage.open('/system', { admin: ADMIN_TOKEN });
    for (const text of ['nothing is late', 'all answer']) await page.getByText(text).waitFor();
    await takeDatabase(page);
    await page.locator('.notice', { hasText: MESSAGE }).waitFor();
    for (const text of ['nothing is late', 'all answer']) assert.equal(await page.getByText(text).count(), 0);
    await page.context().close();
  });

  test('without the database, a page names it and shows what was loaded before', async () => {
    const { watcher } = await watching('without-database');
    const page = await stage.open('/receivers', { key: watcher.key });
    await page.getByText('1 origin · 0 failing').waitFor();
    await takeDatabase(page);
    await page.route(/api.notifications/, (route) =>
      route.fulfill({ status: 503, json: { success: false, statusMessage: 'Service Unavailable' } }),
    );
    await page.locator('.strip', { hasText: `: ${MESSAGE}.` }).waitFor();
    await page.getByRole('link', { name: 'Addresses', exact: true }).first().click();
    const text = `Chainbell can’t answer this now. It reports: ${MESSAGE}`;
    await page.getByRole('alert').filter({ hasText: text }).waitFor();
    await page.getByRole('link', { name: 'Receivers', exact: true }).first().click();
    await page.locator('p.is-warn', { hasText: text }).waitFor();
    await page.locator('tbody a.row-link').waitFor();
    assert.equal(await page.getByText('Service Unavailable').count(), 0);
    await page.context().close();
  });

  test('System of a process that follows no chain says so', async () => {
    const page = await stage.open('/supply', { admin: ADMIN_TOKEN });
    await page.route(/admin.status$/, async (route) => {
      const response = await route.fetch();
      const { data, ...rest } = Object(await response.json());
      await route.fulfill({ json: { ...rest, data: { ...data, nodes: [] } } });
    });
    await page.goto(`${stage.service.apiUrl}/console/system`);
    await page.locator('.station', { hasText: 'not followed by this process' }).waitFor();
    assert.equal(await page.getByText('0 of 0').count(), 0);
    await page.context().close();
  });

  test('Market without price feeds says so, whatever else is wrong', async () => {
    const page = await stage.open('/supply');
    await takeDatabase(page);
    await page.getByRole('button', { name: 'trouble since' }).waitFor();
    await page.goto(`${stage.service.apiUrl}/console/market`);
    await page.getByRole('button', { name: 'trouble since' }).waitFor();
    await page.getByText('No price feed is configured').waitFor();
    await page.context().close();
  });

  test('Market has the price of the reward token, and says in words why a source failed and why prices are missing', async () => {
    const page = await stage.open('/supply');
    const chain = await (await page.request.get(`${stage.service.apiUrl}/api/chain`)).json();
    const has = { ...chain.has, prices: true };
    await page.route('**/api/chain', (route) => route.fulfill({ json: { ...chain, has } }));
    const failed = (message: string) => ({
      source: 'feed',
      price: null,
      at: null,
      verdict: 'failed',
      message,
    });
    const messages = ['getaddrinfo ENOTFOUND api.example', 'answered HTTP 503'];
    const price = { asset: 'ETH', price: null, at: null, age_seconds: null, stale: false };
    await page.route(/\/status$/, async (route) => {
      const answer = Object(await (await route.fetch()).json());
      await route.fulfill({ json: { ...answer, prices: [{ ...price, sources: messages.map(failed) }] } });
    });
    const headers = { 'chainbell-price-stale': 'true', 'chainbell-price-age': '7190.5', age: '3620' };
    await page.route('**/api/price/reward', (route) =>
      route.fulfill({ headers, json: { price: 0.45, asset: 'RWD', base_currency: 'USD' } }),
    );
    await page.route('**/api/swap/pairs', (route) =>
      route.fulfill({ json: [{ ...pairFields, id: 1, name: 'RWD/ETH' }] }),
    );
    await page.goto(`${stage.service.apiUrl}/console/market`);
    await page.getByText('The host name is not found.').waitFor();
    const reward = page.getByRole('row').filter({ hasText: 'the price of RWD/ETH, times that of the coin' });
    assert.match((await reward.textContent()) ?? '', /RWD[\s\S]*Stale[\s\S]*0\.45[\s\S]*3 h/);
    await page.getByTitle('ENOTFOUND').waitFor();
    await page.getByText('answered HTTP 503').waitFor();
    await takeDatabase(page);
    await page.locator('.strip', { hasText: MESSAGE }).waitFor();
    await page.getByText('answered HTTP 503').waitFor();
    await page.reload();
    await page.getByText(`Prices can’t be shown now. Chainbell reports: ${MESSAGE}`).waitFor();
    await page.route('**/api/swap/pairs', (route) =>
      route.fulfill({ status: 500, json: { statusCode: 500, statusMessage: 'Internal Server Error' } }),
    );
    await page.reload();
    await page.getByRole('alert').filter({ hasText: 'Chainbell failed to answer' }).waitFor();
    await page.context().close();
  });

  test('while data loads, no page says that there is none', async () => {
    const { watcher } = await watching('loading');
    const page = await stage.open('/secrets', { key: watcher.key });
    await page.getByText('Signs').waitFor();
    const statistics = await holdAnswer(page, /notifications.statistics/);
    const receivers = await holdAnswer(page, /notifications.receivers\?limit=100$/);
    await page.getByRole('link', { name: 'Overview' }).first().click();
    await Promise.all([statistics.held, receivers.held]);
    await page.getByRole('heading', { name: 'Needs attention' }).waitFor();
    for (const text of ['nothing delivered yet', 'No receiver has got a webhook yet', '0 of'])
      assert.equal(await page.getByText(text).count(), 0, text);
    await Promise.all([statistics.release(), receivers.release()]);
    await page.getByText('nothing delivered yet').waitFor();
    const list = await holdAnswer(page, /receivers\?.*period/);
    await page.getByRole('link', { name: 'Receivers', exact: true }).first().click();
    await list.held;
    assert.equal(await page.getByText(/\d origins?/).count(), 0);
    await list.release();
    await page.getByText('1 origin · 0 failing').waitFor();
    await page.context().close();
  });

  test('the switch of v1a signatures says why it can’t be turned on', async () => {
    const { key } = await createWatcher(stage.service, 'unsigned');
    const page = await stage.open('/secrets', { key });
    const settings = '**/signing-secrets/settings';
    await page.route(settings, (route, request) =>
      request.method() === 'PUT'
        ? route.fulfill({ status: 503, json: { statusMessage: 'Service Unavailable' } })
        : route.continue(),
    );
    const button = page.getByRole('switch', { name: 'Add v1a signatures' });
    await button.click();
    await page.getByRole('alert').filter({ hasText: 'Chainbell can’t answer this now' }).waitFor();
    assert.equal(await button.getAttribute('aria-checked'), 'false');
    await page.unroute(settings);
    await button.click();
    await page.locator('[role=switch][aria-checked=true]').waitFor();
    assert.equal(await page.getByRole('alert').count(), 0);
    await page.context().close();
  });

  test('Esc on the question whether to send again closes only the question', async () => {
    const { watcher, pay } = await watching('asked');
    await pay();
    await waitUntil(() => received('asked').length === 1);
    const page = await stage.open('/deliveries', { key: watcher.key });
    await page.locator('tbody .state', { hasText: 'Delivered' }).waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Send again' }).waitFor();
    await page.keyboard.press('Shift+R');
    const question = page.getByText('The same body, with the same id');
    await question.waitFor();
    await page.keyboard.press('Escape');
    await question.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Send again' }).waitFor();
    assert.equal(await page.evaluate('document.activeElement.className'), 'inspector');
    await page.keyboard.press('Escape');
    await page.waitForURL((url) => url.pathname === '/console/deliveries');
    await page.context().close();
  });

  test('the chart of a pair shows no price and no volume for hours in which the pair wasn’t followed', async () => {
    const page = await stage.open('/supply');
    const present = Math.floor(Date.now() / HOUR_MS);
    const at = (hoursAgo: number) => ({ hour: new Date((present - hoursAgo) * HOUR_MS).toISOString() });
    // Following ended four hours ago and began again two hours ago. In the last hour, a price for the reserves was missing.
    const histories: Record<string, object[]> = {
      price: [
        { ...at(5), price: 1.5 },
        { ...at(4), price: 1.6 },
        { ...at(2), price: 1.75 },
      ],
      value: [
        { ...at(5), value: 9, reserves_known: true },
        { ...at(4), value: null, reserves_known: false },
        { ...at(3), value: null, reserves_known: false },
        { ...at(2), value: 9, reserves_known: true },
        { ...at(1), value: null, reserves_known: true },
      ],
      volume: [
        { ...at(5), volume: 4, swaps: 1 },
        { ...at(4), volume: 6, swaps: 1 },
      ],
    };
    await page.route(/api\/swap\//, (route, request) => {
      const [, name = ''] = /(\w+)-history/.exec(request.url()) ?? [];
      const pairs = [{ ...pairFields, id: 7, name: 'AAA/BBB' }];
      return route.fulfill({ json: /pairs$/.test(request.url()) ? pairs : (histories[name] ?? []) });
    });
    await page.goto(`${stage.service.apiUrl}/console/market/7`);
    await page.getByText('$10.00 in 2 swaps').waitFor();
    await page.getByText('Show as a table').click();
    const cells = await page.locator('.as-table tbody td:not(:first-child)').allTextContents();
    assert.deepEqual(cells, [
      ...['1.5', '4.00', '1'],
      ...['1.6', '6.00', '1'],
      ...['–', '–', '–'],
      ...['1.75', '0.00', '0'],
      ...['1.75', '0.00', '0'],
    ]);
    await page.getByText('without 1 hour in which the pair wasn’t followed').waitFor();
    await page.context().close();
  });

  test('the price at the end of a pair’s chart fits into its box, and the sums below name their time', async () => {
    const page = await stage.open('/supply');
    const present = Math.floor(Date.now() / HOUR_MS);
    const hour = (hoursAgo: number) => new Date((present - hoursAgo) * HOUR_MS).toISOString();
    const pair = { ...pairFields, id: 7, name: 'AAA/BBB', updated_at: hour(0) };
    const hours = [2, 1, 0].map((ago) => {
      return { hour: hour(ago), price: '0.000019504312', value: null, volume: 5, swaps: 2 };
    });
    await page.route(/api\/swap\//, (route, request) =>
      route.fulfill({
        json: /pairs$/.test(request.url()) ? [pair] : request.url().includes('history') ? hours : [],
      }),
    );
    await page.goto(`${stage.service.apiUrl}/console/market/7`);
    const text = await page.locator('.tag-text').boundingBox();
    const box = await page.locator('rect.tag').boundingBox();
    const chart = await page.locator('svg.chart').boundingBox();
    assert.ok(text !== null && box !== null && chart !== null);
    assert.ok(text.x > box.x && text.x + text.width < box.x + box.width, JSON.stringify({ text, box }));
    assert.ok(box.x + box.width <= chart.x + chart.width, JSON.stringify({ box, chart }));
    // Only the chart has swaps of its own time, and not the figure of 24 hours.
    await page.getByText('In the 7 d of the chart: $15.00 in 6 swaps').waitFor();
    assert.equal(await page.locator('.figures', { hasText: 'swaps' }).count(), 0);
    await page.context().close();
  });
});
