import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import type { DueNotification } from '../../../src/store/delivery/due.ts';
import type { Lane } from '../../../src/store/delivery/lanes.ts';
import { redeliverOne, redeliverStep } from '../../../src/store/delivery/redelivery.ts';
import { settle } from '../../../src/store/delivery/settle.ts';
import { LATER_SUCCESS } from '../../../src/store/delivery/settle-sql.ts';
import { deleteWatchedAddress, updateWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { leaseDue, readDue } from '../../kit/attempts.ts';
import {
  headerOf,
  later,
  listLanes,
  listNotifications,
  listStates,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { countWaiting } from '../../kit/in-line.ts';
import { insertNotifications, planTest, withPlans } from '../../kit/many-notifications.ts';
import { rollbackTo } from '../../kit/rollback.ts';
import { waitUntil } from '../../kit/wait.ts';

const WATCHER = 1;

/** Creates one record with one notification, and leases its lane. */
async function createStory(database: Database) {
  const record = await watchAddress(database);
  await mine(database, headerOf(0), []);
  await mine(database, headerOf(1), [transferOf()]);
  const [lane] = await leaseDue(database, { now: noon, limit: 1 });
  assert.ok(lane !== undefined);
  const [due] = await readDue(database, lane, noon);
  assert.ok(due !== undefined);
  return { record, lane, due };
}

/** Settles an attempt `ms` after noon: a failure if `nextRetryAt` is given, otherwise a success. */
const settleAt = (database: Database, lane: Lane, due: DueNotification, ms: number, nextRetryAt?: Date) =>
  settle(database, [
    {
      lane,
      notificationId: due.id,
      retryCount: due.retryCount,
      redeliveryCount: due.redeliveryCount,
      revision: due.revision,
      startedAt: later(ms - 1),
      mayHaveArrived: true,
      durationMs: 1,
      outcome: nextRetryAt === undefined ? 'success' : 'timeout',
      status: undefined,
      response: undefined,
      nextRetryAt,
      settledAt: later(ms),
    },
  ]);

const rowOf = async (database: Database) => {
  const [row] = await listNotifications(database);
  assert.ok(row !== undefined);
  return row;
};

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a first success stores how many attempts failed before it, and that of a redelivery that it is a later one', async () => {
    const { lane, due } = await createStory(database());
    await settleAt(database(), lane, due, 10, later(20));
    const [retry] = await readDue(database(), lane, later(30));
    assert.ok(retry !== undefined);
    await settleAt(database(), lane, retry, 30);
    await redeliverOne(database(), WATCHER, due.id, later(40));
    const [again] = await readDue(database(), lane, later(50));
    assert.ok(again !== undefined);
    await settleAt(database(), lane, again, 50);
    const attempts = await database().query(
      sql`select outcome, failures from delivery_attempt order by started_at`,
    );
    assert.deepEqual(attempts, [
      { outcome: 'timeout', failures: null },
      { outcome: 'success', failures: 1 },
      { outcome: 'success', failures: LATER_SUCCESS },
    ]);
  });

  test('redelivery makes a processed notification due at once with the same id and a new schedule', async () => {
    const { lane, due } = await createStory(database());
    await settleAt(database(), lane, due, 5, later(60_000));
    const [second] = await readDue(database(), lane, later(60_000));
    assert.ok(second !== undefined);
    await settleAt(database(), lane, second, 60_005);
    await database().query(sql`update lane set next_due = null`);

    assert.equal(await redeliverOne(database(), WATCHER, due.id, later(70_000)), true);
    const row = await rowOf(database());
    assert.deepEqual(
      [row.id, row.state, row.retry_count, row.next_retry_at, row.next_attempt_at, row.processed_at],
      [due.id, 'waiting', 0, null, later(70_000), null],
    );
    assert.deepEqual((await listLanes(database()))[0]?.next_due, later(70_000));
    const [again] = await readDue(database(), lane, later(70_000));
    assert.ok(again !== undefined);
    assert.deepEqual([again.id, again.retryCount, again.redeliveryCount], [due.id, 0, 1]);
    await settleAt(database(), lane, again, 70_005, later(130_000));
    assert.deepEqual((await rowOf(database())).retry_count, 1);
  });

  test('redelivery makes a waiting notification due at once, and its retry count stays', async () => {
    const { lane, due } = await createStory(database());
    await settleAt(database(), lane, due, 5, later(60_000));
    assert.equal(await redeliverOne(database(), WATCHER, due.id, later(100)), true);
    const row = await rowOf(database());
    assert.deepEqual(
      [row.state, row.retry_count, row.next_retry_at, row.next_attempt_at],
      ['waiting', 1, later(100), later(100)],
    );
    const [again] = await readDue(database(), lane, later(100));
    assert.deepEqual([again?.retryCount, again?.redeliveryCount], [1, 0]);
  });

  test('redelivery changes nothing while an attempt is under way', async () => {
    const { lane, due } = await createStory(database());
    assert.equal(await redeliverOne(database(), WATCHER, due.id, later(5)), false);
    await settleAt(database(), lane, due, 10, later(60_000));
    const row = await rowOf(database());
    assert.deepEqual([row.retry_count, row.next_attempt_at], [1, later(60_000)]);
  });

  for (const retryAt of [undefined, later(60_000)]) {
    const outcome = retryAt === undefined ? 'success' : 'failure';
    test(`a late ${outcome} of the previous delivery does not count for the redelivery`, async () => {
      const { lane, due } = await createStory(database());
      await settleAt(database(), lane, due, 5);
      await redeliverOne(database(), WATCHER, due.id, later(10));
      // As if the answer to a commit was lost: the settler cannot know that it succeeded, and repeats it.
      await settleAt(database(), lane, due, 5, retryAt);
      const row = await rowOf(database());
      assert.deepEqual([row.state, row.retry_count, row.next_attempt_at], ['waiting', 0, later(10)]);
      assert.equal((await readDue(database(), lane, later(10))).length, 1);
    });
  }

  test('redelivery leaves held, withdrawn and cancelled notifications as they are', async () => {
    const record = await watchAddress(database());
    await insertNotifications(database(), { records: [record], count: 3 });
    const states = ['held', 'withdrawn', 'cancelled'];
    for (const [index, state] of states.entries())
      await database().query(sql`update notification_status set state = ${state} where id = ${index + 1}`);
    for (const id of [1, 2, 3])
      assert.equal(await redeliverOne(database(), WATCHER, id, later(9_999_999)), false);
    const step = { startedAt: later(9_999_999), after: undefined, now: later(9_999_999) };
    assert.deepEqual(await redeliverStep(database(), WATCHER, {}, step), { count: 0, next: undefined });
    assert.deepEqual(await listStates(database()), states);
  });

  test('after the clock was set back, redelivering a range includes what was processed before the step', async () => {
    for (const ms of [6_000, 60_000, 86_400_000]) {
      const { lane, due } = await createStory(database());
      await settleAt(database(), lane, due, ms);
      const step = { startedAt: noon, after: undefined, now: noon };
      assert.equal((await redeliverStep(database(), WATCHER, {}, step)).count, 1, `${ms} ms ago`);
      await database().query(
        sql`truncate notification, queue, ended, watched_address, lane, block, delivery_attempt`,
      );
    }
  });

  test('a notification whose watched address was deleted stays processed', async () => {
    const { record, lane, due } = await createStory(database());
    await settleAt(database(), lane, due, 5);
    await deleteWatchedAddress(database(), WATCHER, record.id, { now: noon });
    assert.equal(await redeliverOne(database(), WATCHER, due.id, later(10)), false);
    assert.deepEqual(await listStates(database()), ['processed']);
  });

  test('a redelivery goes to the current URL of the watched address', async () => {
    const { record, lane, due } = await createStory(database());
    await settleAt(database(), lane, due, 5);
    const at = { origin: 'https://two.example:443', now: noon };
    await updateWatchedAddress(database(), 1, record.id, { webhookUrl: 'https://two.example/x' }, at);
    await redeliverOne(database(), WATCHER, due.id, later(10));
    const lanes = await listLanes(database());
    const row = await rowOf(database());
    assert.notEqual(row.lane_id, lane.id);
    assert.deepEqual(lanes.find(({ id }) => id === row.lane_id)?.next_due, later(10));
  });

  test('a transfer that a reorg orphans is not redelivered, even if redelivery was requested before', async () => {
    const { lane, due } = await createStory(database());
    await settleAt(database(), lane, due, 5);
    await redeliverOne(database(), WATCHER, due.id, later(10));
    await rollbackTo(database(), { ancestorNumber: 0, expectedTip: headerOf(1), now: later(20) });
    assert.deepEqual(await listStates(database()), ['withdrawn']);
    assert.equal(await redeliverOne(database(), WATCHER, due.id, later(30)), false);
    assert.deepEqual(await listStates(database()), ['withdrawn']);
  });

  test('a delivered transfer that a reorg has orphaned is not redelivered', async () => {
    const { lane, due } = await createStory(database());
    await settleAt(database(), lane, due, 5);
    await rollbackTo(database(), { ancestorNumber: 0, expectedTip: headerOf(1), now: later(20) });
    assert.equal(await redeliverOne(database(), WATCHER, due.id, later(30)), false);
    assert.deepEqual(await listStates(database()), ['processed']);
  });

  test('redelivery does not change another watcher’s notification', async () => {
    const { lane, due } = await createStory(database());
    await settleAt(database(), lane, due, 5);
    assert.equal(await redeliverOne(database(), 2, due.id, later(10)), false);
    assert.deepEqual(await listStates(database()), ['processed']);
  });

  test('many notifications are redelivered in bounded steps, oldest first, each once, even if a step is repeated', async () => {
    const record = await watchAddress(database());
    await insertNotifications(database(), { records: [record], count: 2_500, state: 'processed' });
    const startedAt = later(9_999_999);
    const filter = { fromBlock: 11, toBlock: 240 };
    let requests = 0;
    // On Citus, the shards' times go on from that of the request, and a later request has a later one.
    const step = (after: number | undefined) => {
      requests += 1;
      const now = later(9_999_999 + requests * 1_000);
      return redeliverStep(database(), WATCHER, filter, { startedAt, after, now });
    };
    const first = await step(undefined);
    assert.equal(first.count, 1_000);
    // The process crashed before it answered, and the client repeats the request.
    assert.deepEqual(await step(undefined), { count: 0, next: first.next });
    // Meanwhile some of them have arrived.
    const done = await database().query(sql`
      update notification_status set state = 'processed', processed_at = ${later(10_000_001)}
      where state = 'waiting' and id <= 500 returning id`);
    assert.ok(done.length > 300);
    assert.deepEqual(await step(undefined), { count: 0, next: first.next });
    const second = await step(first.next);
    const third = await step(second.next);
    assert.deepEqual([second.count, third.count, third.next], [1_000, 300, undefined]);
    const blocks = await database().query<{ from: number; to: number; count: number }>(sql`
      select min(block_number) as from, max(block_number) as to, count(*) as count
      from notification_status where redelivery_count = 1`);
    assert.deepEqual(blocks, [{ from: 11, to: 240, count: 2_300 }]);
  });
});

