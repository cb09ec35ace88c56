/**
 * A long transaction of one watcher, for example a bulk call, does not hold up other watchers.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLog } from '../../../src/core/log.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import type { Database, Tx } from '../../../src/store/db/db.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import { type DueNotification, listDue } from '../../../src/store/delivery/due.ts';
import { createLaneRepair } from '../../../src/store/delivery/lane-repair.ts';
import {
  freeAbandonedLanes,
  type Lane,
  releaseLanes,
  renewLeases,
} from '../../../src/store/delivery/lanes.ts';
import { alignNotifications, alignUnlessLocked } from '../../../src/store/delivery/record-changes.ts';
import { type Settlement, settle } from '../../../src/store/delivery/settle.ts';
import { scheduleNextVisits } from '../../../src/store/delivery/visit-schedule.ts';
import { deleteWatchedAddress, updateWatchedAddress } from '../../../src/store/watchers/watched.ts';
import {
  alignChanged,
  type Change,
  changeWatchedAddresses,
} from '../../../src/store/watchers/watched-bulk.ts';
import { replaceWatchedSet } from '../../../src/store/watchers/watched-set.ts';
import { asDistributed } from '../../kit/as-distributed.ts';
import { attemptDue, leaseDue, readDue } from '../../kit/attempts.ts';
import {
  atOnce,
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
import { citusUrl } from '../../kit/citus.ts';
import { createTestClock } from '../../kit/clock.ts';
import type { TestDatabase } from '../../kit/database.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { countWaiting } from '../../kit/in-line.ts';
import { insertNotifications } from '../../kit/many-notifications.ts';
import { waitUntil } from '../../kit/wait.ts';

/** On Citus, no settlement waits for a lock of a shard. */
const onOneServer = { skip: citusUrl() === undefined ? false : 'locks of one server' };
/** The watcher with the long transaction, and another one. */
const BUSY = 1;
const OTHER = 2;

/** Opens the database with a lock timeout, so that statements which wait for a lock fail. */
async function openImpatient(place: TestDatabase, database: Database): Promise<Database> {
  await database.script(
    `do $$ begin execute format('alter database %I set lock_timeout = ''3s''', current_database()); end $$`,
  );
  return place.open();
}

/** Does the work while another transaction has run the statements of `begin` and is still open. */
async function whileOpen(database: Database, begin: (tx: Tx) => Promise<unknown>, work: () => Promise<void>) {
  const begun = Promise.withResolvers<void>();
  const mayEnd = Promise.withResolvers<void>();
  const open = database.transaction(async (tx) => {
    await begin(tx);
    begun.resolve();
    await mayEnd.promise;
  });
  try {
    await Promise.race([begun.promise, open]);
    await work();
  } finally {
    mayEnd.resolve();
  }
  await open;
}

const lanesOf = (watcherId: number) => sql`select from lane where watcher_id = ${watcherId} for update`;
const visitOf = (watcherId: number) =>
  sql`select from watcher_queue where watcher_id = ${watcherId} for update`;
/** Takes the locks of a move, a deletion or a redelivery of the watcher. */
const lockAll = async (tx: Tx) => {
  for (const lock of [lanesOf(BUSY), visitOf(BUSY)]) await tx.query(lock);
};
const lockOne = (lock: Sql) => (tx: Tx) => tx.query(lock);

const delivered = (lane: Lane, { id, ...due }: DueNotification): Settlement => ({
  ...{ lane, notificationId: id, revision: due.revision, retryCount: due.retryCount },
  ...{ redeliveryCount: due.redeliveryCount, startedAt: noon, settledAt: noon, durationMs: 1 },
  ...{ mayHaveArrived: true, outcome: 'success', status: 200, response: undefined, nextRetryAt: undefined },
});

