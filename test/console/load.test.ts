/**
 * The console with much data, and with a stream that brings more than anyone can read.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sql } from '../../src/store/db/sql.ts';
import { hideTab, openTab } from '../kit/browser.ts';
import { startImitation } from '../kit/console-imitation.ts';
import { type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher, freshAddress } from '../kit/service.ts';

const RECORDS = 100_000;
const DELIVERIES = 10_000;
/** Far more than it takes on an idle machine, and far less than a scan of everything in the browser would. */
const PAGE_MS_MAX = 10_000;

/** The most rows that the list has while it changes 12 times, which takes more than a second. */
const MOST_ROWS = `new Promise((done) => {
  let [most, changes, top] = [0, 0, ''];
  const look = () => {
    const rows = document.querySelectorAll('tbody a.row-link');
    most = Math.max(most, rows.length);
    if (rows[0].href !== top) changes += 1;
    top = rows[0].href;
    if (changes > 12) done(most);
    else requestAnimationFrame(look);
  };
  look();
})`;

describe('the console', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage();
  });
  after(() => stage[Symbol.asyncDispose]());

  test('100,000 watched addresses and 10,000 deliveries make no page slow', async () => {
    const address = freshAddress();
    const { id } = await stage.watcher.watch({ address, webhookUrl: stage.receiver.url });
    const { database } = stage.service;
    await database.query(sql`
      insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at, updated_at)
      select shard_id, overlay(gen_random_uuid()::text placing right(id::text, 2) from 35)::uuid, watcher_id, lane_id,
        decode(lpad(to_hex(number), 40, '0'), 'hex'), true, true, webhook_url, created_at + number * interval '1 millisecond', now()
      from watched_address, generate_series(1, ${RECORDS}::int) as number
      where id = ${id}::uuid`);
    await database.query(sql`
      with made as materialized (
        select nextval('notification_id_seq') as id, w.shard_id, now() - n * interval '1 millisecond' as at, n
        from watched_address w, generate_series(1, ${DELIVERIES}::int) as n where w.id = ${id}::uuid
      ), written as (
        insert into notification (shard_id, id, created_at, block_number, ordinal, kind, watched_address_id, tx_hash, sender, receiver, amount)
        select shard_id, id, at, n, 0, 'c', ${id}::uuid, decode(lpad(to_hex(n), 64, '0'), 'hex'), decode(repeat('00', 20), 'hex'),
          decode(repeat('11', 20), 'hex'), n
        from made
      )
      insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, status)
      select shard_id, id, at, 5, 'success', 200 from made`);
    const page = await stage.open('/addresses', { key: stage.watcher.key });
    page.setDefaultTimeout(PAGE_MS_MAX);
    await page.locator('tbody tr').nth(49).waitFor();
    await page.getByRole('link', { name: 'Next page' }).click();
    await page.getByRole('link', { name: 'First page' }).waitFor();
    await page.getByLabel('Search a whole address').fill(`0x${(77_777).toString(16).padStart(40, '0')}`);
    await page.keyboard.press('Enter');
    await page.getByText('0x00000000…00012fd1').waitFor();
    assert.equal(await page.locator('tbody tr').count(), 1);
    await page.getByRole('link', { name: 'Deliveries', exact: true }).first().click();
    await page.locator('tbody tr').nth(49).waitFor();
    await page.getByText('10,000').waitFor();
    for (let count = 0; count < 3; count += 1) {
      await page.getByRole('link', { name: 'Older' }).click();
      await page.getByRole('link', { name: 'Newest' }).waitFor();
      await page.locator('tbody tr').nth(49).waitFor();
    }
    await page.goto(`${stage.service.apiUrl}/console`);
    await page.getByText('Deliveries by hour').waitFor();
    await page.context().close();
  });

  test('receivers beyond the first hundred have a page, and those that fail are found on any', async () => {
    const watcher = await createWatcher(stage.service, 'many');
    for (let number = 100; number <= 200; number += 1)
      await watcher.watch({ address: freshAddress(), webhookUrl: `https://r${number}.example/hook` });
    const page = await stage.open('/receivers', { key: watcher.key });
    await page.getByText('100 origins on this page').waitFor();
    assert.equal(await page.locator('tbody tr').count(), 100);
    await page.getByRole('link', { name: 'Next page' }).click();
    await page.getByText('1 origin on this page').waitFor();
    await page.getByText('r200.example').waitFor();
    await page.context().close();
  });

  test('a hidden tab closes its stream, and goes on where it was', async () => {
    const page = await stage.open('/deliveries', { key: stage.watcher.key });
    await page.getByTitle('Live', { exact: true }).waitFor();
    const isStream = (request: { url(): string }) => request.url().endsWith('/attempts/stream');
    const closed = page.waitForEvent('requestfailed', isStream);
    await hideTab(page, true);
    await closed;
    const opened = page.waitForRequest(isStream);
    await hideTab(page, false);
    await opened;
    await page.getByTitle('Live', { exact: true }).waitFor();
    await page.context().close();
  });

  test('a burst after a pause makes no list shorter', async () => {
    const imitation = await startImitation({ attemptsPerMinute: 0 });
    const { page, context } = await openTab(stage.browser);
    try {
      await page.goto(`${imitation.url}/console/deliveries#key=cb_live_imitation`);
      await page.getByTitle('Live', { exact: true }).waitFor();
      await page.locator('tbody tr').nth(49).waitFor();
      imitation.burst(40);
      await page.locator('tbody a.row-link[href$="/1040"]').waitFor();
      assert.equal(await page.locator('tbody tr').count(), 60);
    } finally {
      await context.close();
      await imitation.close();
    }
  });

  test('after more than 1,000 missed attempts, the newest page is shown instead of all of them', async () => {
    const imitation = await startImitation({ attemptsPerMinute: 30_000 });
    const { page, context } = await openTab(stage.browser);
    try {
      await page.goto(`${imitation.url}/console/deliveries#key=cb_live_imitation`);
      // A list that changes faster than anyone can read keeps its newest rows, and the next page begins after them.
      await page.locator('tbody tr').nth(29).waitFor();
      await page.locator('tbody tr').nth(30).waitFor({ state: 'detached' });
      assert.equal(await page.evaluate(MOST_ROWS), 30);
      await page.getByText('Live', { exact: true }).first().hover();
      const [last, older] = await page.evaluate<[string, string]>(
        `[[...document.querySelectorAll('tbody a.row-link')].at(-1).href, document.querySelector('.below a').href]`,
      );
      assert.equal(new URL(older).searchParams.get('cursor'), last.split('/').at(-1));
      imitation.missAttempts(1_500);
      await page.getByText('Disconnected since').first().waitFor();
      await page.getByText('More than 1,000 attempts happened while you were away').waitFor();
      assert.ok((await page.locator('tbody tr').count()) <= 100);
    } finally {
      await context.close();
      await imitation.close();
    }
  });
});
