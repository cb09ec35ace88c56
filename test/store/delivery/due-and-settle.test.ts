import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import type { Transfer } from '../../../src/domain/block.ts';
import { shardOfRecord } from '../../../src/domain/shard.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { groupByWorker } from '../../../src/store/db/lost-shards.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { type DueNotification, listDue } from '../../../src/store/delivery/due.ts';
import { freeAbandonedLanes, type Lane } from '../../../src/store/delivery/lanes.ts';
import { queueStatistics } from '../../../src/store/delivery/pending.ts';
import { type Settlement, settle } from '../../../src/store/delivery/settle.ts';
import { deleteWatchedAddress, updateWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { resumeWatcher, suspendWatcher } from '../../../src/store/watchers/watchers.ts';
import { asDistributed } from '../../kit/as-distributed.ts';
import { leaseDue } from '../../kit/attempts.ts';
import {
  addWatchers,
  alice,
  bob,
  coin,
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
import { rollbackTo } from '../../kit/rollback.ts';

/** Creates one record and one block with these transfers, and leases its lane to worker 1. */
async function leaseWith(database: Database, transfers: readonly Transfer[] = [transferOf()]) {
  const record = await watchAddress(database);
  await mine(database, headerOf(0), []);
  await mine(database, headerOf(1), transfers, { now: new Date('2025-11-20T11:59:59.007Z') });
  const lane = await leaseAgain(database);
  return { record, lane, due: await dueOf(database, lane) };
}

async function leaseAgain(database: Database, now = noon, owner = 1): Promise<Lane> {
  await freeAbandonedLanes(database, { now });
  const [lane] = await leaseDue(database, { owner, now, limit: 1 });
  assert.ok(lane !== undefined);
  return lane;
}

async function dueOf(
  database: Database,
  lane: Lane,
  now = noon,
  exclude: number[] = [],
  limit = 100,
): Promise<DueNotification[]> {
  const due = (await listDue(database, [lane], { now, exclude, limit })).get(lane.id);
  assert.ok(Array.isArray(due));
  return due;
}

function settlementOf(
  lane: Lane,
  notification: DueNotification | undefined,
  parts: Partial<Settlement> = {},
): Settlement {
  assert.ok(notification !== undefined);
  const success = { outcome: 'success', status: 200, response: 'thank you', nextRetryAt: undefined } as const;
  return {
    lane,
    notificationId: notification.id,
    revision: notification.revision,
    retryCount: notification.retryCount,
    redeliveryCount: notification.redeliveryCount,
    startedAt: noon,
    mayHaveArrived: true,
    durationMs: 12,
    settledAt: later(12),
    ...success,
    ...parts,
  };
}

const failed = (nextRetryAt: Date): Partial<Settlement> => ({
  outcome: 'timeout',
  status: undefined,
  response: undefined,
  nextRetryAt,
});

const listAttempts = (database: Database) =>
  database.query(sql`
    select notification_id, started_at, duration_ms, request_count, outcome, status, response from delivery_attempt
    order by id`);

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a due notification contains everything that its webhook sends, exact to the wei and microsecond (spec 2.7)', async () => {
    const payment = transferOf({ amount: 2n ** 256n - 1n });
    const token = transferOf({ kind: 'token', token: coin, ordinal: 4 });
    const { record, lane, due } = await leaseWith(database(), [payment, token]);
    const common = {
      shardId: shardOfRecord(1, record.id),
      laneId: lane.id,
      watchedAddressId: record.id,
      watcherId: 1,
      sender: alice,
      receiver: bob,
      createdAt: '2025-11-20 11:59:59.007000',
      createdTime: new Date('2025-11-20T11:59:59.007Z'),
      webhookUrl: 'https://one.example/hook',
      blockNumber: 1,
      blockHash: headerOf(1).hash,
      replaces: undefined,
      revision: 0,
      retryCount: 0,
      redeliveryCount: 0,
      nextRetryAt: undefined,
      isOrdered: false,
    };
    assert.deepEqual(due, [
      {
        ...common,
        id: due[0]?.id,
        hash: payment.txHash,
        type: 'COIN_TRANSFER',
        amount: 2n ** 256n - 1n,
        token: undefined,
      },
      { ...common, id: due[1]?.id, hash: token.txHash, type: 'TOKEN_TRANSFER', amount: 1n, token: coin },
    ]);
  });

  test('a contract creation has no receiver', async () => {
    await watchAddress(database(), { address: alice });
    await mine(database(), headerOf(1), [transferOf({ receiver: undefined })]);
    const [due] = await dueOf(database(), await leaseAgain(database()));
    assert.ok(due !== undefined);
    assert.equal(due.receiver, undefined);
  });

  test('due notifications are read in the order of their due time, without those under way, up to the limit', async () => {
    const { lane, due } = await leaseWith(database(), [
      transferOf(),
      transferOf(),
      transferOf(),
      transferOf(),
    ]);
    const [a = 0, b = 0, c = 0, d = 0] = due.map(({ id }) => id);
    await database().query(sql`update notification_status set next_attempt_at = ${later(1)} where id = ${a}`);
    const idsAt = async (now: Date, exclude: number[], limit: number) =>
      (await dueOf(database(), lane, now, exclude, limit)).map(({ id }) => id);
    assert.deepEqual(await idsAt(noon, [], 10), [b, c, d]);
    assert.deepEqual(await idsAt(later(1), [], 10), [b, c, d, a]);
    assert.deepEqual(await idsAt(later(1), [c], 2), [b, d]);
  });

  test('first attempts come before retries, and the limit applies to each kind', async () => {
    const { lane, due } = await leaseWith(database(), [
      transferOf(),
      transferOf(),
      transferOf(),
      transferOf(),
    ]);
    const [a = 0, b = 0, c = 0, d = 0] = due.map(({ id }) => id);
    await database().query(sql`update notification_status set retry_count = 3 where id in (${a}, ${b})`);
    const idsOf = async (limit: number) =>
      (await dueOf(database(), lane, noon, [], limit)).map(({ id }) => id);
    assert.deepEqual(await idsOf(10), [c, d, a, b]);
    assert.deepEqual(await idsOf(1), [c, a]);
  });

  test('a 2xx makes a notification processed, and its attempt is logged', async () => {
    const { lane, due } = await leaseWith(database());
    const repeated = settlementOf(lane, due[0], { requestCount: 2 });
    assert.deepEqual(await settle(database(), [repeated]), new Map());
    const [row] = await listNotifications(database());
    assert.deepEqual(
      [row?.state, row?.processed_at, row?.retry_count, row?.next_retry_at],
      ['processed', later(12), 0, null],
    );
    assert.deepEqual(await listAttempts(database()), [
      {
        notification_id: due[0]?.id,
        started_at: noon,
        duration_ms: 12,
        request_count: 2,
        outcome: 'success',
        status: 200,
        response: 'thank you',
      },
    ]);
    assert.deepEqual(await dueOf(database(), lane, later(9_999_999)), []);
  });

  test('a failure is counted, and the next attempt is due at the published retry time (spec 6.2)', async () => {
    const { lane, due } = await leaseWith(database());
    await settle(database(), [settlementOf(lane, due[0], failed(later(60_000)))]);
    const [row] = await listNotifications(database());
    assert.deepEqual(
      [row?.state, row?.retry_count, row?.next_retry_at, row?.next_attempt_at, row?.processed_at],
      ['waiting', 1, later(60_000), later(60_000), null],
    );
    assert.deepEqual(await dueOf(database(), lane, later(59_999)), []);
    const [again] = await dueOf(database(), lane, later(60_000));
    assert.deepEqual([again?.retryCount, again?.nextRetryAt], [1, '2025-11-20 12:01:00.000000']);
    const second = { ...failed(later(240_000)), startedAt: later(60_000) };
    await settle(database(), [settlementOf(lane, again, second)]);
    const [third] = await dueOf(database(), lane, later(240_000));
    assert.equal(third?.retryCount, 2);
    await settle(database(), [
      settlementOf(lane, third, { startedAt: later(240_000), settledAt: later(240_009) }),
    ]);
    const [done] = await listNotifications(database());
    assert.deepEqual(
      [done?.state, done?.retry_count, done?.next_retry_at, done?.processed_at],
      ['processed', 2, null, later(240_009)],
    );
    assert.equal((await listAttempts(database())).length, 3);
  });

  test('outcomes of several lanes are settled together, each with its own result', async () => {
    await watchAddress(database(), { url: 'https://one.example/' });
    await watchAddress(database(), { url: 'https://two.example/', watcherId: 2 });
    await mine(database(), headerOf(1), [transferOf()]);
    const lanes = await leaseDue(database(), { now: noon, limit: 5 });
    const settlements = [];
    for (const lane of lanes) {
      const [due] = await dueOf(database(), lane);
      settlements.push(settlementOf(lane, due, lane.watcherId === 1 ? {} : failed(later(60_000))));
    }
    await settle(database(), settlements);
    const rows = await listNotifications(database());
    assert.deepEqual(rows.map(({ watcher_id, state }) => `${watcher_id} ${state}`).sort(), [
      '1 processed',
      '2 waiting',
    ]);
  });

  test('a stalled worker that settles after a takeover changes nothing, and its outcomes are returned as lost', async () => {
    const { lane, due } = await leaseWith(database());
    const taken = await leaseAgain(database(), later(30_000), 2);
    const stale = settlementOf(lane, due[0]);
    assert.deepEqual(await settle(database(), [stale]), new Map([[stale, 'lost']]));
    assert.deepEqual(await listStates(database()), ['waiting']);
    assert.deepEqual(await listAttempts(database()), []);
    assert.deepEqual(await settle(database(), [settlementOf(taken, due[0])]), new Map());
    assert.deepEqual(await listStates(database()), ['processed']);
  });

  for (const order of ['before', 'after'] as const) {
    test(`an outcome of a lost lease changes nothing in one group with the current one, ${order} it`, async () => {
      const { lane: lost, due } = await leaseWith(database(), [transferOf(), transferOf()]);
      const current = await leaseAgain(database(), later(30_000));
      const old = settlementOf(lost, due[0], failed(later(60_000)));
      const valid = settlementOf(current, due[1]);
      await settle(database(), order === 'before' ? [old, valid] : [valid, old]);
      const rows = await listNotifications(database());
      assert.deepEqual(
        rows.map(({ state, retry_count }) => [state, retry_count]),
        [
          ['waiting', 0],
          ['processed', 0],
        ],
      );
      assert.equal((await listAttempts(database())).length, 1);
    });
  }

  test('a worker whose lane passed to another one reads nothing more from it, not even newer notifications', async () => {
    const { lane } = await leaseWith(database());
    const next = await leaseAgain(database(), later(30_000), 2);
    await mine(database(), headerOf(2), [transferOf()]);
    const read = await listDue(database(), [lane], { now: later(30_000), exclude: [], limit: 10 });
    assert.equal(read.get(lane.id), 'lost');
    assert.equal((await dueOf(database(), next, later(30_000))).length, 2);
  });

  test('a suspended watcher has nothing due, and all of it once it is resumed', async () => {
    const { lane } = await leaseWith(database());
    await suspendWatcher(database(), 1, noon);
    const read = async () =>
      (await listDue(database(), [lane], { now: noon, exclude: [], limit: 10 })).get(lane.id);
    assert.deepEqual(await read(), []);
    await resumeWatcher(database(), 1);
    assert.equal(Object(await read()).length, 1);
  });

  test('a worker whose lane was freed reads nothing more from it, and can still record an outcome', async () => {
    const { lane, due } = await leaseWith(database());
    await freeAbandonedLanes(database(), { now: noon });
    const read = await listDue(database(), [lane], { now: noon, exclude: [], limit: 10 });
    assert.equal(read.get(lane.id), 'lost');
    const outcome = settlementOf(lane, due[0]);
    assert.deepEqual(await settle(database(), [outcome]), new Map());
  });

  test('a notification that was cancelled in flight is processed by a 2xx, and not retried after a failure', async () => {
    const { record, lane, due } = await leaseWith(database(), [transferOf(), transferOf()]);
    await deleteWatchedAddress(database(), 1, record.id, { now: noon });
    assert.deepEqual(await listStates(database()), ['cancelled', 'cancelled']);
    await settle(database(), [settlementOf(lane, due[0]), settlementOf(lane, due[1], failed(later(60_000)))]);
    assert.deepEqual(await listStates(database()), ['processed', 'cancelled']);
    assert.deepEqual(await dueOf(database(), lane, later(60_000)), []);
    assert.equal((await listAttempts(database())).length, 2);
  });

  test('a notification whose block was orphaned in flight is processed by a 2xx, and not retried after a failure', async () => {
    const { lane, due } = await leaseWith(database(), [transferOf(), transferOf()]);
    await rollbackTo(database(), { ancestorNumber: 0, expectedTip: headerOf(1), now: noon });
    assert.deepEqual(await listStates(database()), ['withdrawn', 'withdrawn']);
    await settle(database(), [settlementOf(lane, due[0]), settlementOf(lane, due[1], failed(later(60_000)))]);
    assert.deepEqual(await listStates(database()), ['processed', 'withdrawn']);
  });

  test('a notification that was orphaned and mined again in flight, and lacks confirmations, is processed by a 2xx, and stays held after a failure', async () => {
    const payments = [transferOf(), transferOf()];
    const { lane, due } = await leaseWith(database(), payments);
    await rollbackTo(database(), { ancestorNumber: 0, expectedTip: headerOf(1), now: noon });
    await mine(database(), headerOf(1, 1), payments, { confirmations: 1 });
    assert.deepEqual(await listStates(database()), ['held', 'held']);
    await settle(database(), [settlementOf(lane, due[0]), settlementOf(lane, due[1], failed(later(60_000)))]);
    assert.deepEqual(await listStates(database()), ['processed', 'held']);
  });

  for (const first of ['2xx', 'failure'] as const) {
    test(`the 2xx counts if one group has two outcomes of one notification, the ${first} first`, async () => {
      const { lane, due } = await leaseWith(database());
      const failure = { ...settlementOf(lane, due[0], failed(later(60_000))), startedAt: later(1) };
      const outcomes = [settlementOf(lane, due[0]), failure];
      await settle(database(), first === '2xx' ? outcomes : outcomes.reverse());
      assert.deepEqual(await listStates(database()), ['processed']);
      assert.equal((await listAttempts(database())).length, 2);
    });
  }

  test('a failure that is settled twice is counted once', async () => {
    const { lane, due } = await leaseWith(database());
    await settle(database(), [settlementOf(lane, due[0], failed(later(60_000)))]);
    await settle(database(), [settlementOf(lane, due[0], failed(later(90_000)))]);
    const [row] = await listNotifications(database());
    assert.deepEqual([row?.retry_count, row?.next_retry_at], [1, later(60_000)]);
  });

  test('outcomes that are settled again after a commit whose answer was lost are logged once', async () => {
    const { lane, due } = await leaseWith(database(), [transferOf(), transferOf()]);
    const outcomes = [settlementOf(lane, due[0]), settlementOf(lane, due[1], failed(later(60_000)))];
    for (let times = 0; times < 2; times += 1)
      assert.deepEqual(await settle(database(), outcomes), new Map());
    assert.equal((await listAttempts(database())).length, 2);
    const rows = await listNotifications(database());
    assert.deepEqual(
      rows.map(({ state, retry_count }) => [state, retry_count]),
      [
        ['processed', 0],
        ['waiting', 1],
      ],
    );
  });

  test('a processed notification stays processed after a late failure', async () => {
    const { lane, due } = await leaseWith(database());
    await settle(database(), [settlementOf(lane, due[0])]);
    await settle(database(), [settlementOf(lane, due[0], failed(later(60_000)))]);
    assert.deepEqual(await listStates(database()), ['processed']);
  });

  test('a due notification of a deleted watched address is cancelled when it is read', async () => {
    const { lane, record } = await leaseWith(database());
    // As if the record were deleted while the block is being committed: the delete cannot see the row yet.
    await database().query(sql`delete from watched_address where id = ${record.id}`);
    assert.deepEqual(await dueOf(database(), lane), []);
    assert.deepEqual(await listStates(database()), ['cancelled']);
  });

  test('a due notification in the lane of a former URL moves to the current lane when it is read', async () => {
    const { lane, record } = await leaseWith(database());
    const at = { origin: 'https://two.example:443', now: noon };
    await updateWatchedAddress(database(), 1, record.id, { webhookUrl: 'https://two.example/x' }, at);
    await database().query(sql`update notification_status set lane_id = ${lane.id}`);
    await database().query(sql`update lane set next_due = null where id <> ${lane.id}`);
    assert.deepEqual(await dueOf(database(), lane, later(5)), []);
    const moved = (await listLanes(database())).find(({ id }) => id !== lane.id);
    assert.deepEqual(moved?.next_due, later(5));
    const leased = await leaseDue(database(), { owner: 1, now: later(5), limit: 2 });
    const next = leased.find(({ id }) => id === moved?.id);
    assert.ok(next !== undefined);
    const [due] = await dueOf(database(), next, later(5));
    assert.equal(due?.webhookUrl, 'https://two.example/x');
  });

  test('a due notification uses the current path of its watched address’s URL', async () => {
    const { lane, record } = await leaseWith(database());
    const at = { origin: 'https://one.example:443', now: noon };
    await updateWatchedAddress(database(), 1, record.id, { webhookUrl: 'https://one.example/new' }, at);
    assert.deepEqual(
      (await dueOf(database(), lane)).map(({ webhookUrl }) => webhookUrl),
      ['https://one.example/new'],
    );
  });

  test('the queue statistics count held, waiting and due notifications, and show the oldest due time', async () => {
    assert.deepEqual(await queueStatistics(database(), noon), {
      deferred: 0,
      held: 0,
      waiting: 0,
      due: 0,
      oldestDueAt: undefined,
      isComplete: true,
    });
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf(), transferOf()], { now: later(1) });
    await mine(database(), headerOf(2), [transferOf()], { now: later(9) });
    await mine(database(), headerOf(3), [transferOf()], { confirmations: 1, now: later(9) });
    assert.deepEqual(await queueStatistics(database(), later(5)), {
      deferred: 0,
      held: 1,
      waiting: 3,
      due: 2,
      oldestDueAt: later(1),
      isComplete: true,
    });
  });

  test('the queue statistics stop counting at their maximum, say so, and still show the oldest due time', async () => {
    await watchAddress(database());
    for (const number of [1, 2, 3])
      await mine(database(), headerOf(number), [transferOf()], { now: later(10 - number) });
    const read = (max: number) => queueStatistics(database(), later(60_000), max);
    const counts = { deferred: 0, held: 0, oldestDueAt: later(7) };
    assert.deepEqual(await read(2), { ...counts, waiting: 2, due: 2, isComplete: false });
    assert.deepEqual(await read(3), { ...counts, waiting: 3, due: 3, isComplete: true });
    // A worker that gives a queue back schedules it from then on.
    await database().query(sql`update lane set next_due = ${later(59_000)}`);
    assert.deepEqual(await read(2), { ...counts, waiting: 2, due: 2, isComplete: false });
  });

  test('what a suspended watcher has, and what is not due yet, leaves the count of due notifications as it is', async (t) => {
    if (database().isDistributed === true) return t.skip('on Citus, all are counted');
    await addWatchers(database(), 1, 2, 3);
    for (const watcherId of [1, 2, 3]) await watchAddress(database(), { watcherId });
    for (const number of [1, 2, 3])
      await mine(database(), headerOf(number), [transferOf()], { now: later(number) });
    await suspendWatcher(database(), 1, later(4));
    await database().query(sql`
      update queue set retry_count = 1, due_at = ${later(900_000)}, next_retry_at = ${later(900_000)} where shard_id = 2`);
    const counted = await queueStatistics(database(), later(60_000), 3);
    assert.deepEqual([counted.due, counted.oldestDueAt, counted.isComplete], [3, later(1), false]);
  });
});

