import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { SendTest } from '../../../src/api/context.ts';
import { abortOf } from '../../../src/core/abort.ts';
import type { Database } from '../../../src/store/db/db.ts';
import type { WatchedAddress } from '../../../src/store/watchers/watched.ts';
import { headerOf, mine, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory, PATH } from '../api-story.ts';

const MINUTE_MS = 60_000;
const request = { url: 'https://hooks.example.com/a', headers: { 'webhook-test': 'true' }, body: '{}' };

/** Watcher acme with a record; `sendTest` records its calls. */
async function createStory(database: Database, send?: SendTest) {
  const sent: WatchedAddress[] = [];
  const sendTest: SendTest = async (record, signal) => {
    sent.push(record);
    return send === undefined
      ? { outcome: 'http_5xx', status: 503, durationMs: 12, responseText: 'down', request }
      : send(record, signal);
  };
  const story = createApiStory(database, undefined, sendTest);
  const { key, watcherId } = await story.issue('acme');
  const record = await watchAddress(database, { watcherId });
  return { ...story, key, watcherId, record, sent };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a test webhook goes to the record’s URL, and the response has its outcome', async () => {
    const { ask, key, record, sent } = await createStory(database());
    const { status, text } = await ask('POST', `${PATH}/${record.id}/test`, { key });
    assert.equal(status, 200);
    const data = {
      outcome: 'http_5xx',
      status: 503,
      duration_ms: 12,
      response: 'down',
      request: { method: 'POST', ...request },
    };
    assert.equal(text, JSON.stringify({ success: true, data }));
    assert.deepEqual(sent, [record]);
  });

  test('a watcher may send ten test webhooks a minute, counted separately from other watchers', async () => {
    const { ask, key, record, clock, issue, sent } = await createStory(database());
    const other = await issue('other');
    const theirs = await watchAddress(database(), { watcherId: other.watcherId });
    const testOnce = async () => (await ask('POST', `${PATH}/${record.id}/test`, { key })).status;
    for (let count = 0; count < 10; count += 1) assert.equal(await testOnce(), 200);
    const { status, headers } = await ask('POST', `${PATH}/${record.id}/test`, { key });
    assert.deepEqual([status, headers['retry-after']], [429, '60']);
    assert.equal((await ask('POST', `${PATH}/${theirs.id}/test`, { key: other.key })).status, 200);
    clock.advance(MINUTE_MS);
    assert.equal(await testOnce(), 200);
    assert.equal(sent.length, 12);
  });

  test('a server that closes aborts a test webhook and says so', async () => {
    const begun = Promise.withResolvers<void>();
    const story = await createStory(database(), async (_record, signal) => {
      begun.resolve();
      await abortOf(signal);
      throw signal.reason;
    });
    const { ask, key, record, api } = story;
    const asked = ask('POST', `${PATH}/${record.id}/test`, { key });
    await begun.promise;
    await api.close();
    assert.equal((await asked).status, 503);
  });

  test('the statistics of a record: counts of its states, and times', async () => {
    const { ask, key, record } = await createStory(database());
    await mine(database(), headerOf(1), [transferOf({ receiver: record.address })]);
    const { status, text } = await ask('GET', `${PATH}/${record.id}/stats`, { key });
    assert.equal(status, 200);
    const data = {
      held: 0,
      waiting: 1,
      processed: 0,
      withdrawn: 0,
      cancelled: 0,
      is_complete: true,
      oldest_due_at: '2025-11-20T12:00:00.000Z',
      last_success_at: null,
      last_failure_at: null,
    };
    assert.equal(text, JSON.stringify({ success: true, data }));
  });

  test('an unknown record, another watcher’s and an invalid id get the same answer', async () => {
    const { ask, record, issue, sent } = await createStory(database());
    const { key } = await issue('other');
    const answer = { success: false, statusCode: 404, statusMessage: 'Watched address not found' };
    for (const id of [randomUUID(), record.id, 'x']) {
      for (const [method, path] of [
        ['GET', 'stats'],
        ['POST', 'test'],
      ] as const) {
        assert.deepEqual((await ask(method, `${PATH}/${id}/${path}`, { key })).json, answer);
        assert.equal((await ask(method, `${PATH}/${id}/${path}`)).status, 401);
      }
    }
    assert.deepEqual(sent, []);
  });
});
