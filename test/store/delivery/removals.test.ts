import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Transfer } from '../../../src/domain/block.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { type Astray, correctAstray } from '../../../src/store/delivery/astray.ts';
import { listDue } from '../../../src/store/delivery/due.ts';
import { releaseLanes } from '../../../src/store/delivery/lanes.ts';
import { redeliverOne } from '../../../src/store/delivery/redelivery.ts';
import { settle } from '../../../src/store/delivery/settle.ts';
import { defaultSettings, replaceSettings } from '../../../src/store/watchers/settings.ts';
import { deleteWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { attemptDue, leaseDue, readDue } from '../../kit/attempts.ts';
import {
  atOnce,
  headerOf,
  later,
  listNotifications,
  listStates,
  mine,
  noon,
  transferOf,
  type Watch,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { emptyDatabase } from '../../kit/empty-tables.ts';
import { rollbackTo } from '../../kit/rollback.ts';

const removed: Watch = { settings: { removed: true } };

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Creates a record and mines block 2 with these payments on top of an empty block 1. */
  async function begin(payments: readonly Transfer[], watch = removed) {
    const record = await watchAddress(database(), watch);
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), payments);
    return record;
  }
  const orphanBlocks = (now = later(10)) =>
    rollbackTo(database(), { ancestorNumber: 1, expectedTip: headerOf(2), now });
  const attempt = async (ms: number, succeeds: boolean) =>
    (await attemptDue(database(), { now: later(ms), succeeds })).map(({ id, revision, retryCount }) => ({
      id,
      revision,
      retryCount,
    }));
  const onlyRow = async () => {
    const [row, ...more] = await listNotifications(database());
    assert.ok(row !== undefined && more.length === 0);
    return row;
  };

  test('a reorg reads each of its notifications a few times, however many removal notices there are', async () => {
    const RECORDS = 100;
    await watchAddress(database(), removed);
    await database().query(sql`
      insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at,
        updated_at, removed)
      select shard_id, gen_random_uuid(), watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at, updated_at, true
      from watched_address, generate_series(2, ${RECORDS}::integer)`);
    await mine(database(), headerOf(1), []);
    await mine(
      database(),
      headerOf(2),
      Array.from({ length: 10 }, () => transferOf()),
      atOnce,
    );
    await database().query(sql`update queue set may_be_seen = true`);
    let reads = 0;
    const counted: Database = {
      ...database(),
      transaction: (work) =>
        database().transaction(async (tx) => {
          const result = await work(tx);
          const [row] = await tx.query<{ reads: number }>(sql`
            select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint as reads from pg_stat_xact_user_tables
            where relname like 'notification%'`);
          reads = row?.reads ?? 0;
          return result;
        }),
    };
    await rollbackTo(counted, { ancestorNumber: 1, expectedTip: headerOf(2), now: later(10) });
    assert.equal(
      (await listNotifications(database())).filter(({ revision }) => revision === 1).length,
      10 * RECORDS,
    );
    // On Citus, the workers read.
    if (database().isDistributed !== true) assert.ok(reads > 0 && reads < 20 * 10 * RECORDS, String(reads));
  });

  test('a delivered transfer of an orphaned block gets a removal notice with its id and a new schedule until a 2xx', async () => {
    await begin([transferOf()]);
    const { id } = await onlyRow();
    assert.deepEqual(await attempt(1, true), [{ id, revision: 0, retryCount: 0 }]);
    await orphanBlocks();
    const orphaned = await onlyRow();
    assert.deepEqual(
      [
        orphaned.id,
        orphaned.state,
        orphaned.revision,
        orphaned.next_attempt_at,
        orphaned.next_retry_at,
        orphaned.processed_at,
      ],
      [id, 'waiting', 1, later(10), null, null],
    );
    assert.deepEqual(await attempt(10, false), [{ id, revision: 1, retryCount: 0 }]);
    assert.deepEqual(await attempt(60_009, true), []);
    assert.deepEqual(await attempt(60_010, false), [{ id, revision: 1, retryCount: 1 }]);
    assert.deepEqual(await attempt(120_010, true), [{ id, revision: 1, retryCount: 2 }]);
    const { state, processed_at } = await onlyRow();
    assert.deepEqual([state, processed_at], ['processed', later(120_010)]);
  });

  test('a removal notice can be redelivered, an orphaned transfer cannot', async () => {
    for (const [watch, revisions] of [
      [removed, [1]],
      [{}, []],
    ] as const) {
      await emptyDatabase(database());
      await begin([transferOf()], watch);
      await attempt(1, true);
      await orphanBlocks();
      await attempt(10, true);
      const { id } = await onlyRow();
      assert.equal(await redeliverOne(database(), 1, id, later(20)), revisions.length > 0);
      assert.deepEqual(
        (await attempt(30, true)).map(({ revision }) => revision),
        revisions,
      );
    }
  });

  test('an attempted transfer gets a removal notice without a 2xx, because its receiver may have seen it', async () => {
    await begin([transferOf()]);
    await attempt(1, false);
    await orphanBlocks();
    assert.deepEqual(
      (await attempt(10, true)).map(({ revision, retryCount }) => [revision, retryCount]),
      [[1, 0]],
    );
  });

  test('a transfer whose retry was due while the reorg waited for its locks gets a removal notice', async () => {
    await begin([transferOf()]);
    await attempt(1, false);
    // The attempt did not reach the receiver, and its retry is due 5 s later.
    await database().query(
      sql`update queue set may_be_seen = false, due_at = ${later(5_000)}, next_retry_at = ${later(5_000)}`,
    );
    await leaseDue(database(), { now: later(5_000) });
    await mine(database(), headerOf(2, 1, 1), [], {
      reorg: { ancestorNumber: 1, readNow: () => later(5_000) },
      now: later(10),
    });
    const { revision, state } = await onlyRow();
    assert.deepEqual([revision, state], [1, 'waiting']);
  });

  test('without the setting, delivered transfers of an orphaned block stay processed', async () => {
    await begin([transferOf()], {});
    await attempt(1, true);
    const before = await onlyRow();
    await orphanBlocks();
    assert.deepEqual(await onlyRow(), before);
  });

  test('a transfer that was never attempted is withdrawn without a notice, and revived when it is mined again', async () => {
    const payment = transferOf();
    await begin([payment]);
    await orphanBlocks();
    assert.deepEqual(await attempt(20, true), []);
    await mine(database(), headerOf(2, 1, 1), [payment]);
    assert.deepEqual(
      (await attempt(30, true)).map(({ revision }) => revision),
      [0],
    );
  });

  for (const arrives of [true, false]) {
    test(`a removal notice follows an attempt that ${arrives ? 'arrives' : 'fails'} after its block was orphaned`, async () => {
      await begin([transferOf()]);
      const end = await startAttempt(database(), arrives);
      await orphanBlocks();
      const notice = await onlyRow();
      assert.deepEqual([notice.state, notice.revision], ['waiting', 1]);
      await end();
      assert.deepEqual(
        (await attempt(20, true)).map(({ revision }) => revision),
        [1],
      );
      assert.deepEqual(await listStates(database()), ['processed']);
    });

    test(`a retry that ${arrives ? 'arrives' : 'fails'} after its block was orphaned does not settle the removal notice`, async () => {
      await begin([transferOf()]);
      await attempt(1, false);
      const end = await startAttempt(database(), arrives, 60_001);
      await orphanBlocks(later(60_002));
      const before = await onlyRow();
      await end();
      assert.deepEqual(await onlyRow(), before);
      assert.equal(before.revision, 1);
    });
  }

  for (const arrives of [true, false]) {
    test(`an attempt that ${arrives ? 'arrives' : 'fails'} after its transaction was mined again does not settle later revisions`, async () => {
      const payment = transferOf();
      await begin([payment]);
      const end = await startAttempt(database(), arrives);
      await orphanBlocks();
      await mine(database(), headerOf(2, 1, 1), [payment], { confirmations: 1 });
      const before = await onlyRow();
      assert.deepEqual([before.state, before.revision], ['held', 2]);
      await end();
      assert.deepEqual(await onlyRow(), before);
      await mine(database(), headerOf(3, 1, 1), [], { now: later(30) });
      assert.deepEqual(
        (await attempt(31, true)).map(({ revision }) => revision),
        [2],
      );
    });
  }

  test('a transfer that is mined again after its removal notice is sent again with its id, and can be removed again', async () => {
    const payment = transferOf();
    await begin([payment]);
    await attempt(1, true);
    await orphanBlocks();
    await attempt(10, true);
    const again = await mine(database(), headerOf(2, 1, 1), [payment], { now: later(20), confirmations: 1 });
    assert.deepEqual(again, {
      outcome: 'committed',
      notificationCount: 0,
      orphanedCount: 0,
      hasDeferred: false,
    });
    const held = await onlyRow();
    assert.deepEqual([held.state, held.revision, held.processed_at], ['held', 2, null]);
    await mine(database(), headerOf(3, 1, 1), [], { now: later(30) });
    assert.deepEqual(
      (await attempt(30, true)).map(({ id, revision }) => [id, revision]),
      [[held.id, 2]],
    );
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: headerOf(3, 1, 1), now: later(40) });
    assert.deepEqual(
      (await attempt(40, true)).map(({ id, revision }) => [id, revision]),
      [[held.id, 3]],
    );
  });

  test('a waiting removal notice turns back into the transfer when that is mined again', async () => {
    const payment = transferOf();
    await begin([payment]);
    await attempt(1, true);
    await orphanBlocks();
    await attempt(10, false);
    await mine(database(), headerOf(2, 1, 1), [payment], { now: later(20) });
    assert.deepEqual(
      (await attempt(20, true)).map(({ revision, retryCount }) => [revision, retryCount]),
      [[2, 0]],
    );
    assert.deepEqual(await attempt(99_000, true), []);
  });

  test('a second, deeper reorg does not send a second removal notice', async () => {
    await begin([transferOf()]);
    await attempt(1, true);
    await orphanBlocks();
    const before = await onlyRow();
    await mine(database(), headerOf(2, 1, 1), []);
    await rollbackTo(database(), { ancestorNumber: 0, expectedTip: headerOf(2, 1, 1), now: later(20) });
    assert.deepEqual(await onlyRow(), before);
  });

  test('a later reorg sends no removal notice for a transfer orphaned before its watched address turned them on', async () => {
    const { watcherId, id } = await begin([transferOf()], {});
    await attempt(1, true);
    await orphanBlocks();
    const settings = { ...defaultSettings, removed: true };
    await replaceSettings(database(), watcherId, id, { settings, now: later(11) });
    await rollbackTo(database(), { ancestorNumber: 0, expectedTip: headerOf(1), now: later(12) });
    const { state, revision } = await onlyRow();
    assert.deepEqual([state, revision], ['processed', 0]);
  });

  test('a removal notice that a worker finds unwanted is kept if its watched address wants it again before it is withdrawn', async () => {
    const { watcherId, id: recordId } = await begin([transferOf()]);
    const put = (wanted: boolean, ms: number) => {
      const settings = { ...defaultSettings, removed: wanted };
      return replaceSettings(database(), watcherId, recordId, { settings, now: later(ms) });
    };
    await attempt(1, true);
    await orphanBlocks();
    await put(false, 11);
    const found: Astray[] = [];
    const lanes = await leaseDue(database(), { now: later(12) });
    const onAstray = (astray: Astray) => void found.push(astray);
    await listDue(database(), lanes, { now: later(12), exclude: [], limit: 1, onAstray });
    const [astray] = found;
    assert.ok(astray !== undefined && found.length === 1);
    await put(true, 13);
    await correctAstray(database(), astray, later(14));
    assert.deepEqual(await listStates(database()), ['waiting']);
    await put(false, 15);
    await correctAstray(database(), astray, later(16));
    assert.deepEqual(await listStates(database()), ['withdrawn']);
  });

  test('in strict order removal notices are sent one at a time, the newest first, before the new branch', async () => {
    const payments = [transferOf({ amount: 1n }), transferOf({ amount: 2n })];
    await begin(payments, { settings: { removed: true, strictOrder: true } });
    await attempt(1, true);
    await attempt(2, true);
    await orphanBlocks();
    await mine(database(), headerOf(2, 1, 1), [transferOf({ amount: 3n })]);
    const tried = [];
    for (const ms of [20, 21, 22, 23])
      for (const { amount, revision } of await attemptDue(database(), { now: later(ms), succeeds: true }))
        tried.push([ms, amount, revision]);
    assert.deepEqual(tried, [
      [20, 2n, 1],
      [21, 1n, 1],
      [22, 3n, 0],
    ]);
  });

  test('in strict order a removal notice does not wait for transfers that its reorg withdrew', async () => {
    const payments = [transferOf({ amount: 1n }), transferOf({ amount: 2n })];
    await begin(payments, { settings: { removed: true, strictOrder: true } });
    await attempt(1, false);
    await orphanBlocks();
    assert.deepEqual(await listStates(database()), ['waiting', 'withdrawn']);
    assert.deepEqual(
      (await attempt(20, true)).map(({ revision }) => revision),
      [1],
    );
  });

  test('a deleted watched address gets no further webhooks, not even removal notices', async () => {
    const record = await begin([transferOf()]);
    await attempt(1, true);
    await deleteWatchedAddress(database(), 1, record.id, { now: noon });
    await orphanBlocks();
    assert.deepEqual(await attempt(20, true), []);
  });
});

/** Begins an attempt of the only due notification. The returned function settles it and gives the lane back. */
async function startAttempt(database: Database, succeeds: boolean, ms = 1) {
  const now = later(ms);
  const [lane] = await leaseDue(database, { now, limit: 1 });
  assert.ok(lane !== undefined);
  const [due] = await readDue(database, lane, now, 1);
  assert.ok(due !== undefined);
  const { id: notificationId, revision, retryCount, redeliveryCount } = due;
  const outcome = succeeds
    ? { outcome: 'success', status: 200, nextRetryAt: undefined }
    : { outcome: 'timeout', status: undefined, nextRetryAt: later(ms + 60_000) };
  const times = {
    startedAt: noon,
    mayHaveArrived: true,
    durationMs: 1,
    settledAt: later(ms + 2),
    response: undefined,
  };
  return async () => {
    await settle(database, [
      { lane, notificationId, revision, retryCount, redeliveryCount, ...outcome, ...times },
    ]);
    await releaseLanes(database, [lane], later(ms + 5));
  };
}
