import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import pino from 'pino';
import { SHARD_STEP } from '../../../src/domain/shard.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { headerOf, later, mine, noon, transferOf } from '../../kit/chain-story.ts';
import { slicesOf } from '../../kit/database.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { insertNotifications } from '../../kit/many-notifications.ts';
import { type ApiStory, createApiStory, PATH } from '../api-story.ts';

const WATCHERS = '/api/admin/watchers';
const TOKEN = 'f00d'.repeat(8);
const REFUSED = { success: false, statusCode: 401, statusMessage: 'Unauthorized' };
const UNKNOWN = { success: false, statusCode: 404, statusMessage: 'Watcher not found' };

const dataOf = (json: unknown) => Object(json).data;

/** The API with an operator's token, and what was logged. */
function createAdminStory(database: Parameters<typeof createApiStory>[0]) {
  const logged: Record<string, unknown>[] = [];
  const stream = new Writable({
    write(line, _encoding, done) {
      logged.push(JSON.parse(String(line)));
      done();
    },
  });
  const story = createApiStory(database, undefined, undefined, { adminToken: TOKEN, log: pino(stream) });
  const admin = (method: Parameters<ApiStory['ask']>[0], path = '', body?: unknown) =>
    story.ask(method, `${WATCHERS}${path}`, { key: TOKEN, ...(body !== undefined && { body }) });
  return { ...story, admin, logged };
}