/** Gives each of the two watchers a lane with one notification, leased by worker 1, and an outcome to settle. */
async function begin(database: Database, settings = {}) {
  const record = await watchAddress(database, { watcherId: BUSY, settings });
  await watchAddress(database, { watcherId: OTHER, url: 'https://other.example/', settings });
  await mine(database, headerOf(1), [transferOf()]);
  const lanes = await leaseDue(database, { now: noon });
  const [busy, other] = [BUSY, OTHER].map((id) => lanes.find(({ watcherId }) => watcherId === id));
  assert.ok(busy !== undefined && other !== undefined);
  const outcomeOf = async (lane: Lane) => {
    const [due] = await readDue(database, lane, noon);
    assert.ok(due !== undefined);
    return delivered(lane, due);
  };
  return { record, busy, other, outcomes: { busy: await outcomeOf(busy), other: await outcomeOf(other) } };
}

const ownerOf = async (database: Database, { id }: Lane) =>
  (await listLanes(database)).find((lane) => lane.id === id)?.owner;

onPostgres(({ database, place }) => {
  /** The states of each watcher's notifications, in the order of their creation. */
  const statesOf = (...watcherIds: number[]) =>
    Promise.all(
      watcherIds.map(async (id) => {
        const rows = await database().query<{ state: string }>(
          sql`select state from notification_status where watcher_id = ${id} order by id`,
        );
        return rows.map(({ state }) => state);
      }),
    );

  test('outcomes of other watchers are settled at once, and those of the busy watcher once its transaction ends', async () => {
    const impatient = await openImpatient(place(), database());
    const { busy, other } = (await begin(database())).outcomes;
    await whileOpen(database(), lockAll, async () => {
      assert.deepEqual(await settle(impatient, [busy, other]), new Map([[busy, 'locked']]));
      assert.deepEqual(await statesOf(BUSY, OTHER), [['waiting'], ['processed']]);
    });
    assert.deepEqual(await settle(impatient, [busy]), new Map());
    assert.deepEqual(await statesOf(BUSY, OTHER), [['processed'], ['processed']]);
  });

  test('outcomes of other watchers do not wait for a locked row that has moved to another lane', async () => {
    const impatient = await openImpatient(place(), database());
    const { busy, other } = (await begin(database())).outcomes;
    const moved = await watchAddress(database(), { watcherId: BUSY, url: 'https://moved.example/hook' });
    const isBusy = sql`shard_id = ${busy.lane.shardId} and id = ${busy.notificationId}`;
    const [movedTo] = await database().query<{ lane_id: number }>(
      sql`select lane_id from watched_address where id = ${moved.id}`,
    );
    await database().query(sql`update queue set lane_id = ${movedTo?.lane_id ?? 0} where ${isBusy}`);
    await whileOpen(database(), lockOne(sql`select from queue where ${isBusy} for update`), async () => {
      assert.deepEqual(await settle(impatient, [busy, other]), new Map([[busy, 'locked']]));
      assert.deepEqual(await statesOf(BUSY, OTHER), [['waiting'], ['processed']]);
    });
    assert.deepEqual(await settle(impatient, [busy]), new Map());
    assert.deepEqual(await statesOf(BUSY), [['processed']]);
  });

  test('an outcome whose lane was taken meanwhile is lost, not locked', async () => {
    const { busy, outcomes } = await begin(database());
    await database().query(sql`update lane set epoch = epoch + 1 where id = ${busy.id}`);
    await whileOpen(database(), lockAll, async () => {
      const unrecorded = await settle(await place().open(), [outcomes.busy, outcomes.other]);
      assert.deepEqual(unrecorded, new Map([[outcomes.busy, 'lost']]));
    });
  });

  for (const [what, lock] of [
    ['the visit of a watcher is locked', () => lockOne(visitOf(BUSY))],
    [
      'another outcome of a lane is being recorded',
      ({ id }: Lane) =>
        (tx: Tx) =>
          tx.query(sql`select id from lane where id = ${id} for key share`),
    ],
  ] as const)
    test(`strict order advances while ${what}`, async () => {
      const impatient = await openImpatient(place(), database());
      const { busy, outcomes } = await begin(database(), { strictOrder: true });
      await mine(database(), headerOf(2), [transferOf()]);
      assert.deepEqual(await statesOf(BUSY, OTHER), [
        ['waiting', 'held'],
        ['waiting', 'held'],
      ]);
      await whileOpen(database(), lock(busy), async () => {
        assert.deepEqual(await settle(impatient, [outcomes.busy, outcomes.other]), new Map());
        const next = ['processed', 'waiting'];
        assert.deepEqual(await statesOf(BUSY, OTHER), [next, next]);
      });
    });

  test('leases of other watchers are renewed, and those of the busy watcher stay and are renewed once its transaction ends', async () => {
    const impatient = await openImpatient(place(), database());
    const { busy, other } = await begin(database());
    const wanted = { owners: [1], laneIds: [busy.id, other.id], leaseUntil: later(60_000) };
    const kept = new Set([busy.id, other.id]);
    const listEnds = async () => (await listLanes(database())).map((lane) => Number(lane.lease_until));
    await whileOpen(database(), lockAll, async () => {
      assert.deepEqual(await renewLeases(impatient, wanted), { kept, locked: [busy.id] });
      assert.deepEqual(await listEnds(), [later(30_000), later(60_000)].map(Number));
    });
    assert.deepEqual(await renewLeases(impatient, wanted), { kept, locked: [] });
    assert.deepEqual(await listEnds(), [later(60_000), later(60_000)].map(Number));
  });

  test(
    'a lease is renewed and writes are probed while an outcome of the lane is recorded',
    onOneServer,
    async () => {
      const impatient = await openImpatient(place(), database());
      const patient = await openDatabase({ url: place().url, dataDir: '' });
      try {
        const { busy, outcomes } = await begin(database());
        const row = sql`select from queue where id = ${outcomes.busy.notificationId} for update`;
        let recorded: Promise<unknown> | undefined;
        await whileOpen(database(), lockOne(row), async () => {
          recorded = settle(patient, [outcomes.busy]);
          await waitUntil(async () => (await countWaiting(database())) > 0);
          assert.deepEqual(
            await renewLeases(impatient, { owners: [1], laneIds: [busy.id], leaseUntil: later(60_000) }),
            { kept: new Set([busy.id]), locked: [] },
          );
          await impatient.query(sql`update clock_state set probed_at = ${noon}`);
        });
        assert.deepEqual(await recorded, new Map());
      } finally {
        await patient.close();
      }
    },
  );

  for (const [what, lock] of [
    ['its lanes', lanesOf(BUSY)],
    ['its visit', visitOf(BUSY)],
  ] as const)
    test(`lanes of other watchers are given back, visited and leased while the busy watcher has ${what} locked`, async () => {
      const impatient = await openImpatient(place(), database());
      const { busy, other } = await begin(database());
      await whileOpen(database(), lockOne(lock), async () => {
        assert.deepEqual(await releaseLanes(impatient, [busy, other], noon), new Set([busy]));
        assert.deepEqual([await ownerOf(impatient, busy), await ownerOf(impatient, other)], [1, null]);
        await scheduleNextVisits(impatient, [BUSY, OTHER], noon);
        const again = await leaseDue(impatient, { owner: 2, now: noon });
        assert.deepEqual(again, [{ ...other, epoch: other.epoch + 1 }]);
        const { freed } = await freeAbandonedLanes(impatient, { now: later(60_000) });
        assert.equal(freed, 1, 'of two stopped workers');
        assert.deepEqual([await ownerOf(impatient, busy), await ownerOf(impatient, other)], [1, null]);
      });
      assert.deepEqual(await releaseLanes(impatient, [busy], noon), new Set());
      const due = await leaseDue(impatient, { owner: 2, now: noon });
      assert.deepEqual(
        due.map(({ id }) => id),
        [busy.id, other.id],
      );
    });

  test('due notifications of other watchers are read while a locked row of the busy watcher has to move', async () => {
    const impatient = await openImpatient(place(), database());
    const { record, busy, other } = await begin(database());
    // As if a commit had matched the record before its change.
    await updateWatchedAddress(
      database(),
      BUSY,
      record.id,
      { webhookUrl: 'https://new.example/' },
      { origin: 'https://new.example:443', now: noon },
    );
    await database().query(
      sql`update notification_status set lane_id = ${busy.id} where watcher_id = ${BUSY}`,
    );
    const read = async () => {
      const due = await listDue(impatient, [busy, other], { now: noon, exclude: [], limit: 10 });
      return [busy, other].map(({ id }) => Object(due.get(id)).length);
    };
    await whileOpen(database(), lockAll, async () => assert.deepEqual(await read(), [0, 1]));
    assert.deepEqual(await read(), [0, 1]);
    const [moved] = await listNotifications(database());
    assert.notEqual(moved?.lane_id, busy.id);
  });

  test('of the notifications that a worker corrects, those of locked queues are left, and the others move', async () => {
    const impatient = await openImpatient(place(), database());
    const from = 'https://gateway.example/hook';
    const watch = { watcherId: BUSY, url: from };
    const records = [await watchAddress(database(), watch), await watchAddress(database(), watch)];
    await mine(database(), headerOf(1), [transferOf()]);
    // As if the process had died before the notifications followed.
    for (const [index, { id }] of records.entries())
      await updateWatchedAddress(
        database(),
        BUSY,
        id,
        { webhookUrl: `https://new${index}.example/` },
        { origin: `https://new${index}.example:443`, now: noon, align: async () => {} },
      );
    const rows = await database().query<{ id: number; recordId: string; laneId: number }>(sql`
      select id, watched_address_id as "recordId", lane_id as "laneId" from queue order by id`);
    const [former] = rows;
    const lane = { id: former?.laneId ?? 0, shardId: BUSY };
    const isTarget = sql`select from lane where origin = 'https://new1.example:443' for update`;
    await whileOpen(database(), lockOne(isTarget), () => alignUnlessLocked(impatient, lane, rows, noon));
    const origins = await database().query<{ origin: string }>(sql`
      select l.origin from queue q join lane l on l.id = q.lane_id order by l.origin`);
    assert.deepEqual(
      origins.map(({ origin }) => origin),
      ['https://gateway.example:443', 'https://new0.example:443'],
    );
  });

  test('a forgotten lane of the busy watcher is woken once its transaction ends', async () => {
    const impatient = await openImpatient(place(), database());
    const { busy } = await begin(database());
    await database().query(sql`update lane set owner = null, next_due = null where id = ${busy.id}`);
    const metrics = createMetrics('test');
    const healed = async () => (await metrics.deliveryQueuesHealed.get()).values[0]?.value ?? 0;
    const clock = createTestClock(later(1_000));
    const repair = createLaneRepair({ database: impatient, clock, log: silentLog(), metrics });
    await whileOpen(database(), lockAll, async () => {
      await repair(new AbortController().signal);
      assert.equal(await healed(), 0);
    });
    await repair(new AbortController().signal);
    assert.equal(await healed(), 1);
  });

  test('a block with transfers of both is committed while a bulk call is still open after its changes', async () => {
    const impatient = await openImpatient(place(), database());
    const makeRecords = (watcherId: number) =>
      Promise.all(
        Array.from({ length: 4 }, (_, index) =>
          watchAddress(database(), { watcherId, url: `https://${watcherId}.${index}.example/` }),
        ),
      );
    const [moved, gone, ofSet] = await makeRecords(BUSY);
    await makeRecords(OTHER);
    assert.ok(moved !== undefined && gone !== undefined && ofSet !== undefined);
    await mine(database(), headerOf(1), [transferOf()]);
    // Held until the next block.
    await mine(database(), headerOf(2), [transferOf()], { confirmations: 1 });
    const changes: Change[] = [
      { operation: 'update', id: moved.id, patch: { webhookUrl: 'https://1.3.example/new' } },
      { operation: 'delete', id: gone.id },
    ];
    let deletedIds: string[] = [];
    await whileOpen(
      database(),
      async (tx) => {
        await changeWatchedAddresses(tx, BUSY, changes, { now: noon });
        ({ deletedIds } = await replaceWatchedSet(tx, BUSY, ofSet.webhookUrl, [], noon));
      },
      async () => {
        const stored = await mine(impatient, headerOf(3), [transferOf()]);
        assert.equal(stored.outcome === 'committed' && stored.notificationCount, 8);
        const other = sql`select from notification_status where watcher_id = ${OTHER} and state = 'waiting'`;
        assert.equal((await impatient.query(other)).length, 12);
      },
    );
    await alignChanged(database(), BUSY, changes, later(1));
    await alignNotifications(database(), BUSY, deletedIds, later(1));
    const attempted = (await attemptDue(database(), { now: later(1), succeeds: true })).filter(
      ({ watcherId }) => watcherId === BUSY,
    );
    assert.deepEqual(
      new Map(
        [...Map.groupBy(attempted, ({ webhookUrl }) => webhookUrl)].map(([url, of]) => [url, of.length]),
      ),
      new Map([
        ['https://1.3.example/new', 3],
        ['https://1.3.example/', 3],
      ]),
    );
  });
});

