import assert from 'node:assert/strict';
import { test } from 'node:test';
import { shardOfRecord } from '../../../src/domain/shard.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { wakeLanes } from '../../../src/store/delivery/lanes.ts';
import { findLateWatchers, hasWaiting } from '../../../src/store/delivery/lateness.ts';
import {
  countFailures,
  createReceiverRepair,
  listReceivers,
  type ReceiverQuery,
} from '../../../src/store/delivery/receivers.ts';
import { deleteWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { resumeWatcher, suspendWatcher } from '../../../src/store/watchers/watchers.ts';
import { attemptDue, leaseDue } from '../../kit/attempts.ts';
import { addressOf, headerOf, later, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { insertNotifications, planTest, withPlans } from '../../kit/many-notifications.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();

onSampledDatabase(import.meta.url, ({ kind, database, place }) => {
  /** Creates a watcher with one record for its own address, whose webhooks go to this host. */
  async function watch(name: string, host: string, number: number) {
    const [watcher] = await database().query<{ id: number }>(sql`
      insert into watcher (name, created_at) values (${name}, ${noon})
      on conflict (name) do update set name = excluded.name returning id`);
    assert.ok(watcher !== undefined);
    const url = `https://${host}.example/hook`;
    return watchAddress(database(), { watcherId: watcher.id, address: addressOf(number), url });
  }
  const pay = (block: number, ...numbers: number[]) =>
    mine(
      database(),
      headerOf(block),
      numbers.map((number) => transferOf({ receiver: addressOf(number) })),
    );
  const list = async (query: Partial<ReceiverQuery> = {}) =>
    listReceivers(database(), { failing: true, limit: 100, ...query });
  const repair = () => createReceiverRepair(database())(signal);
  const hostsOf = (receivers: readonly { origin: string }[]) =>
    receivers.map(({ origin }) => origin.slice(8, -'.example:443'.length));

  test('a receiver fails from its first failed attempt on, with time, count, last outcome and pending notifications', async () => {
    await watch('acme', 'one', 1);
    await pay(1, 1, 1);
    assert.deepEqual(await list(), []);
    await attemptDue(database(), { now: noon, succeeds: false });
    await attemptDue(database(), { now: later(61_000), succeeds: false });
    assert.deepEqual(await list(), [
      {
        ...{ watcherId: 1, watcherName: 'acme', origin: 'https://one.example:443', isSuspended: false },
        failure: {
          ...{
            since: noon,
            attempts: 4,
            lastAttemptAt: later(61_000),
            lastOutcome: 'http_5xx',
            lastStatus: 500,
          },
          ...{ pending: 2, oldestPendingAt: noon, nextAttemptAt: later(121_000) },
        },
      },
    ]);
    const { receivers, watchers, oldestSince } = await countFailures(database(), later(86_400_000));
    assert.deepEqual([receivers, watchers, oldestSince], [1, 1, noon]);
  });

  test('a suspended watcher has no failing receiver until it is resumed', async () => {
    await watch('acme', 'one', 1);
    await watch('beta', 'two', 2);
    await pay(1, 1, 2);
    await attemptDue(database(), { now: noon, succeeds: false });
    const counts = async () => {
      const { receivers, watchers, watchersSinceSuccess } = await countFailures(
        database(),
        later(86_400_000),
      );
      return { receivers, watchers, watchersSinceSuccess };
    };
    await suspendWatcher(database(), 1, noon);
    assert.deepEqual(await counts(), { receivers: 1, watchers: 1, watchersSinceSuccess: 1 });
    assert.deepEqual(hostsOf(await list()), ['two']);
    const all = await list({ failing: false });
    assert.deepEqual(
      all.map(({ isSuspended, failure }) => [isSuspended, failure === undefined]),
      [
        [true, true],
        [false, false],
      ],
    );
    await resumeWatcher(database(), 1);
    assert.deepEqual(await counts(), { receivers: 2, watchers: 2, watchersSinceSuccess: 2 });
    assert.deepEqual((await list())[0]?.failure?.since, noon);
  });

  test('a receiver fails while one notification waits for a retry, even if others arrive, and then recovers', async () => {
    const record = await watch('acme', 'one', 1);
    await pay(1, 1);
    await attemptDue(database(), { now: noon, succeeds: false });
    await pay(2, 1);
    await attemptDue(database(), { now: later(1), succeeds: true });
    await repair();
    assert.equal((await list())[0]?.failure?.attempts, 1);
    assert.equal((await countFailures(database(), later(86_400_000))).receivers, 1);
    await attemptDue(database(), { now: later(61_000), succeeds: true });
    assert.deepEqual(await list(), [], 'before the repair step ran');
    await repair();
    assert.equal((await countFailures(database(), later(86_400_000))).receivers, 0);
    assert.deepEqual(
      (await list({ failing: false })).map(({ failure }) => failure),
      [undefined],
    );

    await pay(3, 1);
    await attemptDue(database(), { now: later(70_000), succeeds: false });
    assert.deepEqual((await list())[0]?.failure?.since, later(70_000), 'a new failure starts over');
    await deleteWatchedAddress(database(), record.watcherId, record.id, { now: noon });
    await repair();
    assert.equal(
      (await countFailures(database(), later(86_400_000))).receivers,
      0,
      'cancelled notifications wait for no retry',
    );
  });

  test('a failure that is settled while its receiver is being removed as recovered is kept', async () => {
    if (kind === 'embedded') return;
    await watch('acme', 'one', 1);
    await pay(1, 1);
    await attemptDue(database(), { now: noon, succeeds: false });
    await attemptDue(database(), { now: later(61_000), succeeds: true });
    const other = await place().open();
    let repairing: Promise<unknown> | undefined;
    await other.transaction(async (tx) => {
      await tx.query(sql`update receiver_failure set attempts = attempts + 1`);
      await tx.query(
        sql`update notification_status set state = 'waiting', retry_count = 1, processed_at = null`,
      );
      repairing = repair();
      await waitUntil(async () => {
        const waiting = await database().query(sql`
          select from pg_stat_activity where wait_event_type = 'Lock' and query like '%receiver_failure%'
            and datname = current_database()`);
        return waiting.length > 0;
      });
    });
    await repairing;
    assert.equal((await list())[0]?.failure?.attempts, 2);
  });

  test('receivers are listed in pages by watcher and origin, for one watcher or for all', async () => {
    for (const [index, host] of ['one', 'two', 'three'].entries()) await watch('acme', host, index + 1);
    const { watcherId: beta } = await watch('beta', 'one', 4);
    await pay(1, 1, 2, 4);
    await attemptDue(database(), { now: noon, succeeds: false });
    assert.deepEqual(hostsOf(await list()), ['one', 'two', 'one']);
    assert.deepEqual(hostsOf(await list({ failing: false })), ['one', 'three', 'two', 'one']);
    assert.deepEqual(hostsOf(await list({ watcherId: 1 })), ['one', 'two']);
    assert.deepEqual(hostsOf(await list({ watcherId: beta, failing: false })), ['one']);
    const [first] = await list({ limit: 1 });
    assert.ok(first !== undefined);
    assert.deepEqual(hostsOf(await list({ after: first })), ['two', 'one']);
    const { receivers, watchers } = await countFailures(database(), later(86_400_000));
    assert.deepEqual([receivers, watchers], [3, 2]);
  });

  test('watchers whose receivers began to fail after the last webhook that arrived are counted', async () => {
    for (const index of [1, 2, 3]) await watch(`watcher ${index}`, 'one', index);
    await pay(1, 1);
    await attemptDue(database(), { now: noon, succeeds: false });
    await pay(2, 2);
    await attemptDue(database(), { now: later(1_000), succeeds: true });
    await pay(3, 2, 3);
    await attemptDue(database(), { now: later(2_000), succeeds: false });
    const { lastSuccessAt, watchersSinceSuccess, watchers } = await countFailures(
      database(),
      later(86_400_000),
    );
    assert.deepEqual([lastSuccessAt, watchers, watchersSinceSuccess], [later(1_000), 3, 2]);
  });

  test('after the clock was set back, successes are noted again at once, and older failures are not taken for an outage', async () => {
    for (const index of [1, 2, 3]) await watch(`watcher ${index}`, 'one', index);
    await pay(1, 1);
    await attemptDue(database(), { now: later(7_200_000), succeeds: true });
    await pay(2, 2);
    await attemptDue(database(), { now: later(7_199_000), succeeds: false });
    await pay(3, 3);
    await attemptDue(database(), { now: later(1_000), succeeds: true });
    const { lastSuccessAt, watchers, watchersSinceSuccess } = await countFailures(database(), later(2_000));
    assert.deepEqual([lastSuccessAt, watchers, watchersSinceSuccess], [later(1_000), 1, 0]);
  });

  test('a watcher is late when one of its notifications has been due for longer than the given time', async () => {
    const record = await watch('acme', 'one', 1);
    await watch('beta', 'two', 2);
    await pay(1, 1, 2);
    await attemptDue(database(), { now: noon, succeeds: false });
    // Both retries are due at 60 s.
    const find = async (seconds: number) => {
      const found = await findLateWatchers(database(), later(seconds * 1_000), { lateMs: 60_000, limit: 1 });
      return { ...found, latest: found.latest.map(({ watcherName }) => watcherName) };
    };
    assert.deepEqual(await find(119), { watchers: 0, oldestDueAt: undefined, latest: [] });
    assert.deepEqual(await find(120), { watchers: 2, oldestDueAt: later(60_000), latest: ['acme'] });
    await leaseDue(database(), { now: later(60_000) });
    assert.equal(
      (await find(120)).watchers,
      2,
      'a worker has leased the lanes but not attempted the retries',
    );
    await database().query(
      sql`update notification_status set retry_count = 0 where shard_id = ${shardOfRecord(record.watcherId, record.id)}`,
    );
    assert.equal((await find(120)).watchers, 2, 'first attempts too');
    await database().query(
      sql`update notification_status set state = 'processed', processed_at = ${noon} where shard_id = 2`,
    );
    assert.deepEqual((await find(120)).latest, ['acme']);
  });

  test('hasWaiting says whether any notification waits for an attempt', async () => {
    assert.equal(await hasWaiting(database()), false);
    await watch('acme', 'one', 1);
    await pay(1, 1);
    assert.equal(await hasWaiting(database()), true);
    await database().query(sql`update notification_status set retry_count = 1`);
    assert.equal(await hasWaiting(database()), true);
  });

  test('each figure comes from an index when there are many notifications', planTest, async () => {
    const record = await watch('acme', 'one', 1);
    await insertNotifications(database(), { records: [record], count: 20_000 });
    await insertNotifications(database(), { records: [record], count: 20_000, state: 'processed' });
    await database().query(
      sql`update notification_status set retry_count = 1 where state = 'waiting' and id % 2 = 0`,
    );
    await database().query(sql`
      insert into receiver_failure (shard_id, origin, lane_id, watcher_id, since, attempts, last_attempt_at)
      select shard_id, origin, id, watcher_id, ${noon}, 1, ${noon} from lane`);
    await database().transaction((tx) => wakeLanes(tx, [1], noon));
    await database().script(
      'analyze notification; analyze receiver_failure; analyze lane; analyze watcher_queue',
    );
    const { db, plans } = withPlans(database());
    const [receiver] = await listReceivers(db, { failing: true, limit: 100 });
    assert.equal(receiver?.failure?.pending, 1_001);
    await countFailures(db, later(86_400_000));
    await hasWaiting(db);
    await findLateWatchers(db, later(86_400_000), { lateMs: 60_000, limit: 100 });
    assert.equal(plans.length, 4);
    for (const plan of plans) assert.doesNotMatch(plan, /Seq Scan on notification/, `${kind}: ${plan}`);
  });
});
