import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import type { Database, Tx } from '../../../src/store/db/db.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import { findForgottenLanes } from '../../../src/store/delivery/lane-repair.ts';
import {
  freeAbandonedLanes,
  LANE_CHANNEL,
  type Lane,
  leaseLanes,
  releaseLanes,
  renewLeases,
  VISIT_LANES_MAX,
  VISIT_WATCHERS_MAX,
  wakeLanes,
} from '../../../src/store/delivery/lanes.ts';
import { LOST_VISIT_MS, scheduleNextVisits } from '../../../src/store/delivery/visit-schedule.ts';
import { findNextDue, listWaitingWatchers } from '../../../src/store/delivery/visits.ts';
import { WORKER_LOCK_SPACE } from '../../../src/store/delivery/workers.ts';
import { asDistributed, loseShards } from '../../kit/as-distributed.ts';
import { ensureLane, leaseDue, readDue } from '../../kit/attempts.ts';
import {
  addWatchers,
  headerOf,
  later,
  listLanes,
  listStates,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { countWaiting } from '../../kit/in-line.ts';
import { waitUntil } from '../../kit/wait.ts';

const lease = (database: Database, owner: number, now = noon, limit = 10) =>
  leaseDue(database, { owner, now, limit });

/** A session with the worker's advisory lock, which keeps its lanes until the test ends. */
async function live(database: Database, owner: number): Promise<AsyncDisposable> {
  const session = await database.session();
  assert.ok(await session.tryLock(WORKER_LOCK_SPACE, owner));
  return {
    async [Symbol.asyncDispose]() {
      await session.close();
      // The embedded database has one connection, whose locks end only with the process, so release the lock here.
      if (database.kind === 'embedded') await database.query(sql`select pg_advisory_unlock_all()`);
    },
  };
}

/** When each watcher's next visit is due. */
async function listVisits(database: Database): Promise<Record<number, Date | null>> {
  const rows = await database.query<{ watcher_id: number; next_due: Date | null }>(sql`
    select watcher_id, next_due from watcher_queue where watcher_id in (select watcher_id from lane) order by watcher_id`);
  return Object.fromEntries(rows.map((row) => [row.watcher_id, row.next_due]));
}

/** A lane with one waiting notification, leased by worker 1. */
async function leaseOne(database: Database): Promise<Lane> {
  await watchAddress(database);
  await mine(database, headerOf(1), [transferOf()]);
  const [lane] = await lease(database, 1);
  assert.ok(lane !== undefined);
  return lane;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('each watcher has one lane per origin, however often it is requested', async () => {
    await addWatchers(database(), 1, 2);
    const ids = [];
    for (const [watcher, origin] of [
      [1, 'a'],
      [1, 'b'],
      [2, 'a'],
      [1, 'a'],
    ] as const)
      ids.push(await ensureLane(database(), watcher, origin));
    assert.deepEqual(ids.slice(0, 3).length, new Set(ids).size);
    assert.equal(ids[3], ids[0]);
  });

  test('only one worker has the lease of a lane until it ends, and each lease has a new epoch', async () => {
    const lane = await leaseOne(database());
    const origin = 'https://one.example:443';
    assert.deepEqual(lane, { ...lane, watcherId: 1, origin, epoch: 1 });
    await using _first = await live(database(), 1);
    assert.equal((await freeAbandonedLanes(database(), { now: later(29_999) })).freed, 0);
    assert.deepEqual(await lease(database(), 2, later(29_999)), []);
    assert.equal((await freeAbandonedLanes(database(), { now: later(30_000) })).freed, 1);
    assert.deepEqual(await lease(database(), 2, later(30_000)), [{ ...lane, epoch: 2 }]);
  });

  test('only lanes with something due are leased, the longest due first, up to the limit', async () => {
    await addWatchers(database(), 1);
    const ids = await Promise.all(['a', 'b', 'c', 'd'].map((origin) => ensureLane(database(), 1, origin)));
    const [a = 0, b = 0, c = 0] = ids;
    await database().transaction((tx) => wakeLanes(tx, [a], later(3)));
    await database().transaction((tx) => wakeLanes(tx, [b], later(1)));
    await database().transaction((tx) => wakeLanes(tx, [c], later(2)));
    assert.deepEqual(await findNextDue(database()), later(1));
    assert.deepEqual(await lease(database(), 1, noon), []);
    const leased = await lease(database(), 1, later(3), 2);
    assert.deepEqual(new Set(leased.map(({ id }) => id)), new Set([b, c]));
    assert.deepEqual(await findNextDue(database()), later(3));
    assert.deepEqual(
      (await lease(database(), 1, later(3))).map(({ id }) => id),
      [a],
    );
    assert.equal(await findNextDue(database()), undefined);
  });

  test('waking never makes a lane due later than it was', async () => {
    await addWatchers(database(), 1);
    const id = await ensureLane(database(), 1, 'a');
    await database().transaction((tx) => wakeLanes(tx, [id], later(5)));
    await database().transaction((tx) => wakeLanes(tx, [id], later(9)));
    assert.deepEqual((await listLanes(database()))[0]?.next_due, later(5));
    await database().transaction((tx) => wakeLanes(tx, [id], later(2)));
    assert.deepEqual((await listLanes(database()))[0]?.next_due, later(2));
  });

  test('a released lane is due with its next notification, or not at all if it has none', async () => {
    const lane = await leaseOne(database());
    await database().query(sql`update notification_status set next_attempt_at = ${later(60_000)}`);
    await releaseLanes(database(), [lane], noon);
    const free = { id: lane.id, owner: null, epoch: 1, next_due: later(60_000), lease_until: null };
    assert.deepEqual(await listLanes(database()), [free]);
    await database().query(sql`update notification_status set state = 'processed'`);
    const [again] = await lease(database(), 1, later(60_000));
    assert.ok(again !== undefined);
    await releaseLanes(database(), [again], noon);
    assert.deepEqual(await listLanes(database()), [{ ...free, epoch: 2, next_due: null }]);
  });

  test('a lane that is given back with due notifications comes after the lanes that already wait', async () => {
    const lane = await leaseOne(database());
    await database().query(sql`update notification_status set next_attempt_at = ${later(-60_000)}`);
    await releaseLanes(database(), [lane], later(7));
    assert.deepEqual((await listLanes(database()))[0]?.next_due, later(7));
    await database().query(sql`update notification_status set retry_count = 1`);
    const [again] = await lease(database(), 1, later(7));
    assert.ok(again !== undefined);
    await releaseLanes(database(), [again], later(9));
    assert.deepEqual((await listLanes(database()))[0]?.next_due, later(9));
  });

  test('a worker that lost its lane cannot release or renew the lease of the next worker', async () => {
    const lost = await leaseOne(database());
    assert.equal((await freeAbandonedLanes(database(), { now: later(30_000) })).freed, 1);
    const [taken] = await lease(database(), 2, later(30_000));
    assert.equal(taken?.epoch, 2);
    const before = await listLanes(database());
    await releaseLanes(database(), [lost], noon);
    assert.deepEqual(
      await renewLeases(database(), { owners: [1], laneIds: [lost.id], leaseUntil: later(99_000) }),
      { kept: new Set(), locked: [] },
    );
    assert.deepEqual(await listLanes(database()), before);
  });

  test('lanes that are given back together each get their next due time, except a lost one', async () => {
    for (const host of ['one', 'two', 'three'])
      await watchAddress(database(), { url: `https://${host}.example/` });
    await mine(database(), headerOf(1), [transferOf()]);
    const [first, second, lost] = await lease(database(), 1, noon, 3);
    assert.ok(first !== undefined && second !== undefined && lost !== undefined);
    await database().query(sql`update lane set epoch = epoch + 1 where id = ${lost.id}`);
    await database().query(
      sql`update notification_status set state = 'processed' where lane_id = ${second.id}`,
    );
    await releaseLanes(database(), [lost, second, first], later(7));
    const nextDue = (await listLanes(database())).map(({ id, owner, next_due }) => [id, owner, next_due]);
    assert.deepEqual(nextDue, [
      [first.id, null, later(7)],
      [second.id, null, null],
      [lost.id, 1, noon],
    ]);
  });

  test('a renewed lease lasts longer', async () => {
    const lane = await leaseOne(database());
    assert.deepEqual(
      await renewLeases(database(), { owners: [1], laneIds: [lane.id, 999], leaseUntil: later(60_000) }),
      { kept: new Set([lane.id]), locked: [] },
    );
    await using _first = await live(database(), 1);
    assert.equal((await freeAbandonedLanes(database(), { now: later(59_999) })).freed, 0);
    assert.equal((await freeAbandonedLanes(database(), { now: later(60_000) })).freed, 1);
  });

  test('a wake-up lists the lanes with something due, or is * if there are too many to list', async () => {
    const session = await database().session();
    const payloads: string[] = [];
    await session.listen(LANE_CHANNEL, (payload) => payloads.push(payload));
    await database().transaction((tx) => wakeLanes(tx, [], noon));
    await database().transaction((tx) => wakeLanes(tx, [3, 4], noon));
    const many = Array.from({ length: 501 }, (_, index) => 10 ** 12 + index);
    await database().transaction((tx) => wakeLanes(tx, many.slice(1), noon));
    await database().transaction((tx) => wakeLanes(tx, many, noon));
    await waitUntil(() => payloads.length === 3);
    assert.deepEqual(payloads, ['3,4', many.slice(1).join(','), '*']);
    await session.close();
  });

  test('the lane of a worker whose session is gone is freed, and its due time stays', async () => {
    const lane = await leaseOne(database());
    assert.equal((await freeAbandonedLanes(database(), { now: noon })).freed, 1);
    assert.deepEqual(await lease(database(), 2), [{ ...lane, epoch: 2 }]);
  });

  test('the lane of a worker whose session is open is not freed', async () => {
    await leaseOne(database());
    await using _first = await live(database(), 1);
    assert.equal((await freeAbandonedLanes(database(), { now: noon })).freed, 0);
    assert.deepEqual(await lease(database(), 2), []);
  });

  test('each watcher with something due is visited once before any is visited again, however many lanes it has', async () => {
    const watchers = Array.from({ length: 300 }, (_, index) => index + 1);
    await database().query(sql`
      insert into lane (shard_id, watcher_id, origin, next_due)
      select w, w, o, ${later(-1)} from generate_series(1, 300) as w, generate_series(1, case w when 1 then 1000 else 1 end) as o`);
    await database().query(sql`delete from watcher_queue`);
    await database().query(sql`
      insert into watcher_queue (watcher_id, next_due) select w, ${later(-1)} from generate_series(1, 300) as w`);
    const visited: number[] = [];
    for (let step = 0; step < Math.ceil(watchers.length / VISIT_WATCHERS_MAX); step += 1) {
      const now = later(step);
      const { leased, drained } = await leaseLanes(database(), { owner: 1, now, leaseUntil: later(30_000) });
      await scheduleNextVisits(database(), drained, noon);
      const counts = Map.groupBy(leased, ({ watcherId }) => watcherId);
      for (const own of counts.values()) assert.ok(own.length <= VISIT_LANES_MAX);
      visited.push(...counts.keys());
    }
    assert.deepEqual(
      [...new Set(visited)].sort((a, b) => a - b),
      watchers,
    );
    const visits = await listVisits(database());
    assert.notEqual(visits[1], null, 'a watcher with more due lanes is visited again');
    assert.equal(visits[2], null, 'a watcher without due lanes is not');
  });

  test('a watcher that is full is skipped, and is listed as waiting', async () => {
    await addWatchers(database(), 1, 2);
    const [one, two] = [await ensureLane(database(), 1, 'a'), await ensureLane(database(), 2, 'a')];
    await database().transaction((tx) => wakeLanes(tx, [one, two], noon));
    const { leased } = await leaseLanes(database(), { owner: 1, now: noon, leaseUntil: later(9), full: [1] });
    assert.deepEqual(
      leased.map(({ id }) => id),
      [two],
    );
    assert.equal(await findNextDue(database(), [1, 2]), undefined);
    assert.deepEqual(await findNextDue(database(), [2]), noon);
    assert.deepEqual(await listWaitingWatchers(database(), [1, 2], noon), [1]);
  });

  test('a lane that is given back or freed is visited when it is due', async () => {
    const lane = await leaseOne(database());
    assert.deepEqual(await listVisits(database()), { 1: null });
    await database().query(sql`update notification_status set next_attempt_at = ${later(60_000)}`);
    await releaseLanes(database(), [lane], noon);
    assert.deepEqual(await listVisits(database()), { 1: later(60_000) });
    await lease(database(), 1, later(60_000));
    assert.deepEqual(await listVisits(database()), { 1: null });
    assert.equal((await freeAbandonedLanes(database(), { now: later(60_001) })).freed, 1);
    assert.deepEqual(await listVisits(database()), { 1: later(60_000) });
  });
});

