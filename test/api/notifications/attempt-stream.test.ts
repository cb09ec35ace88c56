import assert from 'node:assert/strict';
import { test } from 'node:test';
import { promisify } from 'node:util';
import type { AttemptBell } from '../../../src/api/context.ts';
import { createAttemptEvents, eventJson } from '../../../src/api/notifications/attempt-events.ts';
import { presentAccount } from '../../../src/core/account.ts';
import type { Database, Db } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { revokeKey } from '../../../src/store/watchers/api-keys.ts';
import { suspendWatcher } from '../../../src/store/watchers/watchers.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { alice, bob, headerOf, later, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { type EventStream, openEventStream } from '../../kit/event-stream.ts';
import { createSlowDatabase } from '../../kit/slow-database.ts';
import { waitUntil } from '../../kit/wait.ts';
import { type ApiStory, createApiStory } from '../api-story.ts';

const PATH = '/api/notifications/attempts/stream';

/** A listening API with a key of watcher acme. `runUntil` lets the clock run until the condition holds. */
async function createStory(database: Database, options: { attemptBell?: AttemptBell } = {}) {
  const story = createApiStory(database, {}, undefined, options);
  const issued = await story.issue('acme');
  const url = `${await story.api.listen({ host: '127.0.0.1', port: 0 })}${PATH}`;
  return {
    ...story,
    ...issued,
    url,
    /**
     * Lets the clock run meanwhile, because a stream begins only after the transactions that write attempts at its first check
     * have ended.
     */
    async open({
      query = '',
      ...options
    }: {
      key?: string;
      lastEventId?: string;
      query?: string;
    } = {}): Promise<EventStream> {
      let stream: EventStream | undefined;
      const opening = openEventStream(`${url}${query}`, { key: issued.key, ...options }).then((opened) => {
        stream = opened;
      });
      await Promise.all([opening, runUntil(story, () => stream !== undefined)]);
      assert(stream);
      return stream;
    },
    runUntil: (condition: () => boolean) => runUntil(story, condition),
    [Symbol.asyncDispose]: async () => {
      await story.api.close();
    },
  };
}

const silentBell: AttemptBell = { listen: () => () => {} };

const runUntil = ({ clock }: Pick<ApiStory, 'clock'>, condition: () => boolean) =>
  waitUntil(() => {
    clock.advance(500);
    return condition();
  });

async function attempt(db: Db, watcherId: number, outcome = 'success'): Promise<number> {
  const [row] = await db.query<{ id: number }>(sql`
    insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, status)
    values (${watcherId}, 7, ${noon}, 12, ${outcome}, ${outcome === 'success' ? 204 : null}) returning id`);
  return row?.id ?? 0;
}

