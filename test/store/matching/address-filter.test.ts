import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { createMetrics, type Metrics } from '../../../src/core/metrics.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { deleteWatchedAddress, updateWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { findThrough, insertRecord, ready, strangers, testFilter } from '../../kit/address-filter.ts';
import {
  addressOf,
  addWatchers,
  alice,
  bob,
  carol,
  headerOf,
  later,
  listNotifications,
  mine,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onEachDatabase, onPostgres } from '../../kit/each-database.ts';

const losses: Record<string, (database: Database) => Promise<unknown>> = {
  'has recovered from a log': (database) => database.query(sql`truncate address_filter, address_change`),
  'went back to an earlier state': (database) =>
    database.query(sql`
      with former as (delete from address_filter returning id)
      insert into address_filter (id, snapshot, writer) select id, '3:3:', pg_current_xact_id() from former`),
  'holds a copy of its rows': (database) =>
    database.transaction(async (tx) => {
      await tx.query(sql`create temporary table dump on commit drop as select * from address_filter`);
      await tx.query(sql`delete from address_filter`);
      await tx.query(sql`insert into address_filter select * from dump`);
    }),
};

/** Addresses per page of the build. */
const PAGE = 2;

onEachDatabase(({ database }) => {
  let metrics: Metrics;

  beforeEach(async () => {
    metrics = createMetrics('test');
    await addWatchers(database(), 1);
  });

  const filterOf = (parts: Parameters<typeof testFilter>[1] = {}) =>
    testFilter(database(), { metrics, pageSize: PAGE, ...parts });

  test('addresses from before, during and after the build are found, and others are not asked for', async () => {
    const [first, ...others] = Array.from({ length: 6 }, (_, index) => addressOf(0x100 + 2 * index));
    assert.ok(first !== undefined);
    for (const address of [...others, bob]) await watchAddress(database(), { address });
    const filter = filterOf();
    await filter.step();
    await filter.step();
    assert.ok(!filter.isReady());
    // The build is beyond the first of these two addresses, and not yet at the second.
    await watchAddress(database(), { address: first });
    await watchAddress(database(), { address: addressOf(0x10b) });
    await ready(filter);
    await watchAddress(database(), { address: carol });
    const asked = [first, addressOf(0x10b), carol, bob, ...others, ...strangers];
    const found = await findThrough(filter, asked);
    assert.deepEqual(found.toSorted(), [first, addressOf(0x10b), carol, bob, ...others].toSorted());
    // The sender is one more.
    assert.equal(await readMetric(metrics.addressFilterProbes), asked.length + 1);
    assert.ok((await readMetric(metrics.addressFilterPassed)) < asked.length / 2);
    assert.equal(await readMetric(metrics.addressFilterEntries), 9);
  });

  test('changes that a restored dump brought, of transactions that have yet to come, are dropped', async () => {
    await watchAddress(database(), { address: bob });
    await database().query(
      sql`insert into address_change (xid, removed_count) values ('999999999999'::xid8, 10000)`,
    );
    const filter = filterOf();
    await ready(filter);
    assert.deepEqual(await database().query(sql`select from address_change`), []);
    assert.deepEqual(await findThrough(filter, [bob, ...strangers]), [bob]);
  });

  test('an address that a record gets by a change is found, and one of a removed record soon is not', async () => {
    const record = await watchAddress(database(), { address: alice });
    await watchAddress(database(), { address: bob });
    const filter = filterOf();
    await ready(filter);
    await updateWatchedAddress(
      database(),
      1,
      record.id,
      { address: carol },
      { origin: undefined, now: later(1) },
    );
    assert.deepEqual(await findThrough(filter, [alice, carol, ...strangers]), [carol]);
    // More than a fifth of the entries are stale.
    assert.equal(await filter.step(), 'worked');
    assert.ok(!filter.isReady());
    await ready(filter);
    assert.equal(await readMetric(metrics.addressFilterEntries), 2);
    await deleteWatchedAddress(database(), 1, record.id, { now: later(2) });
    assert.deepEqual(await findThrough(filter, [alice, carol, bob]), [bob]);
  });

  test('a filter that has become too small is built again', async () => {
    await watchAddress(database(), { address: bob });
    const filter = filterOf();
    await ready(filter);
    for (let index = 0; index < 3; index += 1) await watchAddress(database(), { address: addressOf(index) });
    assert.deepEqual(await findThrough(filter, [addressOf(2)]), [addressOf(2)]);
    await filter.step();
    assert.ok(!filter.isReady());
    await ready(filter);
    assert.equal(await readMetric(metrics.addressFilterEntries), 4);
  });

  test('without enough records, no change is noted and the database is asked for all addresses', async () => {
    const filter = filterOf({ minRecords: 2 });
    await filter.step();
    await watchAddress(database(), { address: bob });
    assert.deepEqual(await changes(database()), []);
    assert.deepEqual(await findThrough(filter, [bob, ...strangers]), [bob]);
    assert.equal(await readMetric(metrics.addressFilterProbes), 0);
  });

  test('a filter that is switched off removes what an earlier process left', async () => {
    await watchAddress(database(), { address: bob });
    await ready(filterOf());
    await watchAddress(database(), { address: carol });
    assert.equal((await changes(database())).length, 1);
    await filterOf({ minRecords: undefined }).step();
    assert.deepEqual(await changes(database()), []);
    await watchAddress(database(), { address: alice });
    assert.deepEqual(await changes(database()), []);
  });

  test('changes are pruned once the filter has them, also those that a dead process never took', async () => {
    await watchAddress(database(), { address: bob });
    await ready(filterOf());
    await watchAddress(database(), { address: carol });
    const filter = filterOf();
    await ready(filter);
    await filter.step();
    assert.deepEqual(await changes(database()), []);
    await watchAddress(database(), { address: alice });
    await filter.step();
    assert.deepEqual(await changes(database()), []);
    assert.deepEqual(await findThrough(filter, [alice, bob, carol, ...strangers]), [alice, bob, carol]);
  });

  test('a process whose filter another one replaced asks the database for all addresses', async () => {
    await watchAddress(database(), { address: bob });
    const former = filterOf();
    await ready(former);
    const filter = filterOf();
    await ready(filter);
    await watchAddress(database(), { address: carol });
    await filter.step();
    assert.deepEqual(await findThrough(former, [carol, ...strangers]), [carol]);
    assert.ok(!former.isReady());
  });

  test('a process that no longer leads forgets its filter', async () => {
    await watchAddress(database(), { address: bob });
    let leads = true;
    const filter = filterOf({ leads: () => leads });
    await ready(filter);
    leads = false;
    assert.equal(await filter.step(), 'idle');
    assert.ok(!filter.isReady());
    assert.equal(await readMetric(metrics.addressFilterBytes), 0);
  });

  for (const [name, lose] of Object.entries(losses))
    test(`a filter is not used on a database that ${name}`, async () => {
      await watchAddress(database(), { address: bob });
      const filter = filterOf();
      await ready(filter);
      await lose(database());
      // On that database, the transaction of this record counts as visible for the filter.
      await database().transaction(async (tx) => {
        await tx.query(sql`set local session_replication_role = replica`);
        await insertRecord(tx, carol);
      });
      assert.deepEqual(await findThrough(filter, [carol, ...strangers]), [carol]);
      assert.ok(!filter.isReady());
      await ready(filter);
      assert.deepEqual(await findThrough(filter, [carol, ...strangers]), [carol]);
    });

  test('the mark stays where it was when the transaction of a block fails', async () => {
    await watchAddress(database(), { address: bob });
    const filter = filterOf();
    await ready(filter);
    await watchAddress(database(), { address: carol });
    await assert.rejects(
      filter.transaction(async (tx, narrow) => {
        assert.deepEqual(await narrow?.(tx, [carol]), [carol]);
        throw new Error('the block fails');
      }),
      /the block fails/,
    );
    assert.deepEqual(await findThrough(filter, [carol, ...strangers]), [carol]);
    assert.ok(filter.isReady());
  });

  test('a block creates the same notifications with a filter as without one', async () => {
    await watchAddress(database(), { address: bob });
    const filter = filterOf();
    await ready(filter);
    await watchAddress(database(), { address: carol });
    const transfers = [bob, carol, ...strangers].map((receiver) => transferOf({ receiver }));
    await mine(database(), headerOf(1), transfers, { filter });
    assert.equal((await listNotifications(database())).length, 2);
    assert.ok(filter.isReady());
  });
});