onPostgres(({ database }) => {
  test('on Citus, one shard of a worker that does not answer is asked for all of them, and shards of others are read and settled meanwhile', async () => {
    const watcherIds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    for (const watcherId of watcherIds) await watchAddress(database(), { watcherId });
    await mine(database(), headerOf(1), [transferOf()]);
    const asked: unknown[] = [];
    let silent = new Set<unknown>();
    const distributed: Database = {
      ...(await asDistributed(database(), async ({ text, values }) => {
        const shardId = /\bqueue\b/.test(text) && values.find((value) => silent.has(value));
        if (typeof shardId !== 'number') return;
        asked.push(shardId);
        throw new Fault('unavailable', 'database: timeout');
      })),
      probe: () => new Promise(() => {}),
    };
    const lanes = await leaseDue(distributed, { now: noon });
    assert.equal(lanes.length, watcherIds.length);
    const groups = await groupByWorker(distributed, lanes);
    const [living, frozen] = groups.toSorted((one, other) => one.length - other.length);
    assert.ok(frozen !== undefined && living !== undefined && frozen.length > 2);
    silent = new Set(frozen.map(({ shardId }) => shardId));
    const read = () => listDue(distributed, lanes, { now: noon, exclude: [], limit: 100 });
    const due = await read();
    // Two shards are asked at once.
    assert.ok(asked.length <= 2, `${asked.length} statements`);
    const count = asked.length;
    for (const { id } of frozen) assert.ok(due.get(id) instanceof Fault);
    await read();
    assert.equal(asked.length, count, 'none while the probe has no answer');
    const outcomes = lanes.map((lane): Settlement => {
      const rows = due.get(lane.id);
      const isRead = Array.isArray(rows);
      assert.equal(isRead, living.includes(lane));
      return {
        ...{
          lane,
          notificationId: isRead ? (rows[0]?.id ?? 0) : 0,
          revision: 0,
          retryCount: 0,
          redeliveryCount: 0,
        },
        ...{ startedAt: noon, durationMs: 1, outcome: 'success', status: 200, response: undefined },
        ...{ mayHaveArrived: true, nextRetryAt: undefined, settledAt: noon },
      };
    });
    const unrecorded = await settle(distributed, outcomes);
    assert.equal(asked.length, count);
    assert.deepEqual(new Set([...unrecorded.keys()].map(({ lane }) => lane)), new Set(frozen));
    assert.deepEqual(new Set(unrecorded.values()), new Set(['locked']));
  });
});