onPostgres(({ database }) => {
  test('a notification that is being settled is redelivered afterwards, without a deadlock', async () => {
    const { lane, due } = await createStory(database());
    await settleAt(database(), lane, due, 5, later(60_000));
    const redelivered = await database().transaction(async (tx) => {
      await tx.query(sql`select id from lane where id = ${lane.id} for share`);
      const redelivering = redeliverOne(database(), WATCHER, due.id, later(100));
      await waitUntil(async () => (await countWaiting(database())) > 0);
      await tx.query(sql`update notification_status set retry_count = 2 where id = ${due.id}`);
      return { redelivering };
    });
    assert.equal(await redelivered.redelivering, true);
    const row = await rowOf(database());
    assert.deepEqual([row.retry_count, row.next_attempt_at], [2, later(100)]);
  });

  test('a redelivery step among 100,000 notifications does not scan a whole table', planTest, async () => {
    const records = await Promise.all(Array.from({ length: 20 }, () => watchAddress(database())));
    await insertNotifications(database(), { records, count: 100_000, state: 'processed' });
    await database().query(sql`analyze notification`);
    await database().query(sql`analyze watched_address`);
    const { plans, db } = withPlans(database());
    const planned: Database = { ...database(), transaction: (work) => work({ ...db, kind: 'transaction' }) };
    const step = { startedAt: later(999_999_999), after: 50_000, now: later(999_999_999) };
    assert.equal((await redeliverStep(planned, WATCHER, {}, step)).count, 1_000);
    assert.doesNotMatch(plans.join('\n'), /Seq Scan on notification/);
  });
});