onPostgres(({ database }) => {
  test('a filter waits for open changes, and gives way to the next ones while they last', async () => {
    await watchAddress(database(), { address: bob });
    const filter = testFilter(database());
    const { promise: ended, resolve: end } = Promise.withResolvers<void>();
    const { promise: inserted, resolve: insert } = Promise.withResolvers<void>();
    const open = database().transaction(async (tx) => {
      await insertRecord(tx, carol);
      insert();
      await ended;
    });
    await inserted;
    await assert.rejects(filter.step(), { code: 'unavailable' });
    assert.ok(!filter.isReady());
    end();
    await open;
    await ready(filter);
    assert.deepEqual(await findThrough(filter, [carol, ...strangers]), [carol]);
  });

  test('a change in a transaction with an older snapshot is noted, although it cannot see the filter', async () => {
    await watchAddress(database(), { address: bob });
    const filter = testFilter(database());
    await database().transaction(async (tx) => {
      await tx.query(sql`set transaction isolation level repeatable read`);
      await tx.query(sql`select count(*) from watched_address`);
      await ready(filter);
      await insertRecord(tx, carol);
    });
    assert.deepEqual(await findThrough(filter, [carol, ...strangers]), [carol]);
  });
});

const changes = (database: Database) => database.query(sql`select from address_change limit 100`);

async function readMetric(metric: { get(): unknown }): Promise<number> {
  const { values } = Object(await metric.get());
  return Number(values[0].value);
}
