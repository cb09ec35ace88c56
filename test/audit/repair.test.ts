/**
 * Repairs: damaged data is restored, nothing else changes, and a second run finds no difference.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRepairProgress } from '../../src/audit/repair-plan.ts';
import { Fault } from '../../src/core/fault.ts';
import { toBytes } from '../../src/core/hex.ts';
import { applyRepairs } from '../../src/store/audit/apply-repairs.ts';
import { lockCommits } from '../../src/store/blocks/commit-lock.ts';
import { writeDeferred } from '../../src/store/blocks/write-deferred.ts';
import type { Database } from '../../src/store/db/db.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import { deferralLimits } from '../../src/store/matching/deferred.ts';
import { alice, hashOf, listNotifications, type NotificationRow, watchAddress } from '../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../kit/each-database.ts';
import { BLOCKS, createPaidChain, stored } from '../kit/paid-chain.ts';
import { waitUntil } from '../kit/wait.ts';

onSampledDatabase(import.meta.url, ({ database }) => {
  const { follow, defer, plan, apply, txHashOf } = createPaidChain(database);
  const damage = (fields: Sql, number = 3) =>
    database().query(
      sql`update notification_status set ${fields} where tx_hash = ${toBytes(txHashOf(number))}`,
    );
  const outline = ({ state, block_number, amount, lane_id }: NotificationRow) =>
    `${block_number}: ${amount} ${state} in ${lane_id}`;

  /** Checks that each damage is found once and repaired by the plan, and that a second plan is empty. */
  async function repairs(confirmations = 0): Promise<NotificationRow[]> {
    const made = await plan(confirmations);
    assert.deepEqual([made.repairable.length, made.unrepairable], [1, []]);
    assert.equal((await apply(made, { confirmations })).size, 1);
    const again = await plan(confirmations);
    assert.deepEqual([again.report.outcome, again.repairable], ['equal', []]);
    assert.equal((await apply(again, { confirmations })).size, 0);
    return listNotifications(database());
  }

  const healthy = [1, 2, 3, 4, 5].map((number) => `${number}: ${number} waiting in 1`);

  for (const [name, fields] of [
    ['cancelled beside its record', sql`state = 'cancelled'`],
    ['that waits until the year 9999', sql`next_attempt_at = '9999-12-31'`],
    ['scheduled a day late', sql`retry_count = 2, next_attempt_at = now() + interval '1 day'`],
    ['held for ever', sql`state = 'held', release_number = 1000000000000`],
    ['held without a reason', sql`state = 'held'`],
    ['in a queue that does not exist', sql`lane_id = 4242`],
    ['that names the block after its own', sql`block_number = 4`],
    ['whose removal is announced', sql`revision = 1, state = 'processed'`],
    ['that was withdrawn', sql`state = 'withdrawn'`],
  ] as const)
    test(`a notification ${name} is delivered with the content on the chain`, async () => {
      await follow();
      await damage(fields);
      const rows = await repairs();
      assert.deepEqual(rows.map(outline), healthy);
      assert.deepEqual(
        rows.map(({ revision }) => revision % 2),
        [0, 0, 0, 0, 0],
      );
    });

  test('missing notifications of both sides of a transfer are created once each', async () => {
    const sender = await watchAddress(database(), { address: alice });
    await follow();
    await database().query(sql`delete from notification_status where block_number = 3`);
    const made = await plan();
    assert.equal((await apply(made)).size, 2);
    const rows = await listNotifications(database());
    const created = rows.filter((row) => row.block_number === 3).map((row) => row.watched_address_id);
    assert.equal(created.length, 2);
    assert.equal(created.filter((id) => id === sender.id).length, 1);
    assert.equal((await plan()).report.outcome, 'equal');
  });

  test('nothing is created for a record that has another address by then', async () => {
    await follow();
    await database().query(sql`delete from notification_status where block_number = 3`);
    const made = await plan();
    await database().query(sql`update watched_address set address = ${toBytes(alice)}`);
    assert.equal((await apply(made)).size, 0);
  });

  test('a missing notification is created, and its queue becomes due', async () => {
    await follow();
    await database().query(sql`delete from notification_status where block_number = 3`);
    await database().query(sql`update lane set next_due = null`);
    await database().query(sql`update notification_status set state = 'processed'`);
    const rows = await repairs();
    assert.deepEqual(rows.at(-1) && outline(rows.at(-1) as NotificationRow), healthy[2]);
    const [lane] = await database().query<{ next_due: Date | null }>(sql`select next_due from lane`);
    assert.notEqual(lane?.next_due, null);
  });

  test('a notification that was deferred after the comparison is not created, and is written once', async () => {
    await follow();
    await database().query(sql`delete from notification_status where block_number = 4`);
    const made = await plan();
    assert.equal(made.repairable.length, 1);
    await defer(4);
    assert.equal((await apply(made)).size, 0);
    await writeDeferred(database(), {
      ...{ confirmations: 0, now: stored, sortWatchers: (ids) => ids, limits: deferralLimits },
    });
    const rows = await listNotifications(database());
    assert.deepEqual(
      rows.map(({ block_number }) => block_number).sort((one, other) => one - other),
      [1, 2, 3, 4, 5],
    );
    assert.equal((await plan()).report.outcome, 'equal');
  });

  test('blocks whose notifications are deferred during the comparison are not compared', async () => {
    await follow();
    const { report, repairable } = await createPaidChain(database, { onRead: () => defer(4) }).plan();
    assert.deepEqual(repairable, []);
    assert.deepEqual([report.blocks, report.notifications, report.undecided.after_tip], [3, 3, 2]);
  });

  test('repaired notifications still wait for their confirmations', async () => {
    await follow({ confirmations: 4 }, 1);
    await database().query(sql`delete from notification_status where block_number in (1, 5)`);
    await damage(sql`state = 'cancelled'`);
    const made = await plan(1);
    assert.equal(made.repairable.length, 3);
    assert.equal((await apply(made, { confirmations: 1 })).size, 3);
    const rows = await database().query<{
      block_number: number;
      state: string;
      release_number: number | null;
    }>(sql`select block_number, state, release_number from notification_status order by block_number`);
    assert.deepEqual(
      rows.map(({ block_number, state, release_number }) => [block_number, state, release_number]),
      [
        [1, 'waiting', null],
        [2, 'held', 6],
        [3, 'held', 7],
        [4, 'held', 8],
        [5, 'held', 9],
      ],
    );
    assert.equal((await plan(1)).report.outcome, 'equal');
  });

  test('in strict order, repaired notifications are sent one at a time', async () => {
    await follow({ strictOrder: true });
    await damage(sql`state = 'cancelled'`, 1);
    await damage(sql`state = 'held', release_number = 1000000000000`, 2);
    const made = await plan();
    assert.deepEqual(made.unrepairable, []);
    await apply(made);
    assert.deepEqual((await plan()).report.outcome, 'equal');
    const rows = await listNotifications(database());
    assert.deepEqual(
      rows.map(({ state }) => state),
      ['waiting', 'held', 'held', 'held', 'held'],
    );
  });

  test('in strict order, missing notifications get their places among the transfers of their block back', async () => {
    const chain = createPaidChain(database, { equalCalls: 3 });
    await chain.follow({ strictOrder: true });
    const list = () =>
      database().query(sql`
        select block_number, kind, ordinal, sequence from notification_status order by block_number, sequence, id`);
    const before = await list();
    await database().query(
      sql`delete from notification_status where block_number = 3 and kind = 'internal' and ordinal > 0`,
    );
    assert.equal((await chain.apply(await chain.plan())).size, 2);
    assert.deepEqual(await list(), before);
  });

  test('content that differs from the chain is no longer sent, and the right content is sent under a new id', async () => {
    await follow();
    await damage(sql`amount = 17`, 2);
    await damage(sql`amount = 17, state = 'processed', processed_at = ${stored}`, 3);
    const made = await plan();
    assert.deepEqual(made.unrepairable, []);
    assert.equal((await apply(made, { mayCreditTwice: true })).size, 2);
    const rows = await listNotifications(database());
    assert.deepEqual(rows.map(outline), [
      ...[healthy[0], '2: 17 withdrawn in 1', '3: 17 processed in 1', healthy[3], healthy[4]],
      ...[healthy[1], healthy[2]],
    ]);
    assert.deepEqual((await plan()).repairable, []);
  });

  test('a notification of a transfer that never happened is withdrawn; a receiver that may have seen it gets a removal notice with removed', async () => {
    for (const removed of [false, true]) await watchAddress(database(), { settings: { removed } });
    await follow();
    await damage(sql`tx_hash = ${toBytes(hashOf(5))}, may_be_seen = true`);
    await database().query(sql`
      insert into notification_status (shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, ordinal, sender,
        receiver, amount, block_number, state, next_attempt_at, created_at)
      select shard_id, lane_id, watched_address_id, watcher_id, kind, ${toBytes(txHashOf(3))}, ordinal, sender,
        receiver, amount, block_number, 'processed', next_attempt_at, created_at
      from notification_status where tx_hash = ${toBytes(hashOf(5))}`);
    const made = await plan();
    assert.deepEqual([made.repairable.length, made.unrepairable], [3, []]);
    assert.equal((await apply(made)).size, 3);
    const rows = await database().query<{ removed: boolean; state: string; revision: number }>(sql`
      select w.removed, n.state, n.revision from notification_status n
      join watched_address w on w.id = n.watched_address_id
      where n.tx_hash = ${toBytes(hashOf(5))} order by w.removed, n.id`);
    assert.deepEqual(
      rows.map(({ removed, state, revision }) => [removed, state, revision]),
      [
        [false, 'withdrawn', 0],
        [false, 'withdrawn', 0],
        [true, 'waiting', 1],
      ],
    );
  });

  test('a plan skips notifications that changed after it was made', async () => {
    await follow();
    await damage(sql`state = 'cancelled'`, 2);
    await damage(sql`state = 'cancelled'`, 3);
    await damage(sql`state = 'cancelled'`, 4);
    const made = await plan();
    assert.equal(made.repairable.length, 3);
    // A worker settles one, a follower replaces the block of another.
    await damage(sql`state = 'processed'`, 2);
    await database().query(sql`update block set hash = ${toBytes(hashOf(1))} where number = 3`);
    const repaired = await apply(made);
    assert.deepEqual(
      [...repaired].map(({ block }) => block),
      [4],
    );
    const rows = await listNotifications(database());
    assert.deepEqual(
      rows.map(({ state }) => state),
      ['waiting', 'processed', 'cancelled', 'waiting', 'waiting'],
    );
  });

  test('interrupted between two transactions it stops, and the next run does the rest', async () => {
    await follow();
    await damage(sql`state = 'cancelled'`);
    const made = await plan();
    const repaired = await apply(made, { until: AbortSignal.abort() });
    assert.equal(repaired.size, 0);
    assert.equal((await repairs()).length, BLOCKS);
  });

  test('after a failure the progress says what is repaired, and what may be because the commit had no answer', async () => {
    const chain = createPaidChain(database, { equalCalls: 29 });
    await chain.follow();
    await database().query(sql`update notification_status set state = 'cancelled'`);
    const made = await chain.plan();
    assert.equal(made.repairable.length, 30 * BLOCKS);
    let commits = 0;
    const on: Database = {
      ...database(),
      async transaction(work) {
        const result = await database().transaction(work);
        commits += 1;
        if (commits === 2) throw new Fault('unavailable', 'the answer was lost');
        return result;
      },
    };
    const progress = createRepairProgress();
    await assert.rejects(chain.apply(made, { on, progress }), /the answer was lost/);
    const { repaired, triedCount, unknownCount } = progress;
    assert.deepEqual([repaired.size, triedCount, unknownCount], [100, 100, 50]);
    assert.deepEqual((await chain.plan()).repairable, []);
  });
});