const idsOf = ({ events }: EventStream) => events.map(({ id }) => Number(id));

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the stream sends the watcher’s own attempts as they finish', async () => {
    await using story = await createStory(database());
    const { watcherId, open, runUntil } = story;
    await attempt(database(), watcherId);
    await using stream = await open();
    assert.equal(stream.status, 200);
    assert.equal(stream.headers.get('content-type'), 'text/event-stream; charset=utf-8');
    await attempt(database(), watcherId + 1);
    const id = await attempt(database(), watcherId);
    await runUntil(() => stream.events.length > 0);
    const data = {
      id,
      notification_id: 7,
      revision: 0,
      started_at: noon.toISOString(),
      duration_ms: 12,
      requests: 1,
      outcome: 'success',
      status: 204,
      response: null,
      notification: null,
    };
    assert.deepEqual(stream.events, [{ id: String(id), event: 'attempt', data }]);
  });

  test('with Last-Event-ID a stream continues after that event', async () => {
    await using story = await createStory(database());
    const { watcherId, open, runUntil } = story;
    const ids: number[] = [];
    for (let count = 0; count < 1_200; count += 1) ids.push(await attempt(database(), watcherId));
    await using stream = await open({ lastEventId: String(ids[99]) });
    await runUntil(() => stream.events.length >= 1_100);
    ids.push(await attempt(database(), watcherId));
    await runUntil(() => stream.events.length >= 1_101);
    assert.deepEqual(idsOf(stream), ids.slice(100));
    const { status } = await open({ lastEventId: 'yesterday' });
    assert.equal(status, 400);
    // As after the database was restored from an older backup.
    assert.equal((await open({ lastEventId: String((ids.at(-1) ?? 0) + 1) })).status, 400);
  });

  test('a stream names its database, and one that was created at another time differently', async () => {
    await using story = await createStory(database());
    const nameOf = async () => {
      await using stream = await story.open();
      return stream.headers.get('chainbell-database');
    };
    const name = await nameOf();
    assert.match(name ?? '', /^[0-9a-f]{16}$/);
    assert.equal(await nameOf(), name);
    await database().query(sql`update migration set applied_at = applied_at + interval '1 hour'`);
    assert.notEqual(await nameOf(), name);
  });

  test('an event carries its notification as it was after the attempt', async () => {
    await using story = await createStory(database());
    const { watcherId, open, runUntil, ask, key } = story;
    const record = await watchAddress(database(), { watcherId });
    const transfer = transferOf({ amount: 2n ** 200n });
    await mine(database(), headerOf(7), [transfer]);
    await using stream = await open();
    for (const [ms, succeeds] of [
      [0, false],
      [60_000, false],
      [120_000, true],
    ] as const) {
      await attemptDue(database(), { now: later(ms), succeeds });
      const { length } = stream.events;
      await runUntil(() => stream.events.length > length);
    }
    const shared = {
      ...{ type: 'COIN_TRANSFER', sender: alice, receiver: bob, amount: String(2n ** 200n), asset: 'BELL' },
      ...{ hash: transfer.txHash, block_number: 7, origin: 'https://one.example:443' },
      ...{ watched_address_id: record.id, watched_address: record.address, created_at: noon.toISOString() },
    };
    const expected = [
      { ...shared, status: 'retrying', retry_count: 1, next_retry_at: later(60_000).toISOString() },
      { ...shared, status: 'retrying', retry_count: 2, next_retry_at: later(120_000).toISOString() },
      { ...shared, status: 'delivered', retry_count: 2, next_retry_at: null },
    ];
    const shown = ({ events }: EventStream) =>
      events.map(({ data }) => (data as { notification: object }).notification);
    assert.deepEqual(shown(stream), expected);
    // A client that comes later gets the same, apart from the retry that was scheduled then.
    await using again = await open({ lastEventId: '0' });
    await runUntil(() => again.events.length === 3);
    assert.deepEqual(
      shown(again),
      expected.map((one) => ({ ...one, next_retry_at: null })),
    );
    assert.equal((await ask('GET', `${PATH}?failures=yes`, { key })).status, 400);
  });

  test('with failures=true only failed attempts are sent, and none is passed over', async () => {
    await using story = await createStory(database());
    const { watcherId, open, runUntil } = story;
    const ids: number[] = [];
    for (let count = 0; count < 1_300; count += 1) {
      const id = await attempt(database(), watcherId, count % 2 === 0 ? 'success' : 'timeout');
      if (count % 2 === 1) ids.push(id);
    }
    await using stream = await open({ lastEventId: '0', query: '?failures=true' });
    await runUntil(() => stream.events.length >= ids.length);
    ids.push(await attempt(database(), watcherId, 'timeout'));
    await runUntil(() => stream.events.length >= ids.length);
    assert.deepEqual(idsOf(stream), ids);
  });

  test('a stream is woken by the bell and does not wait for its next look', async () => {
    const listeners = new Map<number | undefined, () => void>();
    const attemptBell = {
      listen(watcherId: number | undefined, onRing: () => void) {
        listeners.set(watcherId, onRing);
        return () => void listeners.delete(watcherId);
      },
    };
    await using story = await createStory(database(), { attemptBell });
    const { watcherId, clock } = story;
    {
      await using stream = await story.open();
      // It waits half a second for its next look.
      await waitUntil(() => clock.waits().includes(500));
      clock.advance(60);
      const id = await attempt(database(), watcherId);
      listeners.get(watcherId)?.();
      await waitUntil(() => stream.events.length === 1);
      assert.deepEqual(idsOf(stream), [id]);
    }
    await waitUntil(() => listeners.size === 0);
  });

  test('comments keep a silent stream open', async () => {
    await using story = await createStory(database());
    await using stream = await story.open();
    await story.runUntil(() => stream.commentCount() >= 2);
    assert.deepEqual(stream.events, []);
  });

  test('events are written in parts of at most 256 KiB, each with whole events, however long the answers of receivers are', async () => {
    const story = createApiStory(database());
    const { watcherId } = await story.issue('acme');
    const first = await attempt(database(), watcherId);
    // JSON takes six characters for each of these.
    await database().query(sql`
      insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, response)
      select ${watcherId}, 7, ${noon}, 12, 'http_5xx', repeat(chr(1), 1024) from generate_series(1, 200)`);
    const ending = new AbortController();
    const follow = createAttemptEvents({ ...story, database: database(), attemptBell: silentBell });
    const parts: string[] = [];
    let count = 0;
    for await (const part of follow({
      ...{ watcherId, after: first, onlyFailures: false, signal: ending.signal },
      toJson: (event) => eventJson(event, 'ETH'),
      isAllowed: async () => true,
    })) {
      if (part.startsWith('id: ')) parts.push(part);
      count = parts.join('').split('\n\n').length - 1;
      if (count >= 200) ending.abort();
    }
    assert.equal(count, 200);
    assert.ok(parts.length > 1);
    for (const part of parts) assert.ok(part.length <= 256 * 1024 && part.endsWith('\n\n'));
    assert.deepEqual(
      parts
        .join('')
        .match(/(?<=^id: )\d+$/gm)
        ?.map(Number),
      Array.from({ length: 200 }, (_, index) => first + 1 + index),
    );
  });

  test('a stream ends when its key is revoked', async () => {
    await using story = await createStory(database());
    await using stream = await story.open();
    let isEnded = false;
    void stream.ended.then(() => {
      isEnded = true;
    });
    await story.runUntil(() => stream.commentCount() > 0);
    assert.equal(isEnded, false);
    await revokeKey(database(), story.keyId, noon);
    await story.runUntil(() => isEnded);
  });

  test('a stream ends when its watcher is suspended', async () => {
    await using story = await createStory(database());
    await using stream = await story.open();
    let isEnded = false;
    void stream.ended.then(() => {
      isEnded = true;
    });
    await story.runUntil(() => stream.commentCount() > 0);
    await suspendWatcher(database(), story.watcherId, noon);
    await story.runUntil(() => isEnded);
  });

  test('streams end when the server closes', async () => {
    await using story = await createStory(database());
    await using stream = await story.open();
    await story.api.close();
    await stream.ended;
  });

  test('a watcher may have five streams at a time', async () => {
    await using story = await createStory(database());
    const { open, issue } = story;
    await using own = new AsyncDisposableStack();
    const streams = [];
    for (let count = 0; count < 5; count += 1) streams.push(own.use(await open()));
    const refused = await open();
    assert.deepEqual([refused.status, refused.headers.get('retry-after')], [429, '60']);
    const other = await issue('other');
    assert.equal(own.use(await open({ key: other.key })).status, 200);
    await streams[0]?.[Symbol.asyncDispose]();
    await waitUntil(async () => own.use(await open()).status === 200);
  });

  test('a client that leaves while its key is checked takes no slot', async () => {
    const slow = createSlowDatabase(database());
    await using story = await createStory(slow.database);
    const { api, key, open, url } = story;
    slow.pause();
    const leaving = new AbortController();
    const left = Array.from({ length: 6 }, () =>
      fetch(url, { headers: { authorization: `Bearer ${key}` }, signal: leaving.signal }).catch(() => 'left'),
    );
    await waitUntil(() => slow.waited() >= 6);
    leaving.abort();
    assert.deepEqual(new Set(await Promise.all(left)), new Set(['left']));
    await waitUntil(async () => (await promisify(api.server.getConnections.bind(api.server))()) === 0);
    slow.resume();
    await using streams = new AsyncDisposableStack();
    const statuses = [];
    for (let count = 0; count < 5; count += 1) statuses.push(streams.use(await open()).status);
    assert.deepEqual(statuses, [200, 200, 200, 200, 200]);
  });

  test('the statements of a stream count for its watcher, however long it is open', async () => {
    const accounts = new Set<number | undefined>();
    const watched: Database = {
      ...database(),
      query(statement) {
        accounts.add(presentAccount());
        return database().query(statement);
      },
    };
    await using story = await createStory(watched);
    const { watcherId, open, runUntil } = story;
    await using first = await open();
    accounts.clear();
    await attempt(database(), watcherId);
    await runUntil(() => first.events.length === 1);
    await using second = await open({ lastEventId: '0' });
    await runUntil(() => second.events.length === 1);
    assert.deepEqual(accounts, new Set([watcherId]));
  });

  test('a stream needs a key, and has no HEAD', async () => {
    const { ask, issue } = createApiStory(database());
    const { key } = await issue('acme');
    assert.equal((await ask('GET', PATH)).status, 401);
    for (const method of ['HEAD', 'POST'] as const) {
      const { status, headers } = await ask(method, PATH, { key });
      assert.deepEqual([status, headers.allow], [405, 'GET']);
    }
  });
});

onPostgres(({ database }) => {
  test('no attempt is passed over when transactions end in another order than they began', async () => {
    await using story = await createStory(database());
    const { watcherId, open, runUntil } = story;
    await using stream = await open();
    const first = await attempt(database(), watcherId);
    await runUntil(() => stream.events.length === 1);
    let slow = 0;
    let fast = 0;
    await database().transaction(async (tx) => {
      slow = await attempt(tx, watcherId);
      fast = await attempt(database(), watcherId);
      const comments = stream.commentCount();
      // The stream looks many times, and holds back what is behind the open transaction.
      await runUntil(() => stream.commentCount() > comments);
      assert.deepEqual(idsOf(stream), [first]);
    });
    await runUntil(() => stream.events.length === 3);
    assert.deepEqual(idsOf(stream), [first, slow, fast]);
  });
});
