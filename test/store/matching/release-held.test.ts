import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Address } from '../../../src/core/hex.ts';
import { SHARD_STEP, sliceForAddress } from '../../../src/domain/shard.ts';
import { findTip } from '../../../src/store/blocks/blocks.ts';
import { noMark, writeDeferred } from '../../../src/store/blocks/write-deferred.ts';
import type { Database, Tx } from '../../../src/store/db/db.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import { deferralLimits } from '../../../src/store/matching/deferred.ts';
import { releaseHeld } from '../../../src/store/matching/release-held.ts';
import { raiseSlices } from '../../../src/store/watchers/watchers.ts';
import { asDistributed } from '../../kit/as-distributed.ts';
import {
  addressOf,
  addWatchers,
  atOnce,
  bob,
  carol,
  headerOf,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

/** Of more than four notifications that are due, a transaction releases two of each watcher. */
const release = { atOnce: 4, shareMin: 2, shareMax: 2 };
const limits = { ...deferralLimits, release };
const deferral = { ...atOnce.deferral, release };

const write = (database: Database, parts: Partial<Parameters<typeof writeDeferred>[1]> = {}) =>
  writeDeferred(database, { confirmations: 3, now: noon, sortWatchers: (ids) => ids, limits, ...parts });

async function writeAll(database: Database): Promise<void> {
  while ((await write(database)) !== undefined);
}

const releaseNext = (database: Database) =>
  database.transaction((tx) =>
    releaseHeld(tx, { releasedNumber: 1_000, now: noon, laneIds: [], limits: release }),
  );

/** How many notifications of each watcher are in each state, such as `1 waiting 2`. */
async function countStates(database: Database): Promise<string[]> {
  const rows = await database.query<{ count: string }>(sql`
    select w.watcher_id || ' ' || n.state || ' ' || count(*) as count from notification_status n
    join watched_address w on w.id = n.watched_address_id and w.shard_id = n.shard_id
    group by w.watcher_id, n.state order by 1`);
  return rows.map(({ count }) => count);
}

/** Adds watchers whose shards have their ids. */
async function addUnsliced(database: Database, ids: readonly number[]): Promise<void> {
  await addWatchers(database, ...ids);
  await database.query(sql`update watcher set slices = 1`);
}

/** How many notifications of each shard wait to be sent. */
async function countWaiting(database: Database): Promise<Map<number, number>> {
  const rows = await database.query<{ shard_id: number; count: number }>(sql`
    select shard_id, count(*) as count from queue where state = 'waiting' group by shard_id order by shard_id`);
  return new Map(rows.map((row) => [row.shard_id, row.count]));
}

/** An address whose new records are in this slice of two. */
const addressIn = (slice: number) => {
  for (let number = 1; ; number += 1)
    if (sliceForAddress(addressOf(number), 2) === slice) return addressOf(number);
};

/** Stores held notifications that are due: `ofEach` since each of `blocks` blocks, up to 50, which are newer at each call. */
async function backlog(
  database: Database,
  { blocks, ofEach, receiver = bob }: { blocks: number; ofEach: number; receiver?: Address },
): Promise<void> {
  const number = ((await findTip(database))?.number ?? 0) + 100;
  const transfers = Array.from({ length: blocks * ofEach }, () => transferOf({ receiver }));
  await mine(database, headerOf(number), transfers, { ...atOnce, releasedNumber: -2 });
  await database.query(sql`
    update queue set release_number = ${number - 60} + id % ${blocks}::integer where release_number = ${number}`);
}

/** Counts the rows of `queue` that the last transaction has read. */
function withReads(database: Database): { counted: Database; reads(): number } {
  let reads = 0;
  // The session may count earlier transactions too.
  const countReads = async (tx: Tx) => {
    const [row] = await tx.query<{ reads: number }>(sql`
      select seq_tup_read + idx_tup_fetch as reads from pg_stat_xact_user_tables where relname = 'queue'`);
    return row?.reads ?? 0;
  };
  const counted: Database = {
    ...database,
    transaction: (work) =>
      database.transaction(async (tx) => {
        const before = await countReads(tx);
        const result = await work(tx);
        reads = (await countReads(tx)) - before;
        return result;
      }),
  };
  return { counted, reads: () => reads };
}

/** Counts the rows that transactions get from the database. */
function withRows(database: Database): { counted: Database; rows(): number } {
  let rows = 0;
  const counted: Database = {
    ...database,
    transaction: (work) =>
      database.transaction((tx) =>
        work({
          ...tx,
          async query<Row>(statement: Sql) {
            const found = await tx.query<Row>(statement);
            rows += found.length;
            return found;
          },
        }),
      ),
  };
  return { counted, rows: () => rows };
}

/** Changes some held notifications just before chosen ones are released, as a change of their URL can. */
const withChangedRows = (database: Database, count: number): Database => ({
  ...database,
  transaction: (work) =>
    database.transaction((tx) =>
      work({
        ...tx,
        async query<Row>(statement: Sql) {
          if (/^\s*update queue q set release_number/.test(statement.text))
            await tx.query(sql`
              update queue set due_at = due_at where id in (select id from queue where state = 'held' order by id limit ${count})`);
          return tx.query<Row>(statement);
        },
      }),
    ),
});

type Watch = NonNullable<Parameters<typeof watchAddress>[1]>;

async function watchTimes(database: Database, count: number, watch: Watch): Promise<void> {
  for (let index = 0; index < count; index++)
    await watchAddress(database, { url: `https://host${index}.example/hook`, ...watch });
}

onSampledDatabase(import.meta.url, ({ database }) => {
  describe('held notifications', () => {
    test('of many that are due, each watcher gets a share with the block, and the rest soon after it without a further block', async () => {
      await addWatchers(database(), 2);
      await watchTimes(database(), 7, { watcherId: 1 });
      await watchTimes(database(), 2, { watcherId: 2 });
      const held = { deferral, releasedNumber: -2 };
      await mine(database(), headerOf(1), [transferOf()], held);
      assert.deepEqual(await countStates(database()), ['1 held 7', '2 held 2']);
      const committed = await mine(database(), headerOf(4), [], {
        deferral,
        releasedNumber: 1,
        releasedBefore: 0,
      });
      assert.equal(committed.outcome === 'committed' && committed.hasDeferred, true);
      assert.deepEqual(await countStates(database()), ['1 held 5', '1 waiting 2', '2 waiting 2']);
      assert.deepEqual(await write(database()), { notificationCount: 0, watcherIds: [] });
      assert.deepEqual(await countStates(database()), ['1 held 3', '1 waiting 4', '2 waiting 2']);
      await writeAll(database());
      assert.deepEqual(await countStates(database()), ['1 waiting 7', '2 waiting 2']);
    });

    test('the share of a watcher is of its oldest notifications', async () => {
      for (const confirmations of [4, 3, 5, 6, 7])
        await watchAddress(database(), { settings: { confirmations } });
      await mine(database(), headerOf(1), [transferOf()], { deferral, releasedNumber: -2 });
      await mine(database(), headerOf(9), [], { deferral, releasedNumber: 6 });
      assert.deepEqual(await countStates(database()), ['1 held 3', '1 waiting 2']);
      const late = await database().query(sql`
        with one as (
          select n.shard_id, n.state, w.confirmations from notification_status n
          join watched_address w on w.id = n.watched_address_id and w.shard_id = n.shard_id
        )
        select from one older join one newer on newer.shard_id = older.shard_id and newer.confirmations > older.confirmations
        where older.state = 'held' and newer.state = 'waiting'`);
      assert.equal(late.length, 0);
      await writeAll(database());
      assert.deepEqual(await countStates(database()), ['1 waiting 5']);
    });

    test('one that changes between its choice and its release is released with the next share', async () => {
      await addWatchers(database(), 2);
      for (const watcherId of [1, 2]) await watchTimes(database(), 3, { watcherId });
      await mine(database(), headerOf(1), [transferOf()], { deferral, releasedNumber: -2 });
      await mine(database(), headerOf(4), [], { deferral: atOnce.deferral, releasedNumber: -2 });
      const options = {
        mark: noMark(),
        limits: { ...limits, release: { atOnce: 4, shareMin: 3, shareMax: 3 } },
      };
      await write(withChangedRows(database(), 3), options);
      await write(database(), options);
      assert.deepEqual(await countStates(database()), ['1 waiting 3', '2 waiting 3']);
      assert.equal(await write(database(), options), undefined);
    });

    test('a share reads as many rows from a backlog of many blocks as from one of few', async () => {
      await addUnsliced(database(), [1]);
      await watchTimes(database(), 1, {});
      const { counted, reads } = withReads(database());
      const readsOf = async (blocks: number) => {
        await backlog(database(), { blocks, ofEach: 4 });
        await releaseNext(counted);
        const read = reads();
        await writeAll(database());
        return read;
      };
      const [few, many] = [await readsOf(5), await readsOf(50)];
      // On Citus, the workers read.
      if (database().isDistributed !== true) assert.ok(few > 0 && many <= few, `${few} and ${many}`);
    });

    test('a backlog of many blocks does not delay other watchers, nor another slice', async () => {
      await addUnsliced(database(), [1, 2]);
      await raiseSlices(database(), 1, 2);
      await watchTimes(database(), 1, { address: addressIn(0) });
      await backlog(database(), { blocks: 50, ofEach: 4, receiver: addressIn(0) });
      await watchTimes(database(), 1, { address: addressIn(1) });
      await watchTimes(database(), 1, { watcherId: 2, address: carol });
      await backlog(database(), { blocks: 1, ofEach: 2, receiver: addressIn(1) });
      await backlog(database(), { blocks: 1, ofEach: 2, receiver: carol });
      await write(database(), { limits: { ...limits, release: { ...release, atOnce: 6 } } });
      const waiting = await countWaiting(database());
      assert.deepEqual([...waiting.keys()], [1, 2, SHARD_STEP + 1]);
      assert.equal(waiting.get(2), 2);
      await writeAll(database());
      const [left] = await database().query<{ rows: number }>(sql`
        select count(*) as rows from queue where state = 'held'`);
      assert.equal(left?.rows, 0);
    });

    test('of more watchers than a transaction releases for, each gets its share in turn', async () => {
      const watcherIds = [1, 2, 3, 4, 5];
      await addUnsliced(database(), watcherIds);
      for (const watcherId of watcherIds) await watchTimes(database(), 1, { watcherId });
      await backlog(database(), { blocks: 2, ofEach: 4 });
      const mark = noMark();
      for (const released of [[1, 2], [1, 2, 3, 4], watcherIds]) {
        await write(database(), { mark });
        const waiting = await countWaiting(database());
        assert.deepEqual([...waiting.keys()], released);
        assert.deepEqual(
          [...waiting.values()],
          released.map(() => 2),
        );
      }
      while ((await write(database(), { mark })) !== undefined);
      assert.deepEqual([...(await countWaiting(database())).values()], [8, 8, 8, 8, 8]);
    });

    test('on Citus, watchers behind the oldest that are due get their share in turn', async () => {
      await addUnsliced(database(), [1, 2]);
      await watchTimes(database(), 1, {});
      await backlog(database(), { blocks: 40, ofEach: 4 });
      await watchTimes(database(), 1, { watcherId: 2, address: carol });
      await backlog(database(), { blocks: 1, ofEach: 3, receiver: carol });
      const { counted, rows } = withRows(database());
      const distributed = await asDistributed(counted);
      await releaseNext(distributed);
      // Fewer than blocks.
      assert.ok(rows() < 30, String(rows()));
      assert.deepEqual([...(await countWaiting(database())).values()], [2, 2]);
      while ((await releaseNext(distributed)).hasMore);
      assert.deepEqual([...(await countWaiting(database())).values()], [160, 3]);
    });

    test('in strict order, shares keep the order of each watched address', async () => {
      await watchTimes(database(), 2, { settings: { strictOrder: true } });
      const held = { deferral, releasedNumber: -2 };
      const transfers = Array.from({ length: 3 }, (_, index) => transferOf({ amount: BigInt(index + 1) }));
      await mine(database(), headerOf(1), transfers, held);
      await mine(database(), headerOf(4), [], { deferral, releasedNumber: 1 });
      await writeAll(database());
      const order = await database().query<{ rows: string }>(sql`
        select distinct string_agg(amount || ' ' || state, ', ' order by sequence) as rows
        from notification_status group by watched_address_id`);
      assert.deepEqual(order, [{ rows: '1 waiting, 2 held, 3 held' }]);
      const [left] = await database().query<{ rows: number }>(sql`
        select count(*) as rows from queue where release_number is not null`);
      assert.equal(left?.rows, 0);
    });

    test('as many as may be released at once are released with the block', async () => {
      await watchTimes(database(), 4, {});
      await mine(database(), headerOf(1), [transferOf()], { deferral, releasedNumber: -2 });
      const committed = await mine(database(), headerOf(4), [], { deferral, releasedNumber: 1 });
      assert.equal(committed.outcome === 'committed' && committed.hasDeferred, false);
      assert.deepEqual(await countStates(database()), ['1 waiting 4']);
    });
  });
});
