import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { addressOf, watchAddress } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { insertNotifications } from '../../kit/many-notifications.ts';
import { type AdminStory, createAdminStory, dataOf } from './admin-story.ts';

const LOG = '/api/admin/log';
const OWN = '/api/notifications/log';
const hashOf = (number: number) => `0x${number.toString(16).padStart(64, '0')}`;

type Row = { id: number; watcher_id: number; state: string; redelivery_count: number };

/** Watchers acme and beta, each with a record. Their notifications alternate in groups of `count`. */
async function createStory(database: Database, { count = 3, groups = 2 } = {}) {
  const story = createAdminStory(database);
  const watchers = [];
  for (const [index, name] of ['acme', 'beta'].entries()) {
    const { watcherId, key } = await story.issue(name);
    const address = addressOf(0x51 + index);
    watchers.push({ watcherId, key, record: await watchAddress(database, { watcherId, address }) });
  }
  for (let group = 0; group < groups; group += 1)
    for (const { record } of watchers)
      await insertNotifications(database, { records: [record], count, state: 'processed' });
  // All of them are processed.
  story.clock.advance(86_400_000);
  const [acme, beta] = watchers;
  if (acme === undefined || beta === undefined) throw new Error('there are two');
  return { ...story, acme, beta };
}

/** Reads all pages of a list. */
async function readAll({ admin }: AdminStory, url: string): Promise<{ rows: Row[]; pages: number }> {
  const rows: Row[] = [];
  let pages = 0;
  for (let next: string | undefined = url; next !== undefined; pages += 1) {
    const { status, json, headers, text } = await admin('GET', next);
    assert.equal(status, 200, text);
    rows.push(...dataOf(json));
    next = /^<(.+)>; rel="next"$/.exec(headers.link ?? '')?.[1];
  }
  return { rows, pages };
}

