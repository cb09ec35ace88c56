import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { noMark, writeDeferred } from '../../../src/store/blocks/write-deferred.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import { deferralLimits } from '../../../src/store/matching/deferred.ts';
import {
  addWatchers,
  atOnce,
  headerOf,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

/** Of more than four notifications that are due, a transaction releases two of each watcher. */
const release = { atOnce: 4, shareMin: 2, shareMax: 2, groupsMax: 100 };
const limits = { ...deferralLimits, release };
const deferral = { ...atOnce.deferral, release };

const write = (database: Database, parts: Partial<Parameters<typeof writeDeferred>[1]> = {}) =>
  writeDeferred(database, { confirmations: 3, now: noon, sortWatchers: (ids) => ids, limits, ...parts });

async function writeAll(database: Database): Promise<void> {
  while ((await write(database)) !== undefined);
}

/** How many notifications of each watcher are in each state, such as `1 waiting 2`. */
async function countStates(database: Database): Promise<string[]> {
  const rows = await database.query<{ count: string }>(sql`
    select w.watcher_id || ' ' || n.state || ' ' || count(*) as count from notification_status n
    join watched_address w on w.id = n.watched_address_id and w.shard_id = n.shard_id
    group by w.watcher_id, n.state order by 1`);
  return rows.map(({ count }) => count);
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
      const held = { deferral, confirmations: 3 };
      await mine(database(), headerOf(1), [transferOf()], held);
      assert.deepEqual(await countStates(database()), ['1 held 7', '2 held 2']);
      const committed = await mine(database(), headerOf(4), [], {
        deferral,
        confirmations: 3,
        releasedBefore: 3,
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
      await mine(database(), headerOf(1), [transferOf()], { deferral, confirmations: 3 });
      await mine(database(), headerOf(9), [], { deferral, confirmations: 3 });
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
      await watchTimes(database(), 5, {});
      await mine(database(), headerOf(1), [transferOf()], { deferral, confirmations: 3 });
      await mine(database(), headerOf(4), [], { deferral: atOnce.deferral, releasedBefore: 4 });
      const options = { mark: noMark(), limits: { ...limits, release: { ...release, shareMax: 5 } } };
      await write(withChangedRows(database(), 3), options);
      await write(database(), options);
      assert.deepEqual(await countStates(database()), ['1 waiting 5']);
      assert.equal(await write(database(), options), undefined);
    });

    test('a transaction looks at a bounded number of groups, and the next one goes on after them, also after a reorg', async (t) => {
      if (database().isDistributed === true) return t.skip('on Citus, a transaction counts all groups');
      await addWatchers(database(), 2);
      // Watcher 1 has three notifications in each of six blocks, watcher 2 has three in the last one.
      for (let confirmations = 3; confirmations < 9; confirmations++)
        await watchTimes(database(), 3, { watcherId: 1, settings: { confirmations } });
      await watchTimes(database(), 3, { watcherId: 2, settings: { confirmations: 8 } });
      await mine(database(), headerOf(1), [transferOf()], { deferral, confirmations: 3 });
      const few = { ...release, groupsMax: 3 };
      const committed = await mine(database(), headerOf(9), [], {
        deferral: { ...deferral, release: few },
        confirmations: 3,
      });
      assert.equal(committed.outcome === 'committed' && committed.hasDeferred, true);
      assert.deepEqual(await countStates(database()), ['1 held 16', '1 waiting 2', '2 held 3']);
      const options = { mark: noMark(), limits: { ...limits, release: few } };
      await write(database(), options);
      assert.deepEqual(await countStates(database()), ['1 held 14', '1 waiting 4', '2 held 3']);
      await write(database(), options);
      await write(database(), options);
      // It has gone on, so that watcher 2 doesn't wait for what watcher 1 has in earlier blocks.
      assert.deepEqual(await countStates(database()), [
        '1 held 12',
        '1 waiting 6',
        '2 held 1',
        '2 waiting 2',
      ]);
      while ((await write(database(), options)) !== undefined);
      assert.deepEqual(await countStates(database()), ['1 waiting 18', '2 waiting 3']);
      // After a reorg, some that were released may be held again.
      await database().query(
        sql`update queue set state = 'held', release_number = 1 where state = 'waiting'`,
      );
      await database().query(sql`insert into reorg (happened_at, ancestor_number) values (${noon}, 9)`);
      await write(database(), options);
      assert.deepEqual(await countStates(database()), [
        '1 held 16',
        '1 waiting 2',
        '2 held 1',
        '2 waiting 2',
      ]);
    });

    test('in strict order, shares keep the order of each watched address', async () => {
      await watchTimes(database(), 2, { settings: { strictOrder: true } });
      const held = { deferral, confirmations: 3 };
      const transfers = Array.from({ length: 3 }, (_, index) => transferOf({ amount: BigInt(index + 1) }));
      await mine(database(), headerOf(1), transfers, held);
      await mine(database(), headerOf(4), [], { deferral, confirmations: 3 });
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
      await mine(database(), headerOf(1), [transferOf()], { deferral, confirmations: 3 });
      const committed = await mine(database(), headerOf(4), [], { deferral, confirmations: 3 });
      assert.equal(committed.outcome === 'committed' && committed.hasDeferred, false);
      assert.deepEqual(await countStates(database()), ['1 waiting 4']);
    });
  });
});