onPostgres(({ database }) => {
  test('a repair judges what may have been sent by the time at which it has its locks, not before it waits for them', async () => {
    const { follow, plan, txHashOf } = createPaidChain(database);
    await follow();
    await database().query(
      sql`update notification_status set amount = 17 where tx_hash = ${toBytes(txHashOf(3))}`,
    );
    const repairs = (await plan()).repairable.flatMap((one) => one.repairs ?? []);
    const free = Promise.withResolvers<void>();
    const commit = database().transaction(async (tx) => {
      await lockCommits(tx);
      await free.promise;
    });
    let isFree = false;
    const readAt: boolean[] = [];
    const applying = applyRepairs(database(), repairs, {
      confirmations: 0,
      mayCreditTwice: false,
      async readNow() {
        readAt.push(isFree);
        return stored;
      },
    });
    const isWaiting = async () =>
      (
        await database().query(sql`
          select from pg_locks where locktype = 'advisory' and not granted
            and database = (select oid from pg_database where datname = current_database())`)
      ).length > 0;
    await waitUntil(isWaiting, { describe: 'the repair to wait for the commit' });
    isFree = true;
    free.resolve();
    await commit;
    assert.equal((await applying).size, repairs.length);
    assert.ok(readAt.length > 0 && readAt.every(Boolean));
  });
});