onSampledDatabase(import.meta.url, ({ database }) => {
  const ROWS = 1_200;
  const ROWS_MAX = 500;

  /** The database, which adds to `counts` how many notifications each of its transactions changed. */
  function withCounts(counts: number[]): Database {
    return {
      ...database(),
      transaction: (work) =>
        database().transaction(async (tx) => {
          const before = await listPlaces(tx);
          const result = await work(tx);
          const after = await listPlaces(tx);
          const changed = after.filter((place, index) => place !== before[index]).length;
          if (changed > 0) counts.push(changed);
          return result;
        }),
    };
  }

  const listPlaces = async (tx: Tx) =>
    (
      await tx.query<{ place: string }>(sql`
        select n.state || coalesce(' ' || l.origin, '') as place from notification_status n
        left join lane l on l.id = n.lane_id order by n.id`)
    ).map(({ place }) => place);

  const url = 'https://new.example/hook';
  const origin = 'https://new.example:443';

  test('waiting notifications follow their watched address in transactions of bounded size, so that lanes are locked only briefly', async () => {
    const [one, two] = [await watchAddress(database()), await watchAddress(database())];
    await insertNotifications(database(), { records: [one, two], count: ROWS });
    const counts: number[] = [];
    const counted = withCounts(counts);
    await updateWatchedAddress(counted, 1, one.id, { webhookUrl: url }, { origin, now: noon });
    assert.deepEqual(counts, [500, 100]);
    await deleteWatchedAddress(counted, 1, two.id, { now: noon });
    assert.deepEqual(counts, [500, 100, 500, 100]);
    const places = await database().transaction(listPlaces);
    assert.deepEqual(
      new Map([...Map.groupBy(places, (place) => place)].map(([place, { length }]) => [place, length])),
      new Map([
        ['cancelled', 600],
        [`waiting ${origin}`, 600],
      ]),
    );
  });

  test('more than one page of waiting notifications follows many watched addresses, each row once', async () => {
    const records = await Promise.all(Array.from({ length: 3 }, () => watchAddress(database())));
    await insertNotifications(database(), { records, count: 6_000 });
    const changes = records.map(
      ({ id }): Change => ({ operation: 'update', id, patch: { webhookUrl: url } }),
    );
    const counts: number[] = [];
    await database().transaction((tx) => changeWatchedAddresses(tx, 1, changes, { now: noon }));
    await alignChanged(withCounts(counts), 1, changes, noon);
    assert.deepEqual(counts, Array(12).fill(ROWS_MAX));
  });

  test('after a call that crashed after its commit, due notifications are moved or cancelled before they are sent', async () => {
    const settings = { strictOrder: true };
    const [moved, gone] = [
      await watchAddress(database(), { settings }),
      await watchAddress(database(), { settings }),
    ];
    for (const height of [1, 2, 3]) await mine(database(), headerOf(height), [transferOf()]);
    const changes: Change[] = [
      { operation: 'update', id: moved.id, patch: { webhookUrl: url } },
      { operation: 'delete', id: gone.id },
    ];
    await database().transaction((tx) => changeWatchedAddresses(tx, 1, changes, { now: noon }));
    const sent: (string | number)[][] = [];
    for (let times = 0; times < 8; times += 1)
      for (const { webhookUrl, blockNumber } of await attemptDue(database(), {
        now: later(times),
        succeeds: true,
      }))
        sent.push([webhookUrl, blockNumber]);
    assert.deepEqual(sent, [
      [url, 1],
      [url, 2],
      [url, 3],
    ]);
    const states = (await listNotifications(database())).map((row) => [row.watched_address_id, row.state]);
    assert.deepEqual(
      new Set(states.map((state) => state.join(' '))),
      new Set([`${moved.id} processed`, `${gone.id} cancelled`]),
    );
  });

  test('notifications held in strict order are cancelled with their watched address, also beyond one batch', async () => {
    const record = await watchAddress(database(), { settings: { strictOrder: true } });
    const payments = Array.from({ length: ROWS }, () => transferOf());
    await mine(database(), headerOf(1), payments, atOnce);
    await deleteWatchedAddress(database(), 1, record.id, { now: noon });
    assert.deepEqual(new Set(await listStates(database())), new Set(['cancelled']));
    // The same if the call crashed after its commit.
    const other = await watchAddress(database(), { settings: { strictOrder: true } });
    await mine(
      database(),
      headerOf(2),
      payments.map(() => transferOf()),
      atOnce,
    );
    await database().query(sql`delete from watched_address where id = ${other.id}`);
    for (let times = 0; times < 3; times += 1)
      assert.deepEqual(await attemptDue(database(), { now: later(times), succeeds: true }), []);
    assert.deepEqual(new Set(await listStates(database())), new Set(['cancelled']));
  });

  test('a watched address that changes to another origin and back moves nothing', async () => {
    const record = await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    const changes = [url, record.webhookUrl].map(
      (webhookUrl): Change => ({ operation: 'update', id: record.id, patch: { webhookUrl } }),
    );
    const before = await listNotifications(database());
    await database().transaction((tx) => changeWatchedAddresses(tx, 1, changes, { now: noon }));
    await alignChanged(database(), 1, changes, noon);
    assert.deepEqual(await listNotifications(database()), before);
  });
});

