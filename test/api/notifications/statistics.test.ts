import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { createDeliveryCount } from '../../../src/store/delivery/count-deliveries.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { addressOf, headerOf, later, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory } from '../api-story.ts';

const PATH = '/api/notifications/statistics';
const ADMIN = '/api/admin/statistics';
const TOKEN = 'f00d'.repeat(8);
const counts = (attempts: number, failed: number, delivered: number, first: number) => ({
  ...{ attempts, failed_attempts: failed, delivered, first_attempt: first },
});

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Watchers acme and beta, each with an address at the receivers one and two. Each got a failure and then a 2xx. */
  async function createStory(db: Database) {
    const story = createApiStory(db, {}, undefined, { adminToken: TOKEN });
    const keys: string[] = [];
    const records: string[] = [];
    for (const [index, name] of ['acme', 'beta'].entries()) {
      const { key, watcherId } = await story.issue(name);
      keys.push(key);
      for (const [place, host] of ['one', 'two'].entries()) {
        const address = addressOf(1 + 2 * index + place);
        records.push(
          (await watchAddress(db, { watcherId, address, url: `https://${host}.example/hook` })).id,
        );
      }
    }
    await mine(
      db,
      headerOf(1),
      [1, 2, 3, 4].map((number) => transferOf({ receiver: addressOf(number) })),
    );
    await attemptDue(db, { now: noon, succeeds: false });
    await attemptDue(db, { now: later(60_000), succeeds: true });
    const count = createDeliveryCount({ database: db, clock: story.clock, attemptsMs: 1e9 });
    for (let round = 0; round < 3; round += 1) await count.step();
    story.clock.advance(70_000);
    const get = async (url: string, key = keys[0]) => {
      const { status, json, text } = await story.ask('GET', url, { ...(key !== undefined && { key }) });
      assert.equal(status, 200, text);
      return (json as { data: Record<string, unknown> }).data;
    };
    return { ...story, keys, records, get };
  }

  test('a watcher sees its own deliveries by hour or day, all of them, of a receiver or of a watched address', async () => {
    const { get, records } = await createStory(database());
    const all = await get(`${PATH}?period=24h`);
    const now = later(70_000).toISOString();
    assert.deepEqual(
      [all.period, all.from, all.until, all.counted_until, all.previous],
      ['24h', '2025-11-19T12:00:00.000Z', now, now, null],
    );
    assert.deepEqual(all.totals, counts(4, 2, 2, 0));
    const buckets = all.buckets as { from: string }[];
    assert.deepEqual(
      [buckets.length, buckets.at(-1)],
      [25, { from: noon.toISOString(), ...counts(4, 2, 2, 0) }],
    );
    assert.deepEqual(Object.keys(all.latency as object), ['count', 'p50_ms', 'p95_ms', 'p99_ms']);
    const one = counts(2, 1, 1, 0);
    assert.deepEqual((await get(`${PATH}?period=30d&origin=https://one.example:443`)).totals, one);
    assert.deepEqual((await get(`${PATH}?watched_address_id=${records[1]}`)).totals, one);
    assert.deepEqual((await get(`${PATH}?period=30d&watched_address_id=${records[1]}`)).totals, one);
  });

  test('a watcher sees the statistics of its receivers', async () => {
    const { get } = await createStory(database());
    const answer = { count: 2, p50_ms: 5, p95_ms: 5, p99_ms: 5 };
    const receivers = (await get(`${PATH}/receivers?period=24h&order=origin`)) as unknown as {
      latency: object;
    }[];
    assert.deepEqual(
      receivers.map((one) => ({ ...one, latency: null })),
      ['one', 'two'].map((host) => ({
        origin: `https://${host}.example:443`,
        ...counts(2, 1, 1, 0),
        answer,
        latency: null,
      })),
    );
    assert.equal(((await get(`${PATH}/receivers?limit=1`)) as unknown as unknown[]).length, 1);
  });

  test('a list of receivers has the statistics of each, if asked for a period', async () => {
    const { get, ask, keys } = await createStory(database());
    await watchAddress(database(), { watcherId: 1, address: addressOf(9), url: 'https://zero.example/hook' });
    type Listed = { origin: string; statistics?: object | null };
    for (const period of ['24h', '30d']) {
      const list = (await get(`/api/notifications/receivers?period=${period}`)) as unknown as Listed[];
      const own = (await get(`${PATH}/receivers?period=${period}&order=origin`)) as unknown as Listed[];
      const wanted = own.map(({ origin, ...statistics }) => ({ origin, statistics }));
      assert.deepEqual(
        list.map(({ origin, statistics }) => ({ origin, statistics })),
        [...wanted, { origin: 'https://zero.example:443', statistics: null }],
      );
      assert.equal(wanted.length, 2);
      const all = (await get(`/api/admin/receivers?period=${period}`, TOKEN)) as unknown as Listed[];
      assert.deepEqual(
        all.map(({ statistics }) => statistics && (statistics as { attempts: number }).attempts),
        [2, 2, null, 2, 2],
      );
    }
    const [plain] = (await get('/api/notifications/receivers')) as unknown as Listed[];
    assert.ok(plain !== undefined && !('statistics' in plain));
    const [key] = keys;
    assert.ok(key !== undefined);
    assert.equal((await ask('GET', '/api/notifications/receivers?period=1h', { key })).status, 400);
  });

  test('an operator sees the deliveries of all watchers, or of one', async () => {
    const { get, ask, records } = await createStory(database());
    assert.deepEqual((await get(`${ADMIN}?period=30d`, TOKEN)).totals, counts(8, 4, 4, 0));
    assert.deepEqual((await get(`${ADMIN}?watcher=2`, TOKEN)).totals, counts(4, 2, 2, 0));
    const names = async (query: string) =>
      ((await get(`${ADMIN}/receivers?order=origin${query}`, TOKEN)) as unknown as { watcher: string }[]).map(
        ({ watcher }) => watcher,
      );
    assert.deepEqual(await names(''), ['acme', 'beta', 'acme', 'beta']);
    assert.deepEqual(await names('&watcher=2'), ['beta', 'beta']);
    const { totals } = await get(`${ADMIN}?watcher=1&watched_address_id=${records[1]}`, TOKEN);
    assert.deepEqual(totals, counts(2, 1, 1, 0));
    assert.equal((await ask('GET', `${ADMIN}?origin=https://one.example:443`, { key: TOKEN })).status, 400);
    for (const path of [ADMIN, `${ADMIN}/receivers`]) {
      assert.equal((await ask('GET', `${path}?watcher=9`, { key: TOKEN })).status, 404);
      assert.equal((await ask('GET', path)).status, 401);
    }
  });

  test('wrong parameters, and records of other watchers, are refused', async () => {
    const { ask, keys, records } = await createStory(database());
    const [key] = keys;
    assert.ok(key !== undefined);
    for (const query of [
      'period=1h',
      'watched_address_id=x',
      'origin=a%20b',
      `origin=a&watched_address_id=${records[0]}`,
    ])
      assert.equal((await ask('GET', `${PATH}?${query}`, { key })).status, 400, query);
    for (const query of ['order=best', 'limit=101', 'limit=0'])
      assert.equal((await ask('GET', `${PATH}/receivers?${query}`, { key })).status, 400, query);
    assert.equal((await ask('GET', `${PATH}?watched_address_id=${records[2]}`, { key })).status, 404);
    assert.equal((await ask('GET', PATH)).status, 401);
  });
});
