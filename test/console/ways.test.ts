/**
 * Ways through the console: where links, keys and narrow screens lead, and what the pages of public data show at their limits.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { holdAnswer, openTab } from '../kit/browser.ts';
import { createDeliveryTools } from '../kit/console-deliveries.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { waitUntil } from '../kit/wait.ts';

/** Longer than new watchers go without their names in live rows. */
const NAMES_MS = 61_000;
const HOUR_MS = 3_600_000;
/** As the API gives it. */
const PAIR = {
  ...{
    id: 7,
    name: 'AAA/BBB',
    address: `0x${'1'.repeat(40)}`,
    latestPrice: 1.5,
    vol24h: 1,
    updated_at: null,
  },
  ...{ token0: `0x${'2'.repeat(40)}`, token1: `0x${'3'.repeat(40)}`, lpPriceInUsd: null, reward_pid: 1 },
  ...{ token0_decimals: 18, token1_decimals: 18, reserve0: null, reserve1: null, usd_value_from: 1 },
};

describe('ways', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage({ retryMinutes: [60], sections: { supply: { initial: '1000000' } } });
  });
  after(() => stage[Symbol.asyncDispose]());

  const { watching, received, sentIds } = createDeliveryTools(() => stage);

  test('Esc leads back to the row of the delivery, and not to one whose number begins alike', async () => {
    const { watcher, pay } = await watching('alike');
    await pay(2);
    await waitUntil(() => received('alike').length === 2);
    const page = await stage.open('/supply', { key: watcher.key });
    await page.route(/notifications.log\?/, async (route) => {
      const response = await route.fetch();
      const { data, ...rest } = Object(await response.json());
      const ids = [1_000_017, 100_001];
      const rows = data.map((row: object, index: number) => ({ ...row, id: ids[index] }));
      await route.fulfill({ response, json: { ...rest, data: rows } });
    });
    await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
    await page.locator('tbody a.row-link').nth(1).press('Enter');
    await page.getByText('There is no delivery 100001').waitFor();
    await page.keyboard.press('Escape');
    await waitUntil(
      async () => (await page.evaluate('document.activeElement.pathname')) === '/console/deliveries/100001',
    );
    await page.context().close();
  });

  test('a dialog is open before the next key', async () => {
    const page = await stage.open('/keys', { admin: ADMIN_TOKEN });
    await page.getByRole('button', { name: 'New key' }).waitFor();
    const isOpen = await page.evaluate(`(async () => {
      document.querySelector('.head .button.is-first').click();
      await Promise.resolve();
      return document.querySelector('dialog').open;
    })()`);
    assert.equal(isOpen, true);
    await page.context().close();
  });

  test('Esc closes the help before its file has arrived', async () => {
    const page = await stage.open('/supply', {});
    const file = await holdAnswer(page, /\/help-[^/]*\.js$/);
    await page.getByRole('heading', { level: 1 }).waitFor();
    const arrives = page.waitForResponse(/\/help-[^/]*\.js$/);
    await page.keyboard.press('?');
    await file.held;
    await page.keyboard.press('Escape');
    await file.release();
    await page.evaluate(`(async () => {
      await import('${(await arrives).url()}');
      for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
    })()`);
    assert.equal(await page.getByRole('dialog').count(), 0);
    await page.keyboard.press('?');
    await page.getByRole('dialog').waitFor();
    await page.context().close();
  });

  test('to the operator, a link to a watched address chooses its watcher', async () => {
    const { pay, watcher } = await watching('linked');
    await pay();
    await waitUntil(() => received('linked').length === 1);
    const page = await stage.open('/addresses', { admin: ADMIN_TOKEN });
    const choice = page.getByLabel('Watcher', { exact: true }).first();
    // The page learns which side of the transfer is watched.
    await choice.selectOption({ label: 'linked' });
    await page.getByText(`${stage.receiver.url}/linked`).waitFor();
    await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
    await choice.selectOption({ label: 'All watchers' });
    await page.getByRole('row', { name: 'linked' }).first().click();
    await page.getByRole('complementary').getByRole('link', { name: 'watched' }).click();
    await page.getByRole('heading', { name: 'Watched address' }).waitFor();
    assert.equal(await choice.inputValue(), String(watcher.id));
    await page.context().close();
  });

  test('rows name a watcher that was created after the page was opened, on a small screen too', async () => {
    const { page, context } = await openTab(stage.browser, { width: 360, height: 740 });
    await page.clock.install();
    await page.goto(`${stage.service.apiUrl}/console/deliveries#admin=${ADMIN_TOKEN}`);
    await page.getByText('in the log').waitFor();
    const { pay } = await watching('latecomer');
    await page.clock.fastForward(NAMES_MS);
    await pay();
    await page.locator('li .row-link', { hasText: 'latecomer · from' }).waitFor();
    await context.close();
  });

  test('a failing receiver leads to all its deliveries that fail, by how far they are', async () => {
    stage.receiver.setAnswer(({ path }) => (path.endsWith('/failing') ? { status: 500 } : {}));
    const { watcher, pay } = await watching('failing');
    await pay();
    await waitUntil(() => received('failing').length === 1);
    const page = await stage.open('/receivers', { key: watcher.key });
    await page.getByText('Answered 500').first().click();
    await page.getByText('Other receivers are unaffected').waitFor();
    await page.getByText(/Next attempt: 00:\d\d:\d\d/).waitFor();
    await page.getByRole('link', { name: 'Show 1 retrying' }).waitFor();
    await page.getByText(/In flight \/ limit: \d+ \/ /).waitFor();
    await page.setViewportSize({ width: 360, height: 740 });
    assert.equal(await page.evaluate('document.documentElement.scrollWidth'), 360);
    await page.setViewportSize({ width: 1440, height: 900 });
    assert.equal(await page.getByRole('link', { name: /Show .+ failing/ }).count(), 0);
    const [id] = sentIds('failing');
    const ask = async (path: string, method = 'GET') => {
      const headers = { authorization: `Bearer ${watcher.key}` };
      const url = `${stage.service.apiUrl}/api/notifications/log/${path}`;
      return Object(await (await fetch(url, { method, headers })).json()).data;
    };
    for (const failures of [1, 2, 3]) {
      await waitUntil(async () => (await ask(`${id}`)).failures === failures);
      await ask(`${id}/redeliver`, 'POST');
    }
    await pay();
    for (const status of ['retrying', 'failing'])
      await waitUntil(async () => (await ask(`count?status=${status}`)).count === 1);
    for (const [status, word] of [
      ['retrying', 'Retrying'],
      ['failing', 'Failing'],
    ] as const) {
      await page.reload();
      await page.getByRole('link', { name: `Show 1 ${status}` }).click();
      await page.locator('tbody .state', { hasText: word }).waitFor();
      assert.equal(await page.locator('tbody .state').count(), 1);
      await page.goBack();
    }
    await page.context().close();
    stage.receiver.setAnswer({});
  });

  test('a receiver without attempts says that nothing was sent, and is healthy after the first success', async () => {
    const { watcher, pay } = await watching('unused');
    const page = await stage.open('/receivers', { key: watcher.key });
    await page.locator('tbody .state', { hasText: 'Nothing sent' }).waitFor();
    assert.equal(await page.getByText('Healthy').count(), 0);
    await page.locator('tbody a.row-link').click();
    await page.getByText('Nothing was sent to it yet in the chosen period').waitFor();
    await page.setViewportSize({ width: 360, height: 740 });
    await page.locator('.rows .below-line', { hasText: 'Nothing sent' }).waitFor();
    await pay();
    await waitUntil(() => received('unused').length === 1);
    await waitUntil(async () => {
      await page.reload();
      await page.locator('.rows .below-line').waitFor();
      return (await page.locator('.below-line', { hasText: 'Healthy' }).count()) === 1;
    });
    await page.context().close();
  });

  test('to the operator, two watchers of one receiver have a row each, which leads to its own deliveries', async () => {
    stage.receiver.setAnswer(({ path }) => (path.endsWith('-of-two') ? { status: 500 } : {}));
    const both = [await watching('one-of-two'), await watching('other-of-two')] as const;
    await Promise.all(both.map(({ pay }) => pay()));
    await waitUntil(() => received('one-of-two').length === 1 && received('other-of-two').length === 1);
    const page = await stage.open('/receivers?show=failing', { admin: ADMIN_TOKEN });
    const rows = page.getByRole('row', { name: /-of-two · Answered 500/ });
    await waitUntil(async () => (await rows.count()) === 2);
    await page.getByRole('row', { name: 'other-of-two' }).click();
    await page.getByText('(other-of-two): Answered 500').waitFor();
    assert.equal(await page.locator('[aria-expanded=true]').count(), 1);
    await page.setViewportSize({ width: 360, height: 740 });
    await page.locator('li .row-link', { hasText: 'other-of-two · Answered 500' }).waitFor();
    assert.equal(await page.locator('[aria-expanded=true]').count(), 1);
    await page.setViewportSize({ width: 1280, height: 740 });
    await page.getByRole('link', { name: 'Show its deliveries' }).click();
    await page.getByText('1 match').waitFor();
    const choice = page.getByLabel('Watcher', { exact: true }).first();
    assert.equal(await choice.inputValue(), String(both[1].watcher.id));
    await page.context().close();
    stage.receiver.setAnswer({});
  });

  test('a delivery that is due says so, and leads to its receiver', async () => {
    const { watcher, pay } = await watching('due');
    await pay();
    await waitUntil(() => received('due').length === 1);
    const page = await stage.open('/supply', { key: watcher.key });
    await page.route(/notifications.log.\d+$/, async (route) => {
      const response = await route.fetch();
      const { data, ...rest } = Object(await response.json());
      const due = { state: 'waiting', status: 'waiting', next_retry_at: null, attempts: [] };
      await route.fulfill({ response, json: { ...rest, data: { ...data, ...due } } });
    });
    await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
    await page.getByRole('heading', { name: 'Deliveries' }).waitFor();
    await page.locator('tbody tr').first().click();
    await page.getByText('Attempt 1 is due, and waits for the receiver’s turn').waitFor();
    await page.getByRole('link', { name: 'How the receiver does' }).click();
    await page.getByText('Other receivers are unaffected').waitFor();
    assert.deepEqual([...new URL(page.url()).searchParams], [['origin', new URL(stage.receiver.url).origin]]);
    await page.context().close();
  });

  test('an attempt whose time has come is due now, in a list of a small screen and in its delivery', async () => {
    const { watcher, pay } = await watching('late');
    await pay();
    await waitUntil(() => received('late').length === 1);
    const page = await stage.open('/supply', { key: watcher.key, width: 360, height: 740 });
    const late = { state: 'waiting', status: 'retrying', next_retry_at: '2026-01-31T12:00:00.000Z' };
    await page.route(/notifications.log(?:\?|.\d+$)/, async (route) => {
      const response = await route.fetch();
      const { data, ...rest } = Object(await response.json());
      const changed = Array.isArray(data)
        ? data.map((one: object) => ({ ...one, ...late }))
        : { ...data, ...late };
      await route.fulfill({ response, json: { ...rest, data: changed } });
    });
    await page.getByRole('link', { name: 'Deliveries', exact: true }).last().click();
    await page.locator('li .row-link', { hasText: '· next is due now' }).click();
    await page.getByText('Attempt 2 is due now').waitFor();
    await page.context().close();
  });

  test('days are those of UTC, wherever the visitor is', async () => {
    const { watcher, pay } = await watching('days');
    await pay();
    await waitUntil(() => received('days').length === 1);
    const page = await stage.open('/supply', { key: watcher.key, timeZone: 'America/New_York' });
    await page.evaluate(`localStorage.setItem('chainbell.zone', 'local')`);
    const answer = page.waitForResponse(/statistics\?period=30d/);
    await page.goto(`${stage.service.apiUrl}/console?period=30d`);
    const { data } = Object(await (await answer).json());
    await page.getByRole('heading', { name: 'Deliveries by day, UTC' }).waitFor();
    await page.getByText('Show as a table').click();
    const last = new Date(data.buckets.at(-1).from);
    const month = last.toLocaleString('en-US', { month: 'short', timeZone: 'UTC' });
    const shown = await page.locator('.as-table tbody tr td:first-child').allTextContents();
    assert.equal(shown.at(-1), `${last.getUTCDate()} ${month}`);
    await page.context().close();
  });

  test('the field that searches an address is empty again after Back', async () => {
    const { watcher, address } = await watching('found');
    const page = await stage.open('/addresses', { key: watcher.key });
    const field = page.getByRole('search').getByRole('textbox');
    await field.fill(address);
    await field.press('Enter');
    await page.waitForURL((url) => url.searchParams.get('address') === address);
    assert.equal(await field.inputValue(), address);
    await page.goBack();
    await waitUntil(async () => (await field.inputValue()) === '');
    await page.context().close();
  });

  test('a month without points says so, and leads to others', async () => {
    const page = await stage.open('/points?month=2020-01');
    await page.getByText('No user earned points in January 2020').waitFor();
    assert.equal(await page.getByRole('alert').count(), 0);
    await page.getByRole('link', { name: 'December 2019' }).waitFor();
    await page.getByRole('link', { name: 'February 2020' }).click();
    await page.getByText('No user earned points in February 2020').waitFor();
    await page.context().close();
  });

  test('the chart of a pair shows no price for hours at whose end the pool had none', async () => {
    const page = await stage.open('/supply');
    const present = Math.floor(Date.now() / HOUR_MS);
    const prices = [1.5, null, undefined, 1.75].flatMap((price, index) =>
      price === undefined ? [] : [{ hour: new Date((present - 4 + index) * HOUR_MS).toISOString(), price }],
    );
    await page.route(/api\/swap\//, (route, request) =>
      route.fulfill({
        json: /pairs$/.test(request.url()) ? [PAIR] : request.url().includes('price-') ? prices : [],
      }),
    );
    await page.goto(`${stage.service.apiUrl}/console/market/7`);
    await page.getByText('Show as a table').click();
    const cells = page.locator('.as-table tbody td:nth-child(2)');
    assert.deepEqual(await cells.allTextContents(), ['1.5', '–', '–', '1.75']);
    await page.context().close();
  });

  test('public answers, which a cache may have kept, do not set the clock back', async () => {
    const { page } = await openTab(stage.browser);
    const present = Date.now();
    const dateOf = (ms: number) => ({ date: new Date(present + ms).toUTCString() });
    const answered = Promise.withResolvers<void>();
    await page.route(/\/status$/, async (route) => {
      await route.fulfill({ response: await route.fetch(), headers: dateOf(HOUR_MS) });
      answered.resolve();
      await page.unroute(/\/status$/);
      await page.route(/\/status$/, (later) => later.fulfill({ status: 503, json: {} }));
    });
    const pair = { ...PAIR, updated_at: new Date(present - 2.5 * HOUR_MS).toISOString() };
    await page.route(/api\/swap\//, async (route, request) => {
      await answered.promise;
      const json = /pairs$/.test(request.url()) ? [pair] : [];
      await route.fulfill({ headers: dateOf(-HOUR_MS), json });
    });
    await page.goto(`${stage.service.apiUrl}/console/market/7`);
    await page.locator('.figures', { hasText: /read\s*3 h/ }).waitFor();
    await page.context().close();
  });

  test('a swap with both tokens on both sides shows what the trader paid and got in the end', async () => {
    const page = await stage.open('/supply');
    const units = (coins: number) => `${coins}${'0'.repeat(18)}`;
    const swap = { hash: `0x${'7'.repeat(64)}`, block_number: 9, mined_at: new Date().toISOString() };
    const swaps = [
      {
        ...{ amount0_in: '1', amount1_in: units(7), amount0_out: units(3).replace(/0$/, '1') },
        amount1_out: '0',
      },
      { amount0_in: units(12), amount1_in: '0', amount0_out: units(7), amount1_out: units(8) },
    ].map((one, ordinal) => ({ ...swap, ...one, ordinal, usd_value: null }));
    await page.route(/api\/swap\//, (route, request) =>
      route.fulfill({
        json: /pairs$/.test(request.url()) ? [PAIR] : request.url().includes('swaps') ? swaps : [],
      }),
    );
    await page.goto(`${stage.service.apiUrl}/console/market/7`);
    const rows = page.locator('section[aria-labelledby=swaps] tbody tr');
    await rows.nth(1).waitFor();
    const shown = await rows.evaluateAll((all) =>
      all.map((row) => [...row.querySelectorAll('td')].slice(1, 4).map((cell) => cell.textContent)),
    );
    assert.deepEqual(shown, [
      ['Buy AAA', '3', '7'],
      ['Sell AAA', '5', '8'],
    ]);
    await page.context().close();
  });

  test('the supply names balances of an earlier reading, and locked coins that exceed the initial ones', async () => {
    const page = await stage.open('/supply');
    await page.getByText('Initial = circulating + locked + burned').waitFor();
    await page.getByText('all read at the same block').waitFor();
    const note = "Read at one block. The chain's answer left out: team (of 2026-01-01T00:00:00.000Z).";
    await page.route(/supply-info/, async (route) => {
      const response = await route.fetch();
      const info = Object(await response.json());
      const raw = {
        ...{ initial_supply_wei: '100', locked_supply_wei: '150', burned_supply_wei: '50' },
        circulating_supply_wei: '0',
      };
      const cache = { ...info.cache, note };
      await route.fulfill({ json: { ...info, cache, raw: { ...info.raw, ...raw } } });
    });
    await page.reload();
    await page.getByText(note).waitFor();
    assert.equal(await page.getByText('all read at the same block').count(), 0);
    await page.getByText('Initial < locked + burned, so circulating counts as 0').waitFor();
    const [small, large, less] = ['0.0000000000000001', '0.00000000000000015', '0.00000000000000005'];
    await page.getByText(`${small} < ${large} + ${less} `).waitFor();
    const ends = await page
      .locator('svg.meter rect')
      .evaluateAll((all) =>
        all.map((one) => Number(one.getAttribute('x')) + Number(one.getAttribute('width'))),
      );
    assert.ok(ends.length === 3 && ends.every((end) => end <= 100), ends.join());
    await page.context().close();
  });

  test('the command that checks the supply names the block of the figures', async () => {
    const page = await stage.open('/supply');
    const text = await page.getByText(/at block \d+ \(0x/).textContent();
    const [, block] = /at block (\d+)/.exec(text ?? '') ?? [];
    await page.getByText(` --block ${block} --rpc-url $RPC_URL`).waitFor();
    await page.context().close();
  });

  test('corrections of points are drawn within the chart, and have no share', async () => {
    const page = await stage.open('/supply');
    const user = `0x${'5'.repeat(40)}`;
    const month = '2026-01';
    const awards = [
      { category: 'volume', points: 30 },
      { category: 'correction', points: -10 },
    ].map((one) => ({ ...one, created_at: `${month}-02T12:00:00.000Z`, hash: `0x${'7'.repeat(64)}` }));
    await page.route(/api\/points\/user/, (route) => route.fulfill({ json: awards }));
    await page.goto(`${stage.service.apiUrl}/console/points/${user}?month=${month}`);
    await page.getByRole('heading', { name: 'Newest awards' }).waitFor();
    assert.equal(await page.locator('.meter.is-thick rect').first().getAttribute('width'), '99.6');
    const heights = await page.evaluate<number[]>(
      `[...document.querySelectorAll('.inspector svg.chart rect')].map((one) => Number(one.getAttribute('height')))`,
    );
    assert.ok(heights.length > 0 && heights.every((height) => height >= 0), String(heights));
    await page.context().close();
  });

  test('the row of an open user has the points of the panel, which are newer than the list', async () => {
    const page = await stage.open('/supply');
    const user = `0x${'5'.repeat(40)}`;
    await page.route(/api\/points\/leaderboard/, (route) => route.fulfill({ json: [{ user, points: 100 }] }));
    await page.route(/api\/points\/user-by-category/, (route) =>
      route.fulfill({ json: [{ category: 'volume', points: 120 }] }),
    );
    await page.goto(`${stage.service.apiUrl}/console/points?month=2026-01`);
    await page.getByRole('row').filter({ hasText: '100' }).click();
    await page.locator('.big', { hasText: '120' }).waitFor();
    await page.locator('.list tbody tr', { hasText: '120' }).waitFor();
    await page.context().close();
  });
});