onPostgres(({ database, place }) => {
  test('when a worker ends, its lane is freed within moments, and lanes of other workers stay leased', async () => {
    await watchAddress(database(), { url: 'https://one.example/' });
    await watchAddress(database(), { url: 'https://two.example/' });
    await mine(database(), headerOf(1), [transferOf()]);
    const [dying, living] = [await database().session(), await database().session()];
    assert.ok((await dying.tryLock(WORKER_LOCK_SPACE, 11)) && (await living.tryLock(WORKER_LOCK_SPACE, 22)));
    const [first] = await lease(database(), 11, noon, 1);
    const [second] = await lease(database(), 22, noon, 1);
    assert.ok(first !== undefined && second !== undefined);
    assert.equal((await freeAbandonedLanes(database(), { now: noon })).freed, 0);
    await dying.close();
    await waitUntil(async () => (await freeAbandonedLanes(database(), { now: noon })).freed === 1, {
      describe: 'one lane is freed',
    });
    const owners = new Map((await listLanes(database())).map(({ id, owner }) => [id, owner]));
    assert.deepEqual([owners.get(first.id), owners.get(second.id)], [null, 22]);
    await living.close();
  });

  test('a worker’s lock in another database of the same server does not keep a lane here', async () => {
    await leaseOne(database());
    const url = new URL(place().url);
    url.pathname = '/postgres';
    const other = await openDatabase({ url: url.href, dataDir: '' });
    const session = await other.session();
    assert.ok(await session.tryLock(WORKER_LOCK_SPACE, 1));
    assert.equal((await freeAbandonedLanes(database(), { now: noon })).freed, 1);
    await session.close();
    await other.close();
  });

  test('workers that lease at once never get the same lane', async () => {
    for (let number = 0; number < 20; number += 1)
      await watchAddress(database(), { url: `https://host${number}.example/` });
    await mine(database(), headerOf(1), [transferOf()]);
    const leased = await Promise.all([1, 2, 3, 4].map((owner) => lease(database(), owner, noon, 5)));
    const ids = leased.flat().map(({ id }) => id);
    assert.equal(new Set(ids).size, ids.length);
    // A worker skips lanes that another worker has locked at that moment instead of waiting for them.
    const rest = await lease(database(), 5, noon, 20);
    assert.equal(ids.length + rest.length, 20);
  });

  /** Runs `first` until its transaction has its locks, starts `second` and lets it wait for them, then ends both. */
  async function inOrder(first: (one: Database) => Promise<unknown>, second: () => Promise<unknown>) {
    let later: Promise<unknown> | undefined;
    await first({
      ...database(),
      transaction: (work) =>
        database().transaction((tx) =>
          work({
            ...tx,
            async query<Row>(statement: Sql) {
              const rows = await tx.query<Row>(statement);
              if (later === undefined) {
                later = second();
                await waitUntil(isOneWaiting, { describe: 'the second one to wait' });
              }
              return rows;
            },
          }),
        ),
    });
    await later;
  }

  const isOneWaiting = async () => (await countWaiting(database())) === 1;

  test('no wake-up is lost when a block is committed while a lane is given back', async () => {
    const lane = await leaseOne(database());
    await database().query(sql`update notification_status set state = 'processed'`);
    // The worker has found nothing due. Now both transactions want the lane's row.
    assert.deepEqual(await readDue(database(), lane, noon), []);
    const commit = () => mine(database(), headerOf(2), [transferOf()], { now: later(5) });
    await inOrder((one) => releaseLanes(one, [lane], noon), commit);
    assert.deepEqual(await listStates(database()), ['processed', 'waiting']);
    assert.deepEqual(await listLanes(database()), [
      { id: lane.id, owner: null, epoch: 1, next_due: later(5), lease_until: null },
    ]);
  });

  test('no wake-up is lost when a lane is given back while a block is committed', async () => {
    const lane = await leaseOne(database());
    await database().query(sql`update notification_status set state = 'processed'`);
    assert.deepEqual(await readDue(database(), lane, noon), []);
    await mine(database(), headerOf(2), [transferOf()], {
      now: later(5),
      // At this point the commit has written and locked everything.
      also: async () => {
        assert.deepEqual(await releaseLanes(database(), [lane], noon), new Set([lane]));
      },
    });
    assert.deepEqual(await releaseLanes(database(), [lane], noon), new Set());
    assert.deepEqual(await listStates(database()), ['processed', 'waiting']);
    assert.deepEqual(await listLanes(database()), [
      { id: lane.id, owner: null, epoch: 1, next_due: later(5), lease_until: null },
    ]);
  });

  for (const first of ['the wake-up', 'the schedule'] as const) {
    test(`no visit is lost when a lane wakes while its watcher's next visit is scheduled: ${first} comes first`, async () => {
      await addWatchers(database(), 1);
      const id = await ensureLane(database(), 1, 'a');
      await database().transaction((tx) => wakeLanes(tx, [id], noon));
      const { drained } = await leaseLanes(database(), { owner: 1, now: noon, leaseUntil: later(30_000) });
      await database().query(sql`update lane set owner = null, next_due = null`);
      const wake = (tx: Tx) => wakeLanes(tx, [id], later(5));
      if (first === 'the schedule')
        await inOrder(
          (one) => scheduleNextVisits(one, drained, noon),
          () => database().transaction(wake),
        );
      else
        await database().transaction(async (tx) => {
          await wake(tx);
          await scheduleNextVisits(database(), drained, noon);
        });
      // If the next visit could not be scheduled, the visit that the lease made due stays due.
      assert.deepEqual(await listVisits(database()), { 1: first === 'the schedule' ? later(5) : noon });
    });
  }

  test('on Citus, lanes of lost shards are given back without asking them, and leased again when they have caught up', async () => {
    for (const watcherId of [1, 2]) await watchAddress(database(), { watcherId });
    await mine(database(), headerOf(1), [transferOf()]);
    const distributed = await asDistributed(database(), async ({ text, values }) => {
      if (text.includes('from queue') && values.includes(1))
        throw new Fault('unavailable', 'database: timeout');
    });
    const lanes = await lease(distributed, 1);
    assert.equal(lanes.length, 2);
    await loseShards(database(), [1]);
    assert.deepEqual(await releaseLanes(distributed, lanes, noon), new Set());
    assert.deepEqual(
      (await listLanes(database())).map(({ owner, next_due }) => ({ owner, next_due })),
      Array(2).fill({ owner: null, next_due: noon }),
    );
    const watchersOf = async (at: number) =>
      (await lease(distributed, 1, later(at))).map(({ watcherId }) => watcherId);
    assert.deepEqual(await watchersOf(1), [2]);
    // So that workers don't visit it again and again.
    assert.deepEqual((await listVisits(database()))[1], later(1 + LOST_VISIT_MS));
    const page = { after: 0, limit: 100 };
    const forgotten = await findForgottenLanes(distributed, { now: later(1_002), stepsMs: 0, page });
    assert.deepEqual(forgotten.laneIds, []);
    await database().query(sql`delete from lost_shards`);
    assert.deepEqual(await watchersOf(1 + LOST_VISIT_MS), [1]);
  });
});