onPostgres(({ database, place }) => {
  test('on Citus, a watched address that is deleted while notifications of another one are cancelled loses none', async () => {
    const records = [await watchAddress(database()), await watchAddress(database())];
    const [first, second] = records.map(
      ({ id }) => sql`delete from watched_address where shard_id = 1 and id = ${id}`,
    );
    assert.ok(first !== undefined && second !== undefined);
    await mine(database(), headerOf(1), [transferOf()]);
    await database().query(first);
    const distributed = await asDistributed(database(), async ({ text }) => {
      if (/^\s*delete from queue/.test(text)) await database().query(second);
    });
    const rows = await database().query<{ id: number; recordId: string }>(sql`
      select id, watched_address_id as "recordId" from queue order by id`);
    const [queued] = await database().query<{ id: number }>(sql`select lane_id as id from queue`);
    const lane = { id: queued?.id ?? 0, shardId: 1 };
    await alignUnlessLocked(distributed, lane, rows, noon);
    assert.deepEqual((await listStates(database())).toSorted(), ['cancelled', 'waiting']);
    await alignUnlessLocked(database(), lane, rows, noon);
    assert.deepEqual(await listStates(database()), ['cancelled', 'cancelled']);
  });

  test('a process that is stopped within a transaction delays blocks of others by at most five seconds', async () => {
    await watchAddress(database(), { watcherId: BUSY });
    const stopped = await openDatabase({ url: place().url, dataDir: '' });
    const isLocked = Promise.withResolvers<void>();
    const goesOn = Promise.withResolvers<void>();
    const open = stopped.transaction(async (tx) => {
      await lockAll(tx);
      isLocked.resolve();
      await goesOn.promise;
      await tx.query(sql`select`);
    });
    const outcome = assert.rejects(open, { name: 'Fault', code: 'unavailable' });
    await isLocked.promise;
    await mine(database(), headerOf(1), [transferOf()]);
    goesOn.resolve();
    await outcome;
    assert.deepEqual(await listStates(database()), ['waiting']);
    assert.equal((await stopped.query(sql`select`)).length, 1, 'its next statement has another connection');
    await stopped.close();
  });
});
