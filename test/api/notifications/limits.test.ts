/**
 * Limits as a watcher sees them: on every path that creates or changes records, and in the list of its limits.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  refreshNotificationMetrics,
  removeNotificationMetrics,
} from '../../../src/app/notification-status.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { createPendingAlarm } from '../../../src/delivery/pending-alarm.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { lockUsage } from '../../../src/store/watchers/limits.ts';
import { headerOf, later, mine, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { countWaiting } from '../../kit/in-line.ts';
import { waitUntil } from '../../kit/wait.ts';
import { type Answer, createApiStory, PATH } from '../api-story.ts';
import { addressOf, BULK, createBulkStory, recordOf, URL_A } from './bulk-story.ts';

const LIMITS = '/api/notifications/limits';
const recordAt = (number: number, url = URL_A) => ({ ...recordOf(number), webhook_url: url });
const reached = (path: string, message: string) => ({
  success: false,
  statusCode: 409,
  statusMessage: 'Limit reached',
  errors: [{ path, message }],
});
const tooMany = (limit: number, place = '') =>
  reached(
    place,
    `a watcher may have at most ${limit} watched addresses. Delete some, or ask the operator for a higher limit`,
  );

onSampledDatabase(import.meta.url, ({ database }) => {
  test('without limits only pending notifications are counted', async () => {
    const { ask, issue } = createApiStory(database());
    const { key, watcherId } = await issue('acme');
    const record = await watchAddress(database(), { watcherId });
    await mine(database(), headerOf(1), [transferOf({ receiver: record.address })]);
    assert.deepEqual((await ask('GET', LIMITS, { key })).json, {
      success: true,
      data: {
        records: { limit: null, used: null },
        records_per_address_and_url: { limit: null },
        receiver_origins: { limit: null, used: null },
        pending_notifications: { alarm_above: null, used: 1, is_complete: true },
      },
    });
    assert.equal((await database().query(sql`select from watcher_usage`)).length, 0);
    assert.equal((await ask('GET', LIMITS)).status, 401);
  });

  test('the limit of records holds on each path, for each watcher, and a deletion makes room', async () => {
    await using story = await createBulkStory(database(), { records: 3, pendingNotifications: 10 });
    const { ask, key, issue, send } = story;
    const other = await issue('other');
    const post = async (number: number, ofKey = key) =>
      (await ask('POST', PATH, { key: ofKey, body: recordAt(number) })).json;
    await post(1);
    const full = await ask('POST', BULK, {
      key,
      body: { records: [2, 3, 4].map((number) => recordAt(number)) },
    });
    assert.deepEqual([full.status, full.json], [409, tooMany(3, '/records/2')]);
    assert.equal((await story.list()).length, 1, 'all or nothing');
    const lines = await send([recordAt(2), recordAt(3), recordAt(4), { operation: 'delete', id: 'x' }]);
    assert.deepEqual(
      lines.map(({ statusCode }) => statusCode),
      [undefined, undefined, 409, 404],
    );
    assert.deepEqual(lines[2], { index: 2, ...tooMany(3) });
    assert.deepEqual(await post(4), tooMany(3));
    const set = { records: [1, 2, 3, 4].map((number) => ({ address: addressOf(number) })) };
    const replaced = await ask('PUT', `${BULK}?webhook_url=${URL_A}`, { key, body: set });
    assert.deepEqual(replaced.json, tooMany(3));
    assert.equal((await story.list()).length, 3);
    const [first] = await story.list();
    await ask('DELETE', `${PATH}/${first?.id}`, { key });
    assert.deepEqual((await ask('GET', LIMITS, { key })).json, {
      success: true,
      data: {
        records: { limit: 3, used: 2 },
        records_per_address_and_url: { limit: null },
        receiver_origins: { limit: null, used: 1 },
        pending_notifications: { alarm_above: 10, used: 0, is_complete: true },
      },
    });
    for (const made of [await post(1, other.key), await post(4)])
      assert.equal((made as { success: boolean }).success, true);
    assert.deepEqual(await post(5), tooMany(3));
  });

  test('at the limit, a repeat with its Idempotency-Key gets its response, and a refused request may be repeated', async () => {
    await using story = await createBulkStory(database(), { records: 1 });
    const { ask, key } = story;
    const post = (number: number, name: string) =>
      ask('POST', PATH, { key, body: recordAt(number), headers: { 'idempotency-key': name } });
    const made = await post(1, 'one');
    assert.deepEqual((await post(1, 'one')).json, made.json);
    assert.equal((await post(2, 'two')).status, 409);
    const [{ id } = { id: '' }] = await story.list();
    await ask('DELETE', `${PATH}/${id}`, { key });
    assert.equal((await post(2, 'two')).status, 200);
  });

  test('a second record of an address and URL is refused with the id of the first, also by a patch', async () => {
    await using story = await createBulkStory(database(), { recordsPerAddressAndUrl: 1 });
    const { ask, key, send } = story;
    const create = async (number: number, url?: string) => {
      const { status, json } = await ask('POST', PATH, { key, body: recordAt(number, url) });
      assert.equal(status, 200);
      return (json as { data: { id: string } }).data.id;
    };
    const id = await create(1);
    const twin = reached('/address', `this address may be watched at most 1 time for this URL. See ${id}`);
    const again = await ask('POST', PATH, { key, body: recordAt(1) });
    assert.deepEqual([again.status, again.json], [409, twin]);
    const elsewhere = await create(1, `${URL_A}/other`);
    const other = await create(2);
    const patch = async (ofId: string, body: unknown) =>
      (await ask('PATCH', `${PATH}/${ofId}`, { key, body })).json;
    assert.deepEqual(await patch(elsewhere, { webhook_url: URL_A }), twin);
    assert.deepEqual(await patch(other, { address: addressOf(1) }), twin);
    assert.notDeepEqual(await patch(id, { webhook_url: URL_A, watch_coin: false }), twin);
    const [line] = await send([{ operation: 'update', id: other, address: addressOf(1) }]);
    assert.deepEqual(line, { index: 0, ...twin });
  });

  test('a webhook URL of one more origin is refused, also by a patch, and one of a known origin is not', async () => {
    await using story = await createBulkStory(database(), { receiverOrigins: 2 });
    const { ask, key } = story;
    const urlOf = (host: number) => `https://h${host}.example.com/${host}`;
    const ids: string[] = [];
    for (const host of [1, 2]) {
      const { json } = await ask('POST', PATH, { key, body: recordAt(host, urlOf(host)) });
      ids.push((json as { data: { id: string } }).data.id);
    }
    const refused = reached(
      '/webhook_url',
      'the URLs of a watcher may have at most 2 origins, and this would be one more',
    );
    assert.deepEqual((await ask('POST', PATH, { key, body: recordAt(3, urlOf(3)) })).json, refused);
    assert.equal((await ask('POST', PATH, { key, body: recordAt(3, `${urlOf(1)}/more`) })).status, 200);
    const patch = (host: number) =>
      ask('PATCH', `${PATH}/${ids[0]}`, { key, body: { webhook_url: urlOf(host) } });
    assert.deepEqual((await patch(4)).json, refused);
    assert.equal((await patch(2)).status, 200);
    const put = await ask('PUT', `${BULK}?webhook_url=${urlOf(5)}`, {
      key,
      body: { records: [{ address: addressOf(1) }] },
    });
    assert.deepEqual(put.json, refused);
    assert.equal(
      (await database().query(sql`select distinct origin from lane`)).length,
      2,
      'refused origins leave nothing',
    );
  });

  test('pending notifications above their limit are logged once, are a metric, and are all kept', async () => {
    const { issue, metrics } = createApiStory(database());
    const refresh = async (pendingNotifications: number | 'off') => {
      const config = loadConfig({
        env: {},
        overrides: {
          chain: { id: 31337, rpc: ['http://node.example'] },
          limits: { pendingNotifications },
        },
      });
      await refreshNotificationMetrics(config, { database: database(), metrics });
      return (await metrics.watchersOverPendingLimit.get()).values;
    };
    const { watcherId } = await issue('acme');
    const record = await watchAddress(database(), { watcherId });
    const transfers = [1, 2, 3].map(() => transferOf({ receiver: record.address }));
    await mine(database(), headerOf(1), transfers);
    const events: string[] = [];
    const note = (_fields: unknown, event: string) => void events.push(event);
    const log = { info: note, warn: note };
    const look = createPendingAlarm({
      database: database(),
      log,
      limits: { pendingNotifications: 2 },
    });
    const { signal } = new AbortController();
    const told = async () => {
      await look(signal);
      const [gauge] = await refresh(2);
      return [events, gauge?.value];
    };
    assert.deepEqual(await told(), [['delivery.pending_alarm'], 1]);
    assert.deepEqual(await told(), [['delivery.pending_alarm'], 1]);
    await database().query(sql`update notification_status set state = 'processed' where id = 1`);
    assert.deepEqual(await told(), [['delivery.pending_alarm', 'delivery.pending_ended'], 0]);
    assert.deepEqual(await refresh('off'), [], 'without a limit there is none to be over');
    await refresh(2);
    removeNotificationMetrics(metrics);
    assert.deepEqual((await metrics.watchersOverPendingLimit.get()).values, []);
  });
});

onPostgres(({ database, place }) => {
  test('a record that waited for a bulk change of its watcher has the time at which it was made or changed', async () => {
    const limits = { records: 9 };
    const { ask, clock, issue } = createApiStory(database(), undefined, undefined, { limits });
    const { key, watcherId } = await issue('acme');
    const other = await place().open();
    /** The record in the answer to a request that waits for 2 s. */
    const held = async (send: () => Promise<Answer>) => {
      const isLocked = Promise.withResolvers<void>();
      const isOver = Promise.withResolvers<void>();
      const change = other.transaction(async (tx) => {
        await lockUsage(tx, watcherId);
        isLocked.resolve();
        await isOver.promise;
      });
      await isLocked.promise;
      const answered = send();
      await waitUntil(async () => (await countWaiting(other)) === 1, { describe: 'the request to wait' });
      clock.advance(2_000);
      isOver.resolve();
      await change;
      const { json } = await answered;
      return (json as { data: { id: string; created_at: string; updated_at: string } }).data;
    };
    const { id, created_at } = await held(() => ask('POST', PATH, { key, body: recordAt(1) }));
    assert.equal(created_at, later(2_000).toISOString());
    const patched = await held(() =>
      ask('PATCH', `${PATH}/${id}`, { key, body: { webhook_url: `${URL_A}/other` } }),
    );
    assert.equal(patched.updated_at, later(4_000).toISOString());
    await other.close();
  });
});