onSampledDatabase(import.meta.url, ({ database, kind }) => {
  test('without a configured token, every path of the operator API answers 404', async () => {
    const { askUndescribed: ask } = createApiStory(database());
    for (const [method, path] of [
      ['GET', ''],
      ['GET', '/1'],
      ['POST', '/1/suspend'],
      ['DELETE', '/1'],
      ['PUT', '/1'],
    ] as const) {
      const { status, json, headers } = await ask(method, `${WATCHERS}${path}`, { key: TOKEN });
      const statusMessage = `No such path: ${WATCHERS}${path}`;
      assert.deepEqual([status, json], [404, { success: false, statusCode: 404, statusMessage }]);
      assert.equal(headers['access-control-allow-origin'], undefined);
    }
  });

  test('a request with a wrong token is refused before its body is read', async () => {
    const { ask, askUndescribed, issue } = createAdminStory(database());
    const { key } = await issue('acme');
    const wrong = ['', 'Bearer', 'Bearer ', TOKEN, `Basic ${TOKEN}`, `Bearer ${key}`, `Bearer ${TOKEN}x`];
    for (const authorization of [...wrong, `Bearer ${TOKEN.slice(0, -1)}`, `Bearer ${TOKEN} ${TOKEN}`]) {
      const { status, json, headers } = await ask('GET', WATCHERS, { headers: { authorization } });
      assert.deepEqual([status, json, headers['www-authenticate']], [401, REFUSED, 'Bearer'], authorization);
    }
    assert.equal((await ask('GET', WATCHERS)).status, 401);
    assert.equal((await ask('POST', `${WATCHERS}/1/suspend`, { body: '{ no json' })).status, 401);
    assert.equal((await askUndescribed('PUT', `${WATCHERS}/1`)).status, 401);
  });

  test('every request is logged with method, path and status, and without the token', async () => {
    const { ask, admin, logged } = createAdminStory(database());
    await admin('GET', '?limit=5');
    await admin('POST', '/77/suspend');
    await ask('GET', WATCHERS, { key: `${TOKEN}x` });
    const lines = logged.filter(({ msg }) => msg === 'admin.answered');
    assert.deepEqual(
      lines.map(({ method, path, status }) => [method, path, status]),
      [
        ['GET', WATCHERS, 200],
        ['POST', `${WATCHERS}/77/suspend`, 404],
        ['GET', WATCHERS, 401],
      ],
    );
    assert.ok(!JSON.stringify(logged).includes(TOKEN));
  });

  test('requests with unknown paths, other methods and other spellings are logged, and another spelling answers 404', async () => {
    const { askUndescribed, logged } = createAdminStory(database());
    const spellings = [
      '/api/%61dmin/watchers',
      '/%61pi/admin/watchers',
      '/api/adm%69n/watchers?limit=1',
      '/api/admin%2fwatchers',
      '//api/admin/watchers',
      '/api//admin/watchers',
      '/API/ADMIN/watchers',
      '/api/admin',
      '/api/admin/nothing',
    ];
    for (const path of spellings) {
      const { status, json } = await askUndescribed('GET', path, { key: TOKEN });
      assert.deepEqual([status, Object(json).statusMessage], [404, `No such path: ${path.split('?')[0]}`]);
    }
    assert.equal((await askUndescribed('PUT', WATCHERS, { key: TOKEN })).status, 405);
    await askUndescribed('GET', '/api/administration', { key: TOKEN });
    await askUndescribed('GET', `/api/admin/${'x'.repeat(90)}/${'y'.repeat(90)}/${'z'.repeat(90)}`);
    const paths = logged.filter(({ msg }) => msg === 'admin.answered').map(({ path }) => String(path));
    assert.deepEqual(paths.slice(0, -1), [...spellings.map((path) => path.split('?')[0]), WATCHERS]);
    assert.equal(paths.at(-1)?.length, 200);
  });

  test('a count that was capped at 100,000 says so', async () => {
    const { ask, admin, issue } = createAdminStory(database());
    const { key } = await issue('acme');
    const body = { address: transferOf().receiver, webhook_url: 'https://one.example/hook' };
    const { json } = await ask('POST', PATH, { key, body });
    const record = { id: dataOf(json).id, watcherId: 1 };
    await insertNotifications(database(), { records: [record], count: 100_000 });
    const pendingOf = async () => {
      const limits = await ask('GET', '/api/notifications/limits', { key });
      return dataOf(limits.json).pending_notifications;
    };
    const exact = dataOf((await admin('GET', '/1')).json);
    assert.deepEqual([exact.queue.waiting, exact.queue.is_complete], [100_000, true]);
    assert.deepEqual([exact.counts.notifications, exact.counts.is_complete], [100_000, true]);
    assert.deepEqual(await pendingOf(), { alarm_above: null, used: 100_000, is_complete: true });
    await insertNotifications(database(), { records: [record], count: 1 });
    const more = dataOf((await admin('GET', '/1')).json);
    assert.deepEqual([more.queue.waiting, more.queue.is_complete], [100_000, false]);
    assert.deepEqual([more.counts.notifications, more.counts.is_complete], [100_000, false]);
    assert.deepEqual(await pendingOf(), { alarm_above: null, used: 100_000, is_complete: false });
  });

  test('watchers are listed page by page, and the error names a wrong parameter', async () => {
    const { admin, issue } = createAdminStory(database());
    for (const name of ['a', 'b', 'c']) await issue(name);
    const first = await admin('GET', '?limit=2');
    assert.deepEqual(
      dataOf(first.json).map((one: { name: string }) => one.name),
      ['a', 'b'],
    );
    assert.equal(first.headers.link, `<${WATCHERS}?limit=2&cursor=2>; rel="next"`);
    const second = await admin('GET', '?limit=2&cursor=2');
    assert.deepEqual(dataOf(second.json), [
      {
        ...{ id: 3, name: 'c', state: 'active', valid_keys: 1, created_at: noon.toISOString() },
        ...{ suspended_at: null, deleting_at: null, slices: slicesOf[kind] },
      },
    ]);
    assert.equal(second.headers.link, undefined);
    for (const query of ['?limit=0', '?limit=1e3', '?cursor=x', '?state=active'])
      assert.equal((await admin('GET', query)).status, 400, query);
  });

  test('a watcher with any name is shown with its keys, queue and origins, and nothing of a suspended one is due', async () => {
    const { ask, admin, issue, clock } = createAdminStory(database());
    const name = 'Ünïcode "quoted" \u001b[31m名 ';
    const { key, keyId } = await issue('odd');
    // Earlier versions accepted such names.
    await database().query(sql`update watcher set name = ${name}`);
    const body = { address: transferOf().receiver, webhook_url: 'https://one.example/hook' };
    assert.equal((await ask('POST', PATH, { key, body })).status, 200);
    await mine(database(), headerOf(1), [transferOf(), transferOf()]);
    clock.advance(1_000);
    const { status, json } = await admin('GET', '/1');
    assert.equal(status, 200);
    const data = dataOf(json);
    assert.equal(data.name, name);
    assert.deepEqual(data.keys, [{ id: keyId, created_at: noon.toISOString(), revoked_at: null }]);
    assert.deepEqual(data.queue, {
      ...{ waiting: 2, due: 2, held: 0, oldest_due_at: later(0).toISOString(), is_complete: true },
    });
    assert.equal(data.origins.length, 1);
    assert.deepEqual([data.origins[0].origin, data.origins[0].at_work], ['https://one.example:443', false]);
    assert.deepEqual(data.counts, {
      ...{ records: 1, notifications: 2, attempts: 0, answers: 0, signing_secrets: 0, origins: 1 },
      is_complete: true,
    });
    assert.equal((await admin('POST', '/1/suspend')).status, 200);
    const { queue } = dataOf((await admin('GET', '/1')).json);
    assert.deepEqual([queue.waiting, queue.due, queue.oldest_due_at], [2, 0, null]);
  });

  test('keys of a suspended watcher are refused with the reason until it is resumed', async () => {
    const { ask, admin, issue, clock } = createAdminStory(database());
    const [acme, other] = [await issue('acme'), await issue('other')];
    const suspended = await admin('POST', '/1/suspend');
    assert.deepEqual([suspended.status, dataOf(suspended.json).state], [200, 'suspended']);
    const { status, json } = await ask('GET', PATH, { key: acme.key });
    assert.equal(status, 403);
    assert.match(Object(json).statusMessage, /^This watcher is suspended: /);
    assert.equal((await ask('GET', PATH, { key: other.key })).status, 200);
    clock.advance(1_000);
    const twice = await admin('POST', '/1/suspend');
    assert.deepEqual([twice.status, dataOf(twice.json).suspended_at], [200, noon.toISOString()]);
    for (let time = 0; time < 2; time += 1) {
      const resumed = await admin('POST', '/1/resume');
      assert.deepEqual([resumed.status, dataOf(resumed.json).state], [200, 'active']);
    }
    assert.equal((await ask('GET', PATH, { key: acme.key })).status, 200);
  });

  test('deleting a watcher, suspended or not, deletes everything it had and nothing of others', async () => {
    const { ask, admin, issue } = createAdminStory(database());
    const [acme, other] = [await issue('acme'), await issue('other')];
    for (const { key } of [acme, other]) {
      const body = { address: transferOf().receiver, webhook_url: 'https://one.example/hook' };
      const headers = { 'idempotency-key': 'once' };
      assert.equal((await ask('POST', PATH, { key, body, headers })).status, 200);
      assert.equal((await ask('GET', '/api/notifications/signing-secrets', { key })).status, 200);
    }
    await mine(database(), headerOf(1), [transferOf()]);
    await database().query(sql`
      insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
      select shard_id, id, ${noon}::timestamptz, 1, 'timeout' from notification_status`);
    await admin('POST', '/1/suspend');
    const { status, json } = await admin('DELETE', '/1');
    assert.deepEqual([status, dataOf(json)], [200, { deleted: true, left: null }]);
    for (const method of ['GET', 'DELETE'] as const)
      assert.deepEqual((await admin(method, '/1')).json, UNKNOWN, method);
    assert.equal((await ask('GET', PATH, { key: acme.key })).status, 401);
    const { counts } = dataOf((await admin('GET', '/2')).json);
    assert.deepEqual(counts, {
      ...{ records: 1, notifications: 1, attempts: 1, answers: 1, signing_secrets: 1, origins: 1 },
      is_complete: true,
    });
    const watchers = await database().query<{ id: number }>(sql`
      select distinct shard_id & ${SHARD_STEP - 1}::bigint as id from (select shard_id from watched_address union select shard_id from notification union select shard_id from queue
      union select shard_id from ended union select shard_id from lane
      union select shard_id from delivery_attempt union select shard_id from idempotent_answer
      union select watcher_id from signing_secret union select watcher_id from watcher_queue
      union select watcher_id from api_key) as left_behind`);
    assert.deepEqual(watchers, [{ id: 2 }]);
  });

  test('the slices of a watcher are raised and never lowered, and 1 to 256 are accepted', async () => {
    const { admin, issue } = createAdminStory(database());
    await issue('acme');
    const put = (slices: unknown) => admin('PUT', '/1/slices', { slices });
    const first = slicesOf[kind];
    for (const slices of [0, 257, 1.5, '2', null])
      assert.equal((await put(slices)).status, 400, String(slices));
    for (const slices of [first, 16, 16, 256]) {
      const { status, json } = await put(slices);
      assert.deepEqual([status, dataOf(json).slices], [200, slices]);
    }
    const { status, json } = await put(255);
    const statusMessage = "The watcher has 256 slices, and the number can't be lowered. Give 256 or more";
    assert.deepEqual([status, json], [409, { success: false, statusCode: 409, statusMessage }]);
    assert.equal(dataOf((await admin('GET', '/1')).json).slices, 256);
    assert.deepEqual((await admin('PUT', '/77/slices', { slices: 2 })).json, UNKNOWN);
  });

  test('every operation on an unknown watcher answers 404', async () => {
    const { admin } = createAdminStory(database());
    for (const id of ['77', '0', '-1', '1e3', '9'.repeat(15), '9'.repeat(40), 'acme', '%00', "1'"]) {
      for (const [method, path] of [
        ['GET', ''],
        ['POST', '/suspend'],
        ['POST', '/resume'],
        ['DELETE', ''],
      ] as const)
        assert.deepEqual((await admin(method, `/${id}${path}`)).json, UNKNOWN, `${method} ${id}${path}`);
    }
  });
});
