/**
 * Deliveries in a real browser: the journey without a mouse, the live list over a restart, and what receivers and other watchers
 * must not be able to do.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sql } from '../../src/store/db/sql.ts';
import { hideTab, holdAnswer } from '../kit/browser.ts';
import { createDeliveryTools, idsOf } from '../kit/console-deliveries.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher, freshAddress } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

describe('deliveries', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage({ retryMinutes: [60] });
  });
  after(() => stage[Symbol.asyncDispose]());

  const { watching, received, sentIds, openLive } = createDeliveryTools(() => stage);

  test('an empty list shows the command that fills it', async () => {
    const watcher = await createWatcher(stage.service, 'empty');
    const page = await stage.open('/receivers', { key: watcher.key });
    const shows = async (text: string) => {
      await page.getByText(text).waitFor();
      await page.locator('.empty', { hasText: '/api/notifications/watched-addresses' }).waitFor();
    };
    await shows('No receivers yet');
    await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
    await shows('No transfers of your addresses yet');
    await watcher.watch({ address: freshAddress(), webhookUrl: `${stage.receiver.url}/empty` });
    await page.getByRole('link', { name: 'Overview' }).first().click();
    await shows('No transfer of your addresses has been seen yet');
    await page.context().close();
  });

  test('a visitor without a mouse creates an address, tests it, sees the attempt and sends it again', async () => {
    const watcher = await createWatcher(stage.service, 'keys');
    const page = await stage.open('/addresses', { key: watcher.key });
    await page.getByText('You watch no addresses yet').waitFor();
    const address = freshAddress();
    await page.keyboard.press('n');
    await page.getByRole('dialog').getByLabel('Address').focus();
    await page.keyboard.type(address);
    await page.keyboard.press('Tab');
    await page.keyboard.type(`${stage.receiver.url}/keys`);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Watched address' }).waitFor();
    await waitUntil(async () => (await page.evaluate('document.activeElement.id')) === 'main');
    await page.keyboard.press('Shift+T');
    await page.getByText('The receiver accepted the test').waitFor();
    await page.getByText(`POST ${stage.receiver.url}/keys`).waitFor();
    await page.locator('pre.json', { hasText: '"COIN_TRANSFER"' }).waitFor();
    assert.equal(received('keys')[0]?.headers['webhook-test'], 'true');
    await stage.chain.transferNative({ from: stage.chain.accounts[1], to: address, valueWei: 1n });
    await page.locator('tbody .state', { hasText: 'Delivered' }).waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Send again' }).waitFor();
    await page.keyboard.press('Shift+R');
    await page.getByText('The same body, with the same id').waitFor();
    await page.keyboard.press('Enter');
    await page.getByText('2 attempts').waitFor();
    const [, first, second] = received('keys');
    assert.equal(first?.body, second?.body);
    await page.keyboard.press('Escape');
    await page.waitForURL((url) => url.pathname === '/console/deliveries');
    await page.context().close();
  });

  test('a delivery that waits is sent at once without a mouse, on a small screen too, and the focus stays', async () => {
    stage.receiver.setAnswer(({ path }) => (path.endsWith('/hurry') ? { status: 500 } : {}));
    const { watcher, pay } = await watching('hurry');
    await pay(2);
    await waitUntil(() => received('hurry').length === 2);
    const page = await stage.open('/deliveries', { key: watcher.key, width: 360, height: 740 });
    await page.locator('li .row-link').nth(1).waitFor();
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    const [newest, opened] = await page.evaluate<string[]>(
      `[...document.querySelectorAll('li .row-link')].map((link) => link.href)`,
    );
    assert.equal(await page.evaluate('document.activeElement.href'), opened);
    await page.keyboard.press('k');
    assert.equal(await page.evaluate('document.activeElement.href'), newest);
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Deliver now' }).waitFor();
    await page.keyboard.press('Shift+R');
    await page.getByText('Instead of the attempt that is planned').waitFor();
    stage.receiver.setAnswer({});
    await page.keyboard.press('Enter');
    await page.locator('.detail-top .state', { hasText: 'Delivered' }).waitFor();
    await waitUntil(async () => (await page.evaluate('document.activeElement.className')) === 'inspector');
    assert.equal(received('hurry').length, 3);
    await page.context().close();
  });

  test('a live list without older pages links to one as soon as it has more rows than it shows', async () => {
    const { watcher, pay } = await watching('many');
    const page = await stage.open('/deliveries', { key: watcher.key });
    await page.getByText('No transfers of your addresses yet').waitFor();
    await page.getByTitle('Live', { exact: true }).waitFor();
    await pay(61);
    const older = page.getByRole('link', { name: 'Older' });
    await older.waitFor();
    await page.getByText('61 in the log').waitFor();
    const sent = sentIds('many');
    await waitUntil(async () => (await idsOf(page))[0] === sent[0]);
    const newest = await idsOf(page);
    await older.click();
    // It shows all others, which are more than one if the payments took longer than a burst does.
    await waitUntil(async () => (await idsOf(page)).at(-1) === sent.at(-1));
    assert.deepEqual([...newest, ...(await idsOf(page))], sent);
    await page.context().close();
  });

  test('a live list shows each delivery once, also those of the time when the service was away', async () => {
    const { watcher, pay } = await watching('live');
    const page = await stage.open('/deliveries', { key: watcher.key });
    await page.getByText('No transfers of your addresses yet').waitFor();
    await page.getByTitle('Live', { exact: true }).waitFor();
    await pay(3);
    await page.locator('tbody tr').nth(2).waitFor();
    await stage.restart(async () => {
      await page.getByText('No connection to Chainbell since').waitFor();
      await page.getByText('Disconnected since').first().waitFor();
      await pay(2);
    });
    await page.locator('tbody tr').nth(4).waitFor();
    await page.getByText('No connection to Chainbell').waitFor({ state: 'detached' });
    const shown = await idsOf(page);
    assert.deepEqual(shown, sentIds('live'));
    assert.equal(shown.length, 5);
    await page.getByText('5 in the log').waitFor();
    await page.context().close();
  });

  test('a list under the pointer stands still and counts what is new', async () => {
    const { watcher, pay } = await watching('still');
    await pay(2);
    await waitUntil(() => received('still').length === 2);
    const page = await stage.open('/deliveries', { key: watcher.key });
    await page.locator('tbody tr').nth(1).waitFor();
    await page.getByTitle('Live', { exact: true }).waitFor();
    const before = await idsOf(page);
    await page.locator('tbody tr').first().hover();
    await pay(2);
    await page.getByRole('button', { name: '2 new' }).waitFor();
    assert.deepEqual(await idsOf(page), before);
    const redeliver = async (id = 0) => {
      const { length } = received('still');
      const path = `${stage.service.apiUrl}/api/notifications/log/${id}/redeliver`;
      const headers = { authorization: `Bearer ${watcher.key}` };
      assert.equal((await fetch(path, { method: 'POST', headers })).status, 200);
      await waitUntil(() => received('still').length > length);
    };
    await redeliver(before[0]);
    const [counted] = sentIds('still');
    await redeliver(counted);
    await pay();
    await waitUntil(() => received('still').length === 7);
    stage.receiver.setAnswer({ status: 500 });
    await redeliver(before[1]);
    await page.locator('tbody tr').nth(1).getByText('500').waitFor();
    await page.getByRole('button', { name: '3 new', exact: true }).waitFor();
    stage.receiver.setAnswer({});
    await page.keyboard.press('.');
    await page.locator('tbody tr').nth(4).waitFor();
    assert.deepEqual((await idsOf(page)).slice(3), before);
    await pay(2);
    await page.getByRole('button', { name: '2 new' }).waitFor();
    await page.mouse.move(0, 0);
    await pay();
    await page.locator('tbody tr').nth(7).waitFor();
    assert.deepEqual(await idsOf(page), [...new Set(sentIds('still'))]);
    await page.context().close();
  });

  test('rows do not move from under a pointer that came while the list was loading again', async () => {
    const { watcher, pay } = await watching('moving');
    await pay(2);
    const page = await openLive('/deliveries', { key: watcher.key });
    await page.locator('tbody tr').nth(1).waitFor();
    const before = await idsOf(page);
    const [asked, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    await page.route(
      /notifications.log\?/,
      async (route) => {
        asked.resolve();
        await gate.promise;
        await route.continue();
      },
      { times: 1 },
    );
    await page.evaluate(`document.dispatchEvent(new Event('visibilitychange'))`);
    await asked.promise;
    await page.locator('tbody tr').first().hover();
    await pay(2);
    await waitUntil(() => received('moving').length === 4);
    const answered = page.waitForResponse(/notifications.log\?/);
    gate.resolve();
    await answered;
    await page.getByRole('button', { name: '2 new' }).waitFor();
    assert.deepEqual(await idsOf(page), before);
    await page.locator('tbody tr').first().click();
    await page.getByRole('complementary').waitFor();
    await page.context().close();
  });

  test('a delivery that newer ones overtake enters the live list in its place, whatever its receiver answers', async () => {
    const slow = Promise.withResolvers<void>();
    stage.receiver.setAnswer(async ({ path }) => {
      if (!path.endsWith('/slow')) return {};
      await slow.promise;
      return { status: 500, body: 'line\u2028separator' };
    });
    const { watcher, pay } = await watching('fast');
    const address = freshAddress();
    await watcher.watch({ address, webhookUrl: `${stage.receiver.url}/slow` });
    const page = await openLive('/deliveries', { key: watcher.key });
    await stage.chain.transferNative({ from: stage.chain.accounts[1], to: address, valueWei: 1n });
    await waitUntil(() => received('slow').length === 1);
    await pay(2);
    await page.locator('tbody tr').nth(1).waitFor();
    slow.resolve();
    await page.locator('tbody tr').nth(2).locator('.state', { hasText: 'Retrying' }).waitFor();
    const ids = await idsOf(page);
    assert.deepEqual(
      ids,
      ids.toSorted((one, other) => other - one),
    );
    await page.context().close();
    stage.receiver.setAnswer({});
  });

  test('what came while a list was not live, or while the service refused to list it, is in it', async () => {
    const { watcher, pay } = await watching('late');
    await pay();
    const page = await openLive('/deliveries', { key: watcher.key });
    await page.locator('tbody tr a').first().click();
    await page.getByText('Request body').waitFor();
    await page.keyboard.press('l');
    await pay(2);
    await waitUntil(() => received('late').length === 3);
    await page.keyboard.press('l');
    await page.locator('tbody tr').nth(2).waitFor();
    await page.keyboard.press('Escape');
    let refusals = 0;
    await page.route(/notifications.log\?/, (route) => {
      refusals += 1;
      return refusals > 2 ? route.continue() : route.fulfill({ status: 503, body: '{}' });
    });
    await page.getByRole('link', { name: 'Overview' }).first().click();
    await waitUntil(() => refusals > 2);
    await waitUntil(async () => String(await idsOf(page)) === String(sentIds('late')));
    await page.context().close();
  });

  test('attempts that end while a list loads are in it, on the page of deliveries and on the overview', async () => {
    const { watcher, pay } = await watching('loading');
    await pay();
    const page = await openLive('/deliveries', { key: watcher.key });
    await page.locator('tbody tr').first().waitFor();
    for (const load of [
      () => page.keyboard.press('.'),
      () => page.getByRole('link', { name: 'Overview' }).first().click(),
    ]) {
      const answer = await holdAnswer(page, /notifications.log\?/);
      await load();
      await answer.held;
      const { length } = received('loading');
      await pay();
      await waitUntil(() => received('loading').length > length);
      const [newest] = sentIds('loading');
      await waitUntil(async () => (await idsOf(page))[0] === newest);
      await answer.release();
      assert.deepEqual(await idsOf(page), sentIds('loading'));
    }
    await page.context().close();
  });

  test('a live list goes on after the database was replaced, and passes over attempts whose delivery was deleted', async () => {
    const { watcher, pay } = await watching('replaced');
    const page = await openLive('/deliveries', { key: watcher.key });
    const errors: Error[] = [];
    page.on('pageerror', (error) => errors.push(error));
    for (const place of [0, 1]) {
      await pay();
      await page.locator('tbody tr').nth(place).waitFor();
    }
    // For the service this is an id of another database.
    await page.route('**/attempts/stream', (route, request) => {
      const { 'last-event-id': id, ...headers } = request.headers();
      return route.continue({
        headers: id === undefined ? headers : { ...headers, 'last-event-id': '9'.repeat(15) },
      });
    });
    const refused = page.waitForResponse((response) => response.status() === 400);
    await hideTab(page, true);
    await hideTab(page, false);
    await refused;
    await page.getByTitle('Live', { exact: true }).waitFor();
    await stage.service.database.query(sql`
      insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
      select shard_id, 1000000, now(), 1, 'timeout' from watched_address where watcher_id = ${watcher.id} limit 1`);
    await pay();
    await page.locator('tbody tr').nth(2).waitFor();
    assert.equal(await page.getByText('More than 1,000').count(), 0);
    assert.deepEqual(errors, []);
    await page.context().close();
  });

  test('a list of one address takes only its deliveries live, and not those of the address that pays to it', async () => {
    const { watcher, pay, address } = await watching('payee');
    const payer = stage.chain.accounts[2];
    await watcher.watch({ address: payer, webhookUrl: `${stage.receiver.url}/payer` });
    const page = await openLive(`/deliveries?address=${address.slice(2).toUpperCase()}`, {
      key: watcher.key,
    });
    await stage.chain.transferNative({ from: payer, to: address, valueWei: 1n });
    await waitUntil(() => received('payer').length === 1);
    await pay();
    await page.locator('tbody tr').nth(1).waitFor();
    assert.deepEqual(await idsOf(page), sentIds('payee'));
    await page.context().close();
  });

  test('to the operator, rows that arrive live name their watcher', async () => {
    const { pay } = await watching('named');
    const page = await openLive('/deliveries', { admin: ADMIN_TOKEN });
    await pay();
    await page.getByRole('row', { name: 'named' }).waitFor();
    await page.context().close();
  });

  test('Esc leads from a delivery with a forged id back to the list', async () => {
    const { watcher } = await watching('forged');
    const page = await stage.open(`/deliveries/${encodeURIComponent('1"] x')}`, { key: watcher.key });
    await page.getByRole('complementary').waitFor();
    await page.keyboard.press('Escape');
    await page.waitForURL((url) => url.pathname === '/console/deliveries');
    await page.context().close();
  });

  test('while the database is away, the page says since when, beside the last head and in place of one', async () => {
    const { watcher } = await watching('away');
    const page = await stage.open('', { key: watcher.key });
    const pill = page.getByRole('banner');
    const figure = page.locator('.figures > div', { hasText: 'Head, checked' });
    await pill.getByText('ago').waitFor();
    // As the service answers then.
    await page.route('**/status', async (route) => {
      const response = await route.fetch();
      const problem = { message: 'database: cannot be reached', since: new Date().toISOString() };
      await route.fulfill({ json: { ...Object(await response.json()), cursor: null, problem } });
    });
    await pill.getByText(/^#\d+, trouble since/).waitFor();
    await figure.getByText(/^#\d+$/).waitFor();
    await page.reload();
    await pill.getByText(/^trouble since/).waitFor();
    await figure.getByText(/^trouble since/).waitFor();
    assert.equal(await page.getByText('No block stored yet').count(), 0);
    await page.context().close();
  });

  test('two watchers never see one another', async () => {
    const one = await watching('one');
    const other = await watching('other');
    await one.pay();
    await waitUntil(() => received('one').length === 1);
    const [id] = sentIds('one');
    const page = await stage.open('/deliveries', { key: other.watcher.key });
    await page.getByText('No transfers of your addresses yet').waitFor();
    await page.goto(`${stage.service.apiUrl}/console/deliveries/${id}`);
    await page.getByText(`There is no delivery ${id}`).waitFor();
    await page.goto(`${stage.service.apiUrl}/console/addresses/${one.id}`);
    await page.getByText('You watch no address with this ID').waitFor();
    await one.pay();
    await waitUntil(() => received('one').length === 2);
    await page.goto(`${stage.service.apiUrl}/console`);
    await page.getByText('No transfer of your addresses has been seen yet').waitFor();
    assert.equal(await page.getByText('/one').count(), 0);
    await page.context().close();
  });

  test('a hostile answer is only ever text', async () => {
    const marks = '\u202e\u0000\u2066';
    const body = `<script>window.stolen = sessionStorage.length</script><img src=x onerror="window.stolen=1">${marks}${'A'.repeat(16_384)}`;
    stage.receiver.setAnswer(({ path }) => (path.endsWith('/hostile') ? { status: 500, body } : {}));
    const { watcher, pay } = await watching('hostile');
    await pay();
    await waitUntil(() => received('hostile').length === 1);
    const page = await stage.open('/deliveries', { key: watcher.key });
    await page.locator('tbody .state', { hasText: 'Retrying' }).click();
    const answer = page.locator('pre.answer');
    await answer.waitFor();
    assert.match((await answer.textContent()) ?? '', /^<script>window\.stolen.*⟨U\+202E⟩/);
    assert.equal(await page.evaluate('window.stolen'), undefined);
    assert.equal(await page.locator('img').count(), 0);
    const width = await page.evaluate<number>('document.documentElement.scrollWidth - innerWidth');
    assert.equal(width, 0);
    await page.context().close();
    stage.receiver.setAnswer({});
  });

  test('the share of first attempts counts messages that no receiver has accepted yet', async () => {
    stage.receiver.setAnswer(({ path }) => (path.endsWith('/share') ? { status: 500, body: 'down' } : {}));
    const { watcher, pay } = await watching('share');
    await pay(2);
    await waitUntil(() => received('share').length === 2);
    const page = await stage.open('', { key: watcher.key });
    const share = page.locator('.figures > div', { hasText: 'On the first attempt' });
    await share.getByText('0.00 %', { exact: true }).waitFor();
    await share.getByText('2 still retried').waitFor();
    stage.receiver.setAnswer({});
    await pay(2);
    await waitUntil(() => received('share').length === 4);
    await page.reload();
    await share.getByText('50.00 %', { exact: true }).waitFor();
    await page.context().close();
  });

  test('all deliveries of a filter are counted first, then sent again with a progress', async () => {
    const { watcher, pay } = await watching('again');
    await pay(3);
    await waitUntil(() => received('again').length === 3);
    const page = await stage.open('/deliveries?status=delivered', { key: watcher.key });
    await page.locator('tbody tr').nth(2).waitFor();
    await page.getByRole('button', { name: 'Redeliver' }).click();
    await page.getByRole('button', { name: 'Redeliver 3' }).click();
    await page.getByText('3 are due now').waitFor();
    await waitUntil(() => received('again').length === 6);
    await page.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click();
    await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
    await page.locator('tbody input').first().click();
    await page.getByRole('button', { name: 'Redeliver 1' }).click();
    await page.getByRole('dialog').waitFor();
    await page.goBack();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    assert.equal(await page.locator('tbody input:checked').count(), 0);
    await page.context().close();
  });
});
