import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import type { Database, Db } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { type EventStream, openEventStream } from '../../kit/event-stream.ts';
import { waitUntil } from '../../kit/wait.ts';
import { noDatabase } from '../no-database.ts';
import { createAdminStory, TOKEN } from './admin-story.ts';

const STREAM = '/api/admin/attempts/stream';

/** A listening API with the watchers acme and beta. */
async function createStory(database: Database) {
  const story = createAdminStory(database);
  const [acme, beta] = [await story.issue('acme'), await story.issue('beta')];
  const url = `${await story.api.listen({ host: '127.0.0.1', port: 0 })}${STREAM}`;
  const runUntil = (condition: () => boolean) =>
    waitUntil(() => {
      story.clock.advance(500);
      return condition();
    });
  return {
    ...{ ...story, acme, beta, runUntil },
    /** Lets the clock run until the stream has begun. */
    async open(query = '', options: { key?: string; lastEventId?: string } = {}): Promise<EventStream> {
      let stream: EventStream | undefined;
      const opening = openEventStream(`${url}${query}`, { key: TOKEN, ...options }).then((opened) => {
        stream = opened;
      });
      await Promise.all([opening, runUntil(() => stream !== undefined)]);
      assert(stream);
      return stream;
    },
    [Symbol.asyncDispose]: () => story.api.close(),
  };
}

async function attempt(db: Db, watcherId: number, outcome = 'success'): Promise<number> {
  const [row] = await db.query<{ id: number }>(sql`
    insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
    values (${watcherId}, 7, ${noon}, 12, ${outcome}) returning id`);
  return row?.id ?? 0;
}

const shown = ({ events }: EventStream) =>
  events.map(({ id, data }) => [Number(id), (data as { watcher_id: number }).watcher_id]);

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the stream of the operator has the attempts of all watchers or of one, and continues after an id', async () => {
    await using story = await createStory(database());
    const { acme, beta, open, runUntil } = story;
    const first = await attempt(database(), acme.watcherId);
    await using all = await open();
    await using one = await open(`?watcher=${beta.watcherId}`);
    await using failed = await open('?failures=true');
    const [second, third] = [
      await attempt(database(), beta.watcherId),
      await attempt(database(), acme.watcherId, 'timeout'),
    ];
    await runUntil(() => all.events.length === 2 && one.events.length === 1 && failed.events.length === 1);
    const [ofBeta, ofAcme] = [
      [second, beta.watcherId],
      [third, acme.watcherId],
    ];
    assert.deepEqual([shown(all), shown(one), shown(failed)], [[ofBeta, ofAcme], [ofBeta], [ofAcme]]);
    await using later = await open('', { lastEventId: String(first) });
    await runUntil(() => later.events.length === 2);
    assert.deepEqual(shown(later), [ofBeta, ofAcme]);
  });

  test('a stream of one watcher ends when the watcher is deleted, and one of all watchers goes on', async () => {
    await using story = await createStory(database());
    const { acme, beta, open, runUntil, admin, clock } = story;
    await using all = await open();
    await using one = await open(`?watcher=${acme.watcherId}`);
    const url = `/api/admin/watchers/${acme.watcherId}`;
    await waitUntil(async () => {
      await admin('DELETE', url);
      return (await admin('GET', url)).status === 404;
    });
    const deletedMs = clock.steadyMs();
    let isEnded = false;
    void one.ended.then(() => {
      isEnded = true;
    });
    await runUntil(() => isEnded || clock.steadyMs() - deletedMs > 60_000);
    assert.ok(isEnded);
    const id = await attempt(database(), beta.watcherId);
    await runUntil(() => all.events.length === 1);
    assert.deepEqual(shown(all), [[id, beta.watcherId]]);
  });

  test('an opened stream is in the log at once, and only the token opens one', async () => {
    await using story = await createStory(database());
    const { acme, open, logged, admin, ask } = story;
    await using _stream = await open(`?watcher=${acme.watcherId}`);
    const opened = logged.filter(({ msg }) => msg === 'admin.stream_opened');
    assert.deepEqual(
      opened.map(({ method, path }) => [method, path]),
      [['GET', STREAM]],
    );
    for (const key of [acme.key, `${TOKEN}x`]) {
      await using refused = await open('', { key });
      assert.equal(refused.status, 401);
    }
    assert.equal((await ask('GET', STREAM)).status, 401);
    assert.equal((await admin('GET', `${STREAM}?watcher=77`)).status, 404);
    assert.equal((await admin('GET', STREAM, { headers: { 'last-event-id': 'x' } })).status, 400);
    assert.equal((await admin('GET', `${STREAM}?failed=true`)).status, 400);
    const { status, headers } = await admin('HEAD', STREAM);
    assert.deepEqual([status, headers.allow], [405, 'GET']);
  });

  test('the operator has at most twenty streams', async () => {
    await using story = await createStory(database());
    await using parts = new AsyncDisposableStack();
    for (let count = 0; count < 20; count += 1) {
      const stream = parts.use(await story.open());
      assert.equal(stream.status, 200);
    }
    const last = parts.use(await story.open());
    assert.equal(last.status, 429);
  });
});

test('without the database no stream begins: the answer is 503, and says when to try again', async () => {
  const query = () => Promise.reject(new Fault('unavailable', 'database: cannot be reached'));
  const { admin } = createAdminStory({ ...noDatabase, query });
  const { status, headers } = await admin('GET', STREAM);
  assert.deepEqual([status, headers['retry-after']], [503, '5']);
});
