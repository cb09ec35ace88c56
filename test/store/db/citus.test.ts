/**
 * The delivery tables on a Citus cluster. Runs where TEST_CITUS_URL names its coordinator (`npm run citus`).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { distributeTables } from '../../../src/store/db/citus.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { groupByWorker } from '../../../src/store/db/lost-shards.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { releaseLanes } from '../../../src/store/delivery/lanes.ts';
import { deleteWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { attemptDue, leaseDue } from '../../kit/attempts.ts';
import {
  headerOf,
  listLanes,
  listStates,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { citusUrl } from '../../kit/citus.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { onPostgres } from '../../kit/each-database.ts';
import { countWaiting } from '../../kit/in-line.ts';
import { planAll } from '../../kit/many-notifications.ts';
import { rollbackTo } from '../../kit/rollback.ts';
import { waitUntil } from '../../kit/wait.ts';

const onCitus = {
  skip: citusUrl() === undefined ? 'TEST_CITUS_URL is not set: run `npm run citus -- store/db/citus`' : false,
};
const onOneServer = { skip: citusUrl() === undefined ? false : 'a server without Citus' };

test('tables are distributed only on a cluster', onOneServer, async () => {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  assert.equal(database.isDistributed, false);
  await assert.rejects(distributeTables(database), /the extension citus is missing/);
});

onPostgres(({ database }) => {
  test('distributing distributed tables does nothing', onCitus, async () => {
    assert.equal(database().isDistributed, true);
    assert.equal(await distributeTables(database()), false);
  });

  test(
    'reading due rows, settling and giving back touch one shard with each statement',
    onCitus,
    async () => {
      for (const watcherId of [1, 2, 3]) await watchAddress(database(), { watcherId });
      await mine(database(), headerOf(1), [transferOf()]);
      const { plans, database: planned } = planAll(database());
      assert.equal((await attemptDue(planned, { now: noon, succeeds: true })).length, 3);
      const tasks = plans.flatMap((plan) =>
        [...plan.matchAll(/Task Count: (\d+)/g)].map(([, count]) => Number(count)),
      );
      // For each of three shards: due rows, successes and the next due time.
      assert.ok(tasks.length >= 9, `${tasks.length} tasks`);
      assert.deepEqual(
        plans.filter((plan) => /Task Count: ([02-9]|\d\d)/.test(plan)),
        [],
      );
      const [left] = await database().query<{ count: number }>(sql`select count(*) as count from queue`);
      assert.equal(left?.count, 0);
    },
  );

  test(
    'a block asks all shards only for watched addresses, records and held rows, and looks for earlier rows where its records are',
    onCitus,
    async () => {
      await watchAddress(database());
      await mine(database(), headerOf(0), []);
      const { plans, database: planned } = planAll(database());
      await mine(planned, headerOf(1), [transferOf()]);
      const wide = plans.filter((plan) => /Task Count: ([2-9]|\d\d)/.test(plan));
      assert.equal(wide.length, 3, wide.join('\n'));
      assert.ok(
        plans.some((plan) => /Task Count: 1\b/.test(plan) && / ended_\d/.test(plan)),
        plans.join('\n'),
      );
    },
  );

  test(
    'the lanes of each worker are given back in a separate transaction, so that one that hangs holds no locks of others',
    onCitus,
    async () => {
      const watcherIds = [1, 2, 3, 4, 5, 6];
      for (const watcherId of watcherIds) await watchAddress(database(), { watcherId });
      await mine(database(), headerOf(1), [transferOf()]);
      const lanes = await leaseDue(database(), { now: noon });
      assert.equal(lanes.length, watcherIds.length);
      const workers = await groupByWorker(database(), lanes);
      assert.equal(workers.length, 2);
      let transactions = 0;
      const counted: Database = {
        ...database(),
        transaction(work) {
          transactions += 1;
          return database().transaction(work);
        },
      };
      assert.equal((await releaseLanes(counted, lanes, noon)).size, 0);
      assert.equal(transactions, workers.length);
      assert.ok((await listLanes(database())).every(({ owner }) => owner === null));
    },
  );

  test(
    'lanes that wait for their shard to be given back hold no visit, which blocks need',
    onCitus,
    async () => {
      await watchAddress(database());
      await mine(database(), headerOf(1), [transferOf()]);
      const lanes = await leaseDue(database(), { now: noon });
      const released = await database().transaction(async (tx) => {
        await tx.query(sql`lock table queue in access exclusive mode`);
        const releasing = releaseLanes(database(), lanes, noon);
        await waitUntil(async () => (await countWaiting(database())) > 0);
        const visits = await tx.query(sql`select watcher_id from watcher_queue for update nowait`);
        assert.equal(visits.length, 1);
        return { releasing };
      });
      assert.equal((await released.releasing).size, 0);
    },
  );

  for (const { what, meanwhile, state } of [
    {
      what: 'cancelled',
      meanwhile: (id: string) => deleteWatchedAddress(database(), 1, id, { now: noon }),
      state: 'processed',
    },
    {
      what: 'orphaned and gets a removal notice',
      meanwhile: () => rollbackTo(database(), { ancestorNumber: 0, expectedTip: headerOf(1), now: noon }),
      state: 'waiting',
    },
  ])
    test(
      `an outcome of a notification that was ${what} in flight touches one shard with each statement, so no other worker holds it up`,
      onCitus,
      async () => {
        const { id } = await watchAddress(database(), { settings: { removed: true } });
        await mine(database(), headerOf(0), []);
        await mine(database(), headerOf(1), [transferOf()]);
        const { plans, database: planned } = planAll(database());
        const attempted = await attemptDue(planned, {
          ...{ now: noon, succeeds: true },
          meanwhile: () => meanwhile(id),
        });
        assert.equal(attempted.length, 1);
        assert.deepEqual(await listStates(database()), [state]);
        assert.deepEqual(
          plans.filter((plan) => /Task Count: ([02-9]|\d\d)/.test(plan)),
          [],
        );
      },
    );
});
