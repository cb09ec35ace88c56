import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sql } from '../../../src/store/db/sql.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { addressOf, headerOf, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory, PATH as WATCHED_ADDRESSES } from '../api-story.ts';

const PATH = '/api/notifications/receivers';

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Watchers acme and beta, each with the receivers one and two, of which one fails. */
  async function createStory() {
    const story = createApiStory(database());
    const keys: Record<string, string> = {};
    for (const [index, name] of ['acme', 'beta'].entries()) {
      const { key, watcherId } = await story.issue(name);
      keys[name] = key;
      for (const [place, host] of ['one', 'two'].entries()) {
        const address = addressOf(1 + 2 * index + place);
        await watchAddress(database(), { watcherId, address, url: `https://${host}.example/hook` });
      }
    }
    const receivers = [1, 3].map((number) => transferOf({ receiver: addressOf(number) }));
    await mine(database(), headerOf(1), receivers);
    await attemptDue(database(), { now: noon, succeeds: false });
    return { ...story, key: keys.acme ?? '' };
  }

  test('a watcher sees its own receivers, and which of them fail', async () => {
    const { ask, key } = await createStory();
    const failing = {
      ...{ origin: 'https://one.example:443', failing: true, failing_since: noon.toISOString() },
      ...{
        failed_attempts: 1,
        last_attempt_at: noon.toISOString(),
        last_outcome: 'http_5xx',
        last_status: 500,
      },
      ...{ pending: 1, pending_is_complete: true, oldest_pending_at: noon.toISOString() },
      next_attempt_at: '2025-11-20T12:01:00.000Z',
      ...{ state: 'failing', waiting: 1, waiting_is_complete: true, oldest_waiting_at: noon.toISOString() },
      ...{ under_way: 0, concurrency: null },
    };
    const none = Object.fromEntries(Object.keys(failing).map((name) => [name, null]));
    const two = {
      ...{ ...none, origin: 'https://two.example:443', failing: false },
      ...{ state: 'ok', waiting: 0, waiting_is_complete: true, under_way: 0 },
    };
    const { json } = await ask('GET', PATH, { key });
    assert.deepEqual(json, { success: true, data: [failing, two] });
    const only = await ask('GET', `${PATH}?failing=true`, { key });
    assert.deepEqual(only.json, { success: true, data: [failing] });
  });

  test('a process that sends to a receiver says how many attempts are under way, and a receiver that hangs is named so', async () => {
    const receiver = (watcherId: number, origin: string) =>
      watcherId === 1 && origin === 'https://one.example:443' ? { open: 3, limit: 8 } : undefined;
    const inFlight = { isUnderWay: () => false, receiver };
    const { ask, issue } = createApiStory(database(), {}, undefined, { inFlight });
    const { key, watcherId } = await issue('acme');
    await watchAddress(database(), { watcherId, address: addressOf(1) });
    await mine(
      database(),
      headerOf(1),
      [1, 1].map(() => transferOf({ receiver: addressOf(1) })),
    );
    await attemptDue(database(), { now: noon, succeeds: false });
    await database().query(sql`update receiver_failure set last_outcome = 'timeout', last_status = null`);
    await mine(database(), headerOf(2), [transferOf({ receiver: addressOf(1) })]);
    const read = async () => ((await ask('GET', PATH, { key })).json as { data: object[] }).data[0] ?? {};
    const { state, waiting, pending, under_way, concurrency } = (await read()) as Record<string, unknown>;
    assert.deepEqual([state, waiting, pending, under_way, concurrency], ['hung', 3, 2, 3, 8]);
  });

  test('pages are linked, and end, also with the longest name of a receiver', async () => {
    const { ask, key } = await createStory();
    const host = `${`${'a'.repeat(60)}.`.repeat(4)}example`;
    const body = { address: addressOf(5), webhook_url: `https://${host}/hook` };
    assert.equal((await ask('POST', WATCHED_ADDRESSES, { key, body })).status, 200);
    const origins: string[] = [];
    for (let url: string | undefined = `${PATH}?limit=1`; url !== undefined; ) {
      const { json, headers } = await ask('GET', url, { key });
      origins.push(...(json as { data: { origin: string }[] }).data.map(({ origin }) => origin));
      url = /^<(.+)>; rel="next"$/.exec(headers.link ?? '')?.[1];
    }
    assert.deepEqual(origins, [`https://${host}:443`, 'https://one.example:443', 'https://two.example:443']);
  });

  test('a request without a key or with an invalid filter is refused', async () => {
    const { ask, key } = await createStory();
    assert.equal((await ask('GET', PATH)).status, 401);
    for (const query of [
      'failing=yes',
      'limit=0',
      'watcher=beta',
      'cursor=%00',
      'cursor=x',
      'cursor=https%3A%2F%2Fa%00',
    ])
      assert.equal((await ask('GET', `${PATH}?${query}`, { key })).status, 400, query);
  });
});