const idsOf = (rows: readonly Row[]) => rows.map(({ id }) => id);

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the log of all watchers is sorted newest first, with their ids, and its links lead through all of it', async () => {
    const story = await createStory(database());
    const { rows, pages } = await readAll(story, `${LOG}?limit=5`);
    assert.deepEqual(idsOf(rows), [12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert.deepEqual(new Set(rows.map((row) => row.watcher_id)), new Set([1, 2]));
    assert.ok(pages <= 4);
    for (const { watcherId, key } of [story.acme, story.beta]) {
      const own = await story.ask('GET', OWN, { key });
      const limited = await readAll(story, `${LOG}?watcher=${watcherId}&limit=2`);
      assert.deepEqual(
        limited.rows.map(({ watcher_id: id, ...row }) => [id, row]),
        dataOf(own.json).map((row: object) => [watcherId, row]),
      );
    }
  });

  test('the log over gaps of any size in the ids is complete in both directions', async () => {
    const story = await createStory(database(), { count: 2, groups: 1 });
    for (const id of [50_000, 10_050_000, 10_060_001]) {
      await database().query(sql`select setval('notification_id_seq', ${id})`);
      await insertNotifications(database(), {
        ...{ records: [story.beta.record], count: 1, state: 'processed' },
      });
    }
    const ids = [10_060_002, 10_050_001, 50_001, 4, 3, 2, 1];
    for (const limit of [1, 2, 100])
      assert.deepEqual(idsOf((await readAll(story, `${LOG}?limit=${limit}`)).rows), ids);
    const { json } = await story.admin('POST', `${LOG}/redeliver?from_block=0`);
    assert.equal(dataOf(json).redelivered, 7);
  });

  test('every filter finds the same as in the logs of the watchers', async () => {
    const story = await createStory(database(), { count: 10 });
    const { acme, beta } = story;
    await database().query(sql`
      update notification_status set state = 'cancelled', processed_at = null where id in (4, 17)`);
    for (const query of [
      'state=cancelled',
      'state=processed',
      'type=TOKEN_TRANSFER',
      'type=COIN_TRANSFER',
      `hash=${hashOf(13)}`,
      `address=${acme.record.address}`,
      `watched_address_id=${beta.record.id}`,
      `watched_address_id=${beta.record.id}&address=${acme.record.address}`,
      'from_block=2&to_block=3',
      'to_block=1&state=cancelled',
      'status=cancelled',
      'status=delivered&token=native&min_amount=1&max_amount=1',
      'origin=https://one.example:443&code=200',
      'origin=https://two.example:443',
      'code=timeout',
      'from=2025-11-20T12:00:12Z&until=2025-11-20T12:00:22Z',
      'from=2999-01-01&state=processed',
    ]) {
      const expected: number[] = [];
      for (const { key } of [acme, beta])
        expected.push(...idsOf(dataOf((await story.ask('GET', `${OWN}?${query}`, { key })).json)));
      for (const limit of [3, 100]) {
        const count = await story.admin('GET', `${LOG}/count?${query}`);
        assert.deepEqual(dataOf(count.json), { count: expected.length, is_complete: true }, query);
        const { rows } = await readAll(story, `${LOG}?${query}&limit=${limit}`);
        assert.deepEqual(
          idsOf(rows),
          expected.toSorted((one, other) => other - one),
          query,
        );
      }
    }
  });

  test('what waits is found at once, however much was delivered since, of all watchers and of one', async () => {
    const story = await createStory(database(), { count: 2, groups: 1 });
    const { acme, beta } = story;
    for (const { record } of [acme, beta, acme])
      await insertNotifications(database(), { records: [record], count: 2, state: 'waiting' });
    await database().query(sql`update notification_status set retry_count = 4 where id in (5, 8)`);
    await insertNotifications(database(), { records: [beta.record], count: 10_500, state: 'processed' });
    for (const [query, ids] of [
      ['state=waiting', [10, 9, 8, 7, 6, 5]],
      ['status=waiting', [10, 9, 7, 6]],
      ['status=failing', [8, 5]],
      ['status=retrying', []],
      ['status=failing&state=processed', []],
      [`state=waiting&watcher=${acme.watcherId}`, [10, 9, 6, 5]],
      [`status=failing&watcher=${beta.watcherId}`, [8]],
      ['state=waiting&to_block=1', [9, 8, 7, 6, 5]],
      ['state=waiting&type=TOKEN_TRANSFER', []],
    ] as const) {
      const { rows, pages } = await readAll(story, `${LOG}?${query}`);
      assert.deepEqual([idsOf(rows), pages], [ids, 1], query);
      assert.deepEqual(idsOf((await readAll(story, `${LOG}?${query}&limit=1`)).rows), ids, query);
    }
  });

  test('a notification of any watcher is shown with its attempts, and redelivered', async () => {
    const story = await createStory(database());
    const { admin, ask, acme, beta } = story;
    for (const { watcherId, key } of [acme, beta]) {
      const [{ id }] = dataOf((await ask('GET', `${OWN}?limit=1`, { key })).json);
      const own = dataOf((await ask('GET', `${OWN}/${id}`, { key })).json);
      assert.equal(own.attempts.length, 1);
      for (const query of ['', `?watcher=${watcherId}`]) {
        const { json } = await admin('GET', `${LOG}/${id}${query}`);
        assert.deepEqual(dataOf(json), { watcher_id: watcherId, ...own });
        const attempts = await admin('GET', `${LOG}/${id}/attempts${query}`);
        assert.deepEqual(dataOf(attempts.json), own.attempts);
      }
      const redelivered = await admin('POST', `${LOG}/${id}/redeliver`);
      assert.deepEqual(
        [dataOf(redelivered.json).watcher_id, dataOf(redelivered.json).state],
        [watcherId, 'waiting'],
      );
      await database().query(
        sql`update notification_status set state = 'withdrawn', processed_at = null where id = ${id}`,
      );
      assert.equal((await admin('POST', `${LOG}/${id}/redeliver`)).status, 409);
    }
  });

  test('a redelivery by filters covers all watchers or the named one, and needs a filter', async () => {
    const story = await createStory(database());
    const { admin, acme, beta } = story;
    const waiting = async () => {
      const { rows } = await readAll(story, `${LOG}?state=waiting`);
      return rows.map((row) => row.watcher_id);
    };
    for (const query of ['', '?watcher=1'])
      assert.equal((await admin('POST', `${LOG}/redeliver${query}`)).status, 400);
    const one = await admin('POST', `${LOG}/redeliver?watcher=${beta.watcherId}&state=processed`);
    assert.deepEqual(dataOf(one.json), { redelivered: 6, cursor: null });
    assert.deepEqual(new Set(await waiting()), new Set([beta.watcherId]));
    const all = await admin('POST', `${LOG}/redeliver?state=processed`);
    assert.deepEqual(dataOf(all.json), { redelivered: 6, cursor: null });
    assert.deepEqual(new Set(await waiting()), new Set([acme.watcherId, beta.watcherId]));
  });

  test('a redelivery of more than one request can do continues with its cursor', async () => {
    const story = await createStory(database(), { count: 6_000, groups: 1 });
    let redelivered = 0;
    let url: string | undefined = `${LOG}/redeliver?state=processed`;
    for (let requests = 0; url !== undefined; requests += 1) {
      assert.ok(requests < 5);
      const { status, json, headers } = await story.admin('POST', url);
      assert.equal(status, 200);
      redelivered += dataOf(json).redelivered;
      url = /^<(.+)>; rel="next"$/.exec(headers.link ?? '')?.[1];
    }
    assert.equal(redelivered, 12_000);
  });

  test('an unknown notification or watcher answers 404, and only the token opens the log', async () => {
    const story = await createStory(database());
    const { admin, ask, acme, audited } = story;
    for (const [method, url] of [
      ['GET', `${LOG}?watcher=77`],
      ['GET', `${LOG}/count?watcher=77`],
      ['POST', `${LOG}/redeliver?watcher=77&state=waiting`],
      ['GET', `${LOG}/999`],
      ['GET', `${LOG}/acme`],
      ['GET', `${LOG}/999/attempts`],
      ['POST', `${LOG}/999/redeliver`],
      // Notification 1 is acme's.
      ['GET', `${LOG}/1?watcher=2`],
      ['POST', `${LOG}/1/redeliver?watcher=2`],
    ] as const)
      assert.equal((await admin(method, url)).status, 404, url);
    for (const query of ['watcher=acme', 'watcher=', 'limit=0', 'status=x', 'state=done', 'cursor=x'])
      assert.equal((await admin('GET', `${LOG}?${query}`)).status, 400, query);
    const before = audited().length;
    for (const options of [{}, { key: acme.key }])
      for (const [method, url] of [
        ['GET', LOG],
        ['GET', `${LOG}/count`],
        ['GET', `${LOG}/1`],
        ['POST', `${LOG}/1/redeliver`],
        ['POST', `${LOG}/redeliver?state=waiting`],
      ] as const)
        assert.equal((await ask(method, url, options)).status, 401, url);
    assert.equal(audited().length, before + 10);
  });
});
