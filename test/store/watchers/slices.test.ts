import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { zeroAddress } from '../../../src/core/hex.ts';
import { SHARD_STEP, shardOfRecord, sliceForAddress, sliceOfRecord } from '../../../src/domain/shard.ts';
import { writeDeferred } from '../../../src/store/blocks/write-deferred.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { listAttempts, listAttemptsBetween } from '../../../src/store/delivery/attempts.ts';
import { EXAMINED_MAX, findLogged, listLog } from '../../../src/store/delivery/log.ts';
import type { LogFilter } from '../../../src/store/delivery/log-filter.ts';
import { countPending } from '../../../src/store/delivery/pending.ts';
import { countFailures, listReceivers } from '../../../src/store/delivery/receivers.ts';
import { alignNotifications } from '../../../src/store/delivery/record-changes.ts';
import { recordStatistics } from '../../../src/store/delivery/record-statistics.ts';
import { redeliverOne, redeliverStep } from '../../../src/store/delivery/redelivery.ts';
import { findSettings } from '../../../src/store/watchers/settings.ts';
import {
  deleteWatchedAddress,
  findWatchedAddress,
  listRecordIds,
  listWatchedAddresses,
  updateWatchedAddress,
  type WatchedAddress,
} from '../../../src/store/watchers/watched.ts';
import { changeWatchedAddresses } from '../../../src/store/watchers/watched-bulk.ts';
import { replaceWatchedSet } from '../../../src/store/watchers/watched-set.ts';
import { beginRemoval, removeBatch } from '../../../src/store/watchers/watcher-removal.ts';
import {
  countBelongings,
  listOrigins,
  raiseSlices,
  watcherQueue,
} from '../../../src/store/watchers/watchers.ts';
import { attemptDue } from '../../kit/attempts.ts';
import {
  addressOf,
  addWatchers,
  atOnce,
  headerOf,
  later,
  listNotifications,
  listStates,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { insertNotifications, planTest } from '../../kit/many-notifications.ts';

const WATCHER = 1;
const SLICES = 4;
const HOOK = 'https://one.example/hook';
const ORIGIN = 'https://one.example:443';
/** One address for each slice. */
const addresses = Array.from({ length: SLICES }, (_, slice) => {
  for (let number = 1; ; number += 1)
    if (sliceForAddress(addressOf(number), SLICES) === slice) return addressOf(number);
});
const [firstAddress = zeroAddress] = addresses;

onSampledDatabase(import.meta.url, ({ database }) => {
  beforeEach(async () => {
    await addWatchers(database(), WATCHER, 2);
    await database().query(sql`update watcher set slices = 1`);
  });
  const raise = (slices = SLICES) => raiseSlices(database(), WATCHER, slices);
  const watchAll = async (url = HOOK): Promise<WatchedAddress[]> => {
    const records = [];
    for (const address of addresses) records.push(await watchAddress(database(), { address, url }));
    return records;
  };
  const payAll = (block: number) =>
    mine(
      database(),
      headerOf(block),
      addresses.map((receiver) => transferOf({ receiver })),
      atOnce,
    );

  test('a new record is in the slice of its address, in shard and id, and a raised number applies to new records only', async () => {
    const before = await watchAll();
    await raise();
    const after = await watchAll();
    assert.deepEqual(
      before.map(({ id }) => sliceOfRecord(id)),
      [0, 0, 0, 0],
    );
    assert.deepEqual(
      after.map(({ id }) => sliceOfRecord(id)),
      [0, 1, 2, 3],
    );
    const rows = await database().query<{ id: string; shard_id: number; lane_shard: number }>(sql`
      select w.id, w.shard_id, l.shard_id as lane_shard from watched_address w join lane l on l.id = w.lane_id`);
    for (const { id, ...shards } of rows) {
      const shard = shardOfRecord(WATCHER, id);
      assert.deepEqual(shards, { shard_id: shard, lane_shard: shard });
    }
    assert.equal(Math.max(...rows.map((row) => row.shard_id)), WATCHER + 3 * SHARD_STEP);
  });

  test('records from before and after the number was raised are found, listed, changed and deleted', async () => {
    const records = await watchAll();
    await raise();
    records.push(...(await watchAll()));
    const ids = records.map(({ id }) => id);
    const list = async () => {
      const read: string[] = [];
      for (let after: WatchedAddress | undefined; ; ) {
        const page = await listWatchedAddresses(database(), WATCHER, { after, limit: 3 });
        read.push(...page.map(({ id }) => id));
        after = page.at(-1);
        if (page.length < 3) return read;
      }
    };
    assert.deepEqual(await list(), ids.toSorted());
    for (const { id, address } of records) {
      assert.equal((await findWatchedAddress(database(), WATCHER, id))?.address, address);
      assert.notEqual(await findSettings(database(), WATCHER, id), undefined);
      assert.ok((await listRecordIds(database(), WATCHER, address, 5)).includes(id));
      const at = { origin: 'https://two.example:443', now: later(1) };
      const moved = await updateWatchedAddress(
        database(),
        WATCHER,
        id,
        { webhookUrl: 'https://two.example/' },
        at,
      );
      assert.equal(moved?.webhookUrl, 'https://two.example/');
    }
    const [first, ...others] = ids.map((id) => ({ operation: 'delete', id }) as const);
    const changed = await database().transaction((tx) =>
      changeWatchedAddresses(tx, WATCHER, others, { now: later(2) }),
    );
    assert.deepEqual(
      changed.map((one) => one !== undefined && 'id' in one && one.id),
      ids.slice(1),
    );
    assert.ok(
      first !== undefined && (await deleteWatchedAddress(database(), WATCHER, first.id, { now: noon })),
    );
    assert.deepEqual(await list(), []);
  });

  test('an id in a slice that the watcher does not have is of no record, and creates no delivery queue', async () => {
    const id = '00000000-0000-4000-8000-0000000000ff';
    const patch = { webhookUrl: HOOK };
    const at = { origin: ORIGIN, now: noon };
    assert.equal(await updateWatchedAddress(database(), WATCHER, id, patch, at), undefined);
    const changed = await database().transaction((tx) =>
      changeWatchedAddresses(tx, WATCHER, [{ operation: 'update', id, patch }], { now: noon }),
    );
    assert.deepEqual(changed, [undefined]);
    assert.deepEqual(await database().query(sql`select id from lane`), []);
  });

  test('the number of slices is never lowered, and not changed while the watcher is being deleted', async () => {
    assert.deepEqual(await raise(3), { outcome: 'raised', slices: 3 });
    assert.deepEqual(await raise(2), { outcome: 'lower', slices: 3 });
    assert.deepEqual(await raise(3), { outcome: 'raised', slices: 3 });
    await beginRemoval(database(), WATCHER, noon);
    assert.equal((await raise(4)).outcome, 'deleting');
    assert.equal((await raiseSlices(database(), 99, 4)).outcome, 'none');
  });

  test('a set by URL replaces the records of all slices, and of one address keeps the oldest, in whichever slice it is', async () => {
    const old = await watchAll();
    await raise();
    const [, twin] = await watchAll();
    assert.notEqual(sliceOfRecord(old[1]?.id ?? ''), sliceOfRecord(twin?.id ?? ''));
    await database().query(sql`update watched_address set created_at = ${later(-1)} where id = ${twin?.id}`);
    await payAll(1);
    const fresh = addressOf(77);
    const members = [addresses[0], addresses[1], fresh].map((address = fresh) => ({
      ...{ address, watchCoin: true, watchToken: true },
    }));
    const replace = () =>
      database().transaction((tx) => replaceWatchedSet(tx, WATCHER, HOOK, members, later(1)));
    const { counts, deletedIds } = await replace();
    assert.deepEqual(counts, { created: 1, updated: 0, deleted: 6, unchanged: 2 });
    const stored = await listWatchedAddresses(database(), WATCHER, { after: undefined, limit: 10 });
    assert.deepEqual(
      new Set(stored.map(({ address }) => address)),
      new Set([addresses[0], addresses[1], fresh]),
    );
    assert.ok(
      stored.some(({ id }) => id === twin?.id),
      'the older twin stays',
    );
    const made = stored.find(({ address }) => address === fresh);
    assert.equal(sliceOfRecord(made?.id ?? ''), sliceForAddress(fresh, SLICES));
    assert.match(made?.id ?? '', /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    await alignNotifications(database(), WATCHER, deletedIds, later(2));
    assert.deepEqual((await listStates(database())).sort(), [
      ...Array.from({ length: 6 }, () => 'cancelled'),
      ...Array.from({ length: 2 }, () => 'waiting'),
    ]);
    assert.deepEqual((await replace()).counts, { created: 0, updated: 0, deleted: 0, unchanged: 3 });
  });

  test('pages of the log contain the notifications of all slices once, in both orders, and each is found by its id', async () => {
    await raise();
    const records = await watchAll();
    for (const block of [1, 2, 3]) await payAll(block);
    const ids = (await listNotifications(database())).map(({ id }) => id);
    const shards = new Set((await listNotifications(database())).map((row) => row.lane_id));
    assert.equal(shards.size, SLICES);
    const read = async (filter: LogFilter, order: 'newest first' | 'oldest first') => {
      const found: number[] = [];
      for (let after: number | undefined; ; ) {
        const page = await listLog(database(), WATCHER, filter, { order, after, limit: 5 });
        found.push(...page.notifications.map(({ id }) => id));
        after = page.next;
        if (after === undefined) return found;
      }
    };
    const all = { recordIds: records.map(({ id }) => id) };
    for (const filter of [{}, { state: 'waiting' }, all] as const) {
      assert.deepEqual(await read(filter, 'oldest first'), ids);
      assert.deepEqual(await read(filter, 'newest first'), ids.toReversed());
    }
    for (const id of ids) assert.equal((await findLogged(database(), WATCHER, id))?.notification.id, id);
    assert.equal(await findLogged(database(), 2, ids[0] ?? 0), undefined);
  });

  test(
    'a page examines a bounded number of rows, and skips none when one slice has more than the others',
    planTest,
    async () => {
      await raise();
      const [one, other] = await watchAll();
      assert.ok(one !== undefined && other !== undefined);
      await insertNotifications(database(), { records: [one], count: EXAMINED_MAX / SLICES + 10 });
      await insertNotifications(database(), { records: [other], count: 3 });
      await insertNotifications(database(), { records: [one], count: 5 });
      await database().query(sql`
      update notification set kind = 't' where shard_id = ${shardOfRecord(WATCHER, other.id)} or id <= 2`);
      // What waits is read from the queue.
      for (const [order, state] of [
        ['newest first', undefined],
        ['oldest first', undefined],
        ['newest first', 'waiting'],
        ['oldest first', 'waiting'],
      ] as const) {
        const found: number[] = [];
        let pages = 0;
        for (let after: number | undefined; ; ) {
          const page = await listLog(
            database(),
            WATCHER,
            { type: 'TOKEN_TRANSFER', state },
            { order, after, limit: 10 },
          );
          found.push(...page.notifications.map(({ id }) => id));
          pages += 1;
          after = page.next;
          if (after === undefined) break;
        }
        const first = EXAMINED_MAX / SLICES + 11;
        const expected = [1, 2, first, first + 1, first + 2];
        assert.deepEqual(found, order === 'oldest first' ? expected : expected.toReversed());
        assert.equal(pages, 2);
      }
    },
  );

  test('a redelivery in bulk covers all slices in steps, and one notification is redelivered by its id', async () => {
    await raise();
    await watchAll();
    for (const block of [1, 2]) await payAll(block);
    await attemptDue(database(), { now: later(1), succeeds: true });
    assert.equal(await countPending(database(), WATCHER), 0);
    const ids = (await listNotifications(database())).map(({ id }) => id);
    const at = { startedAt: later(20), after: undefined, now: later(20) };
    assert.deepEqual(await redeliverStep(database(), WATCHER, { fromBlock: 2 }, at), {
      count: 4,
      next: undefined,
    });
    assert.equal(await countPending(database(), WATCHER), 4);
    for (const id of ids.slice(0, 4)) assert.ok(await redeliverOne(database(), WATCHER, id, later(30)));
    assert.equal(await redeliverOne(database(), 2, ids[0] ?? 0, later(40)), false);
    // On Citus, each shard's time goes on from that of the request.
    const again = await attemptDue(database(), { now: later(60_000), succeeds: true });
    assert.deepEqual(
      again.map(({ id }) => id).sort((a, b) => a - b),
      ids,
    );
  });

  test('attempts of all slices are listed in the order of their ids, together and for each notification', async () => {
    await raise();
    await watchAll();
    for (const block of [1, 2]) {
      await payAll(block);
      await attemptDue(database(), { now: later(block), succeeds: true });
    }
    const ids = (await listNotifications(database())).map(({ id }) => id);
    const between = { after: 0, upTo: 100, limit: 5 };
    const first = await listAttemptsBetween(database(), WATCHER, between);
    const rest = await listAttemptsBetween(database(), WATCHER, { ...between, after: first.at(-1)?.id ?? 0 });
    const read = [...first, ...rest];
    assert.deepEqual(
      read.map(({ id }) => id),
      [1, 2, 3, 4, 5, 6, 7, 8],
    );
    assert.deepEqual(new Set(read.map(({ notificationId }) => notificationId)), new Set(ids));
    for (const id of ids) {
      const page = { before: undefined, limit: 5 };
      assert.equal((await listAttempts(database(), WATCHER, id, page)).length, 1);
      assert.deepEqual(await listAttempts(database(), 2, id, page), []);
    }
  });

  test('a receiver is one, with the figures of all slices together, in pages by watcher and origin', async () => {
    await raise();
    for (const host of ['b', 'a']) await watchAll(`https://${host}.example/`);
    await watchAddress(database(), { watcherId: 2, url: 'https://a.example/', address: firstAddress });
    await payAll(1);
    assert.equal((await database().query(sql`select from lane`)).length, 2 * SLICES + 1);
    await attemptDue(database(), { now: later(1), succeeds: false });
    const seen: unknown[] = [];
    for (const failing of [false, true])
      for (let after: { watcherId: number; origin: string } | undefined; ; ) {
        const page = await listReceivers(database(), { failing, after, limit: 2 });
        seen.push(
          ...page.map(({ watcherId, origin, failure }) => [
            watcherId,
            origin.slice(8, 9),
            failure?.attempts,
            failure?.pending,
          ]),
        );
        after = page.at(-1);
        if (page.length < 2) break;
      }
    const expected = [
      [1, 'a', SLICES, SLICES],
      [1, 'b', SLICES, SLICES],
      [2, 'a', 1, 1],
    ];
    assert.deepEqual(seen, [...expected, ...expected]);
    assert.equal((await countFailures(database(), later(86_400_000))).receivers, 3);
    assert.deepEqual(
      (await listOrigins(database(), WATCHER)).map(({ origin }) => origin.slice(8, 9)),
      ['a', 'b'],
    );
  });

  test("a watcher's counts and queue are those of all slices, and statistics those of the record", async () => {
    await raise();
    const records = await watchAll();
    for (const block of [1, 2]) await payAll(block);
    await attemptDue(database(), { now: later(1), succeeds: false });
    const { records: count, notifications, attempts, origins } = await countBelongings(database(), WATCHER);
    assert.deepEqual([count, notifications, attempts, origins], [4, 8, 8, 1]);
    const { waiting, due, oldestDueAt } = await watcherQueue(
      database(),
      { id: WATCHER, suspendedAt: undefined },
      later(60_001),
    );
    assert.deepEqual([waiting, due, oldestDueAt], [8, 8, later(60_001)]);
    assert.equal(await countPending(database(), WATCHER), 8);
    for (const { id } of records) {
      const { counts } = await recordStatistics(database(), WATCHER, id, later(2));
      assert.equal(counts.waiting, 2);
    }
  });

  test('records of one address in several slices get their notifications, also when those are deferred', async () => {
    await watchAll();
    await raise();
    await watchAll();
    const limits = {
      recordsMin: 1,
      ownRowsMax: 1_000_000,
      allRowsMax: 1_000_000,
      rowsAtOnce: 0,
      rowsMax: 100,
    };
    await mine(
      database(),
      headerOf(1),
      addresses.map((receiver) => transferOf({ receiver })),
      { deferral: limits },
    );
    assert.deepEqual(await listStates(database()), []);
    const sortWatchers = (ids: readonly number[]) => ids;
    while (
      (await writeDeferred(database(), { confirmations: 0, now: noon, sortWatchers, limits })) !== undefined
    );
    const rows = await listNotifications(database());
    assert.equal(new Set(rows.map((row) => row.watched_address_id)).size, rows.length);
    assert.equal(rows.length, 8);
  });

  test('in strict order each record has its own sequence, in whichever slice it is', async () => {
    await raise();
    for (const address of addresses)
      await watchAddress(database(), { address, url: HOOK, settings: { strictOrder: true } });
    for (const block of [1, 2]) await payAll(block);
    const attempted: number[] = [];
    for (const at of [1, 2]) {
      const due = await attemptDue(database(), { now: later(at), succeeds: true });
      attempted.push(...due.map(({ blockNumber }) => blockNumber));
    }
    assert.deepEqual(attempted, [1, 1, 1, 1, 2, 2, 2, 2]);
  });

  test('a removal deletes the rows of all slices and leaves other watchers alone', async () => {
    await raise();
    await watchAll();
    await watchAddress(database(), { watcherId: 2, address: firstAddress });
    await payAll(1);
    await attemptDue(database(), { now: later(1), succeeds: false });
    await database().query(sql`update statistics_state set counted_id = 1e9`);
    assert.ok(await beginRemoval(database(), WATCHER, noon));
    while ((await removeBatch(database(), WATCHER)) === 'more');
    for (const table of [
      'watched_address',
      'notification',
      'queue',
      'delivery_attempt',
      'lane',
      'receiver_failure',
    ]) {
      const rows = await database().query<{ shard_id: number }>({
        text: `select shard_id from ${table}`,
        values: [],
      });
      assert.deepEqual(rows, [{ shard_id: 2 }], table);
    }
  });
});
