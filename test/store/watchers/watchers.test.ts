import assert from 'node:assert/strict';
import { test } from 'node:test';
import { issueKey } from '../../../src/app/issue-keys.ts';
import { deriveKeyRing } from '../../../src/domain/key-ring.ts';
import { SHARD_STEP } from '../../../src/domain/shard.ts';
import type { Database, Tx } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { findForgottenLanes } from '../../../src/store/delivery/lane-repair.ts';
import { leaseLanes } from '../../../src/store/delivery/lanes.ts';
import { queueStatistics } from '../../../src/store/delivery/pending.ts';
import { findNextDue, listSuspended } from '../../../src/store/delivery/visits.ts';
import { WORKER_LOCK_SPACE } from '../../../src/store/delivery/workers.ts';
import { doOnce } from '../../../src/store/watchers/idempotency.ts';
import { listSigningSecrets, rotateSigningSecret } from '../../../src/store/watchers/signing-secrets.ts';
import { deleteWatchedAddress, insertWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { beginRemoval, removeBatch } from '../../../src/store/watchers/watcher-removal.ts';
import {
  countBelongings,
  findWatcher,
  resumeWatcher,
  suspendWatcher,
} from '../../../src/store/watchers/watchers.ts';
import { attemptDue, leaseDue } from '../../kit/attempts.ts';
import {
  addWatchers,
  bob,
  headerOf,
  later,
  listNotifications,
  listStates,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { countWaiting } from '../../kit/in-line.ts';
import { insertNotifications } from '../../kit/many-notifications.ts';
import { waitUntil } from '../../kit/wait.ts';

const keyRing = deriveKeyRing(Buffer.alloc(32, 7));
const record = {
  ...{ id: '5f0c2b8e-6d0a-4f6e-9a55-0b8f6a1f9c11', address: bob, watchCoin: true, watchToken: true },
  webhookUrl: 'https://one.example/hook',
};
const at = { origin: 'https://one.example:443', now: noon };

/** All tables of the database that have a row of the watcher. */
async function listTablesWith(database: Database, watcherId: number): Promise<string[]> {
  const columns = await database.query<{ table: string; column: string }>(sql`
    select table_name as table, column_name as column from information_schema.columns
    where table_schema = 'public' and column_name in ('watcher_id', 'shard_id') order by 1, 2`);
  assert.ok(columns.length > 10);
  const found: string[] = [];
  for (const { table, column } of columns) {
    const text = `select from ${table} where ${column} & ${SHARD_STEP - 1} = $1 limit 1`;
    if ((await database.query({ text, values: [watcherId] })).length > 0) found.push(`${table}.${column}`);
  }
  return found;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a suspended watcher is not leased, and its notifications are stored and sent in order when it is resumed', async () => {
    await watchAddress(database());
    await watchAddress(database(), { watcherId: 2, url: 'https://two.example/' });
    await mine(database(), headerOf(1), [transferOf()]);
    assert.ok(await suspendWatcher(database(), 1, noon));
    assert.deepEqual(await listSuspended(database(), [1, 2, 3]), [1]);
    await mine(database(), headerOf(2), [transferOf(), transferOf()]);
    const attempted = await attemptDue(database(), { now: later(1), succeeds: true });
    assert.deepEqual(
      attempted.map(({ watcherId }) => watcherId),
      [2, 2, 2],
    );
    assert.equal(await findNextDue(database()), undefined);
    const statistics = await queueStatistics(database(), later(1));
    assert.deepEqual([statistics.waiting, statistics.due, statistics.oldestDueAt], [3, 0, undefined]);
    const page = { after: 0, limit: 100 };
    assert.deepEqual(
      (await findForgottenLanes(database(), { now: later(120_000), stepsMs: 0, page })).laneIds,
      [],
    );

    assert.equal(await resumeWatcher(database(), 1), 'active');
    assert.deepEqual(await listSuspended(database(), [1, 2, 3]), []);
    const late = await attemptDue(database(), { now: later(120_000), succeeds: true });
    assert.deepEqual(
      late.map(({ watcherId, blockNumber, retryCount }) => [watcherId, blockNumber, retryCount]),
      [
        [1, 1, 0],
        [1, 2, 0],
        [1, 2, 0],
      ],
    );
    assert.deepEqual(new Set(await listStates(database())), new Set(['processed']));
  });

  test('a retry that is due while its watcher is suspended waits, and its retry count stays', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: false });
    await suspendWatcher(database(), 1, noon);
    assert.deepEqual(await attemptDue(database(), { now: later(120_000), succeeds: false }), []);
    assert.equal((await listNotifications(database()))[0]?.retry_count, 1);
    await resumeWatcher(database(), 1);
    assert.equal((await attemptDue(database(), { now: later(120_000), succeeds: true })).length, 1);
  });

  test('a watcher without watched addresses can be suspended, and its first lane is not leased', async () => {
    await addWatchers(database(), 1);
    await suspendWatcher(database(), 1, noon);
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    assert.deepEqual(await leaseDue(database(), { now: noon }), []);
    await resumeWatcher(database(), 1);
    assert.equal((await leaseDue(database(), { now: noon })).length, 1);
  });

  test('suspending twice keeps the first time, and an unknown watcher cannot be suspended', async () => {
    await addWatchers(database(), 1);
    await suspendWatcher(database(), 1, noon);
    await suspendWatcher(database(), 1, later(60));
    assert.deepEqual((await findWatcher(database(), 1, noon))?.suspendedAt, noon);
    assert.equal(await suspendWatcher(database(), 2, noon), false);
    assert.equal(await resumeWatcher(database(), 2), 'none');
    assert.deepEqual(await database().query(sql`select watcher_id from watcher_queue`), [{ watcher_id: 1 }]);
  });

  test('a removal works in bounded batches, continues with the next call, and leaves other watchers alone', async () => {
    const records = [await watchAddress(database()), await watchAddress(database(), { watcherId: 2 })];
    for (const one of records) await insertNotifications(database(), { records: [one], count: 2_500 });
    await database().query(sql`
      insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
      select shard_id, id, created_at, 1, 'timeout' from notification_status`);
    await database().query(sql`
      insert into receiver_failure (shard_id, origin, lane_id, watcher_id, since, attempts, last_attempt_at)
      select shard_id, origin, id, watcher_id, ${noon}, 1, ${noon} from lane`);
    assert.ok(await beginRemoval(database(), 1, noon));
    assert.equal(await resumeWatcher(database(), 1), 'deleting');
    assert.equal(await removeBatch(database(), 1), 'uncounted');
    assert.equal((await countBelongings(database(), 1)).records, 1);
    await database().query(sql`update statistics_state set counted_id = 1e9`);
    const left: number[][] = [];
    while ((await removeBatch(database(), 1)) === 'more') {
      const { records, notifications, attempts } = await countBelongings(database(), 1);
      left.push([records, notifications, attempts]);
      assert.ok(
        await beginRemoval(database(), 1, later(left.length)),
        'the next call begins the removal again',
      );
    }
    // The first three batches delete the queue.
    assert.deepEqual(left, [
      [0, 2_500, 2_500],
      [0, 2_500, 2_500],
      [0, 2_500, 2_500],
      [0, 2_500, 2_500],
      [0, 1_500, 2_500],
      [0, 500, 2_500],
      [0, 0, 2_500],
      [0, 0, 1_500],
      [0, 0, 500],
      [0, 0, 0],
      [0, 0, 0],
      [0, 0, 0],
    ]);
    assert.equal(await removeBatch(database(), 1), 'gone');
    assert.deepEqual(await listTablesWith(database(), 1), []);
    assert.equal(await beginRemoval(database(), 1, noon), false);
    const other = await countBelongings(database(), 2);
    assert.deepEqual([other.records, other.notifications, other.attempts], [1, 2_500, 2_500]);
  });

  test('a removal deletes deferred matches in bounded batches, and transfers that no other watcher needs', async () => {
    for (const watcherId of [1, 2]) {
      await watchAddress(database(), { watcherId });
      await database().query(sql`
        insert into deferred_match (id, watcher_id, block_number, address, set_id, records, records_left, notifications_left, has_earlier)
        select nextval('deferred_id_seq'), ${watcherId}, 1, ${Buffer.alloc(20)}, set_id, 1, 1, 1, false
        from generate_series(${1_000 * watcherId}::bigint, ${1_000 * watcherId + 1_199}::bigint) as set_id`);
      await database().query(sql`
        insert into deferred_records (group_id, part, watcher_id, block_number, record_ids)
        select ${watcherId}, part, ${watcherId}, 1, '{}' from generate_series(1, 60) as part`);
    }
    await database().query(sql`
      insert into deferred_transfers (set_id, part, block_number, matches, match_count)
      select set_id, 0, 1, '[]', 1 from generate_series(1000, 3199) as set_id`);
    await beginRemoval(database(), 1, noon);
    const left: number[][] = [];
    const step = async () => {
      const outcome = await removeBatch(database(), 1);
      const [row] = await database().query<{ [name: string]: number }>(sql`
        select count(*) filter (where watcher_id = 1) as own, count(*) filter (where watcher_id = 2) as others,
          (select count(*) from deferred_records where watcher_id = 1) as parts,
          (select count(*) from deferred_records where watcher_id = 2) as parts_of_others,
          (select count(*) from deferred_transfers) as sets
        from deferred_match`);
      left.push(Object.values(row ?? {}));
      return outcome;
    };
    while ((await step()) !== 'gone');
    assert.deepEqual(left.slice(0, 2), [
      [200, 1_200, 60, 60, 1_200],
      [0, 1_200, 0, 60, 1_200],
    ]);
    assert.deepEqual(left.at(-1), [0, 1_200, 0, 60, 1_200]);
  });

  test('a removal deletes what is stored of each receiver in bounded batches', async () => {
    await addWatchers(database(), 1, 2);
    for (const watcherId of [1, 2]) {
      await database().query(sql`
        insert into receiver_failure (shard_id, origin, lane_id, watcher_id, since, attempts, last_attempt_at)
        select ${watcherId}, 'https://' || n, n, ${watcherId}, ${noon}, 1, ${noon} from generate_series(1, 2500) as n`);
      await database().query(sql`
        insert into origin_usage (watcher_id, origin, records)
        select ${watcherId}, 'https://' || n, 1 from generate_series(1, 2500) as n`);
    }
    await beginRemoval(database(), 1, noon);
    const countOf = async (watcherId: number) =>
      database().query<{ failures: number; origins: number }>(sql`
        select (select count(*) from receiver_failure where watcher_id = ${watcherId}) as failures,
          (select count(*) from origin_usage where watcher_id = ${watcherId}) as origins`);
    const left: number[][] = [];
    while ((await removeBatch(database(), 1)) === 'more')
      left.push((await countOf(1)).flatMap(({ failures, origins }) => [failures, origins]));
    assert.deepEqual(left, [
      [1_500, 2_500],
      [500, 2_500],
      [0, 2_500],
      [0, 1_500],
      [0, 500],
      [0, 0],
    ]);
    assert.deepEqual(await countOf(2), [{ failures: 2_500, origins: 2_500 }]);
  });

  test('while a watcher is being deleted, no key is issued and nothing is created for it, and then its name is free', async () => {
    const store = { database: database(), keyRing };
    const { watcherId } = await issueKey(store, 'acme', noon);
    await beginRemoval(database(), watcherId, noon);
    await assert.rejects(issueKey(store, 'acme', noon), { code: 'conflict', message: /is being deleted/ });
    const create = () => database().transaction((tx) => insertWatchedAddress(tx, watcherId, record, at));
    await assert.rejects(create(), { code: 'unauthorized' });
    while ((await removeBatch(database(), watcherId)) !== 'gone');
    await assert.rejects(create(), { code: 'unauthorized' });
    assert.notEqual((await issueKey(store, 'acme', noon)).watcherId, watcherId);
  });

  test('a request authenticated before its watcher was deleted leaves no secret, stored answer or usage behind', async () => {
    const store = { database: database(), keyRing };
    const { watcherId } = await issueKey(store, 'acme', noon);
    await listSigningSecrets(store, watcherId, noon);
    const rotate = () => rotateSigningSecret(store, watcherId, { now: noon, overlapMs: 0 });
    const once = { watcherId, key: 'one', part: 0, digest: Buffer.alloc(32), now: noon };
    const answer = () => doOnce(database(), once, async () => 'done');
    const remove = () =>
      deleteWatchedAddress(database(), watcherId, record.id, { now: noon, limits: { records: 1 } });
    const refuseAll = async () => {
      for (const ask of [rotate, answer, remove]) await assert.rejects(ask(), { code: 'unauthorized' });
    };
    await beginRemoval(database(), watcherId, noon);
    await refuseAll();
    while ((await removeBatch(database(), watcherId)) !== 'gone');
    await refuseAll();
    assert.deepEqual(await listSigningSecrets(store, watcherId, noon), []);
    assert.deepEqual(await listTablesWith(database(), watcherId), []);
  });

  test('blocks do not wait while the end of a removal looks for attempts that are not added up', async () => {
    await watchAddress(database());
    await beginRemoval(database(), 1, noon);
    const asked: string[] = [];
    const listing: Database = {
      ...database(),
      transaction: (work) =>
        database().transaction((tx) => {
          asked.length = 0;
          const query: Tx['query'] = (statement) => {
            asked.push(statement.text);
            return tx.query(statement);
          };
          return work({ ...tx, query });
        }),
    };
    while ((await removeBatch(listing, 1)) !== 'gone');
    const look = asked.findIndex((text) => text.includes('counted_id'));
    const lock = asked.findIndex((text) => text.includes('pg_advisory_xact_lock('));
    assert.ok(look !== -1 && look < lock, asked.join('\n'));
  });

  test('nothing is deleted while a running worker has attempts under way', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    const session = await database().session();
    assert.ok(await session.tryLock(WORKER_LOCK_SPACE, 7));
    const { leased } = await leaseLanes(database(), { owner: 7, now: noon, leaseUntil: later(30) });
    assert.equal(leased.length, 1);
    await beginRemoval(database(), 1, noon);
    assert.equal(await removeBatch(database(), 1), 'sending');
    assert.equal((await countBelongings(database(), 1)).records, 1);
    await session.close();
    if (database().kind === 'embedded') await database().query(sql`select pg_advisory_unlock_all()`);
    await waitUntil(async () => (await removeBatch(database(), 1)) === 'gone', { describe: 'the removal' });
  });
});

onPostgres(({ database, place }) => {
  test('rows that a request is creating when the removal begins are deleted too', async () => {
    await addWatchers(database(), 1);
    const other = await place().open();
    const created = Promise.withResolvers<void>();
    const committing = Promise.withResolvers<void>();
    const request = other.transaction(async (tx) => {
      await insertWatchedAddress(tx, 1, record, at);
      created.resolve();
      await committing.promise;
    });
    await created.promise;
    await beginRemoval(database(), 1, noon);
    const removal = (async () => {
      while ((await removeBatch(database(), 1)) !== 'gone');
    })();
    const isWaiting = async () => (await countWaiting(other)) > 0;
    await waitUntil(isWaiting, { describe: 'the removal to wait for the request' });
    committing.resolve();
    await Promise.all([request, removal]);
    assert.deepEqual(
      await database().query(sql`select id from watched_address union all select null from lane`),
      [],
    );
    await other.close();
  });
});
