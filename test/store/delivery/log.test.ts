import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { statusOf, storedStatuses } from '../../../src/domain/delivery-status.ts';
import type { Database, Db } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { countMatches, EXAMINED_MAX, findLogged, listLog } from '../../../src/store/delivery/log.ts';
import type { LogFilter } from '../../../src/store/delivery/log-filter.ts';
import { listScopedLog, type Scope } from '../../../src/store/delivery/log-of-all.ts';
import { countOrphaned } from '../../../src/store/delivery/orphaned.ts';
import { recordStatistics } from '../../../src/store/delivery/record-statistics.ts';
import { attemptDue } from '../../kit/attempts.ts';
import {
  alice,
  bob,
  carol,
  coin,
  hashOf,
  headerOf,
  later,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { slicesOf } from '../../kit/database.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { countRead, insertNotifications, planTest, withPlans } from '../../kit/many-notifications.ts';

const WATCHER = 1;

const readAll = (database: Database, filter: LogFilter, limit: number) =>
  readAllOf(WATCHER, database, filter, limit);

/** Reads all pages: the ids, and the number of pages. */
async function readAllOf(scope: Scope, database: Database, filter: LogFilter, limit: number) {
  const ids: number[] = [];
  let after: number | undefined;
  for (let pages = 1; ; pages += 1) {
    const page = await listScopedLog(database, scope, filter, { order: 'newest first', after, limit });
    ids.push(...page.notifications.map(({ id }) => id));
    if (page.next === undefined) return { ids, pages };
    after = page.next;
  }
}

onSampledDatabase(import.meta.url, ({ database, kind }) => {
  test('a filter by status finds exactly the notifications that have it', async () => {
    const record = await watchAddress(database());
    await insertNotifications(database(), { records: [record], count: 24, state: 'waiting' });
    await database().query(sql`insert into reorg (happened_at, ancestor_number) values (${noon}, 1)`);
    const states: [state: string, retryCount: number, reorgId: number | null, revision: number][] = [
      ...[0, 1, 3, 4, 99].map((count): [string, number, null, number] => ['waiting', count, null, 0]),
      ['held', 0, null, 0],
      ['processed', 0, null, 0],
      ['processed', 5, 1, 0],
      ['processed', 0, 1, 1],
      ['withdrawn', 0, 1, 0],
      ['cancelled', 2, null, 0],
      ['waiting', 0, 1, 1],
    ];
    for (const [index, [state, retryCount, reorgId, revision]] of states.entries())
      await database().query(sql`
        update notification_status set state = ${state}, retry_count = ${retryCount}, reorg_id = ${reorgId}, revision = ${revision}
        where id = ${index + 1}`);
    const page = { order: 'newest first', after: undefined, limit: 100 } as const;
    const { notifications } = await listLog(database(), WATCHER, {}, page);
    assert.equal(new Set(notifications.map(({ state }) => state)).size, 5);
    for (const status of storedStatuses) {
      const expected = notifications.filter(
        (one) => statusOf({ ...one, failures: one.retryCount }) === status,
      );
      assert.ok(expected.length > 0, status);
      const found = await listLog(database(), WATCHER, { status }, page);
      assert.deepEqual(found.notifications, expected, status);
      const count = { count: expected.length, isComplete: true };
      assert.deepEqual(await countMatches(database(), WATCHER, { status }), count);
    }
  });

  test('a filter by direction looks from the watched address', async () => {
    await watchAddress(database(), { address: bob });
    const [incoming, outgoing, own] = [
      transferOf({ receiver: bob, sender: alice }),
      transferOf({ receiver: alice, sender: bob }),
      transferOf({ receiver: bob, sender: bob }),
    ];
    await mine(database(), headerOf(7), [incoming, outgoing, own]);
    const page = { order: 'oldest first', after: undefined, limit: 100 } as const;
    const hashes = async (direction: 'in' | 'out') =>
      (await listLog(database(), WATCHER, { direction }, page)).notifications.map(({ hash }) => hash);
    assert.deepEqual(await hashes('in'), [incoming.txHash, own.txHash]);
    assert.deepEqual(await hashes('out'), [outgoing.txHash, own.txHash]);
  });

  test('the log shows the state of a notification, with amounts exact to the wei', async () => {
    const record = await watchAddress(database());
    const token = transferOf({ kind: 'token', token: coin, amount: 2n ** 256n - 1n, ordinal: 3 });
    await mine(database(), headerOf(7), [token]);
    const { notifications, next } = await listLog(
      database(),
      WATCHER,
      {},
      { order: 'newest first', after: undefined, limit: 10 },
    );
    assert.equal(next, undefined);
    const [logged] = notifications;
    assert.deepEqual(notifications, [
      {
        id: logged?.id,
        watchedAddressId: record.id,
        watchedAddress: record.address,
        hash: token.txHash,
        type: 'TOKEN_TRANSFER',
        sender: alice,
        receiver: bob,
        amount: 2n ** 256n - 1n,
        token: coin,
        blockNumber: 7,
        state: 'waiting',
        revision: 0,
        orphaned: undefined,
        replaces: undefined,
        replacedBy: undefined,
        retryCount: 0,
        redeliveryCount: 0,
        nextRetryAt: undefined,
        createdAt: noon,
        processedAt: undefined,
        isOrphanedTransfer: false,
        laneId: 1,
        origin: 'https://one.example:443',
        watcherId: WATCHER,
        webhookUrl: 'https://one.example/hook',
        confirmations: 0,
        recordConfirmations: undefined,
        releaseNumber: undefined,
        lastAttempt: undefined,
      },
    ]);
    const { notification } = (await findLogged(database(), WATCHER, logged?.id ?? 0)) ?? {};
    assert.deepEqual(notification, logged);
    assert.equal(await findLogged(database(), 2, logged?.id ?? 0), undefined);
  });

  test('each filter returns the notifications that match it, and several return those that match all', async () => {
    const first = await watchAddress(database());
    const second = await watchAddress(database(), { address: carol });
    await watchAddress(database(), { watcherId: 2 });
    const [a, b, c] = [
      transferOf(),
      transferOf({ kind: 'token', token: coin }),
      transferOf({ receiver: carol, kind: 'internal' }),
    ];
    await mine(database(), headerOf(1), [a, b], { now: noon });
    await mine(database(), headerOf(2), [c], { now: later(5) });
    await mine(database(), headerOf(3), [transferOf()], { now: later(9), confirmations: 1 });
    const all = (await readAll(database(), {}, 10)).ids;
    assert.equal(all.length, 4);
    const [heldId, cId, bId, aId] = all;
    const cases: [LogFilter, (number | undefined)[]][] = [
      [{ state: 'held' }, [heldId]],
      [{ state: 'waiting' }, [cId, bId, aId]],
      [{ state: 'processed' }, []],
      [{ type: 'TOKEN_TRANSFER' }, [bId]],
      [{ type: 'COIN_TRANSFER' }, [heldId, cId, aId]],
      [{ hash: a.txHash }, [aId]],
      [{ hash: hashOf(1) }, []],
      [{ recordIds: [first.id] }, [heldId, bId, aId]],
      [{ recordIds: [second.id, first.id] }, all],
      [{ recordIds: [] }, []],
      [{ from: later(5) }, [heldId, cId]],
      [{ until: later(5) }, [bId, aId]],
      [{ from: later(5), until: later(9) }, [cId]],
      [{ fromBlock: 2 }, [heldId, cId]],
      [{ toBlock: 2 }, [cId, bId, aId]],
      [{ fromBlock: 1, toBlock: 1, type: 'COIN_TRANSFER', recordIds: [first.id], state: 'waiting' }, [aId]],
      [{ recordIds: [second.id], hash: a.txHash }, []],
    ];
    for (const [filter, ids] of cases)
      assert.deepEqual((await readAll(database(), filter, 10)).ids, ids, JSON.stringify(filter));
  });

  test('each page continues where the previous one ended, even if notifications are added meanwhile', async () => {
    const record = await watchAddress(database());
    await insertNotifications(database(), { records: [record], count: 9 });
    for (const filter of [{}, { recordIds: [record.id] }]) {
      const before = (await readAll(database(), filter, 100)).ids;
      const page = { order: 'newest first', limit: 4 } as const;
      const first = await listLog(database(), WATCHER, filter, { ...page, after: undefined });
      await insertNotifications(database(), { records: [record], count: 5 });
      const second = await listLog(database(), WATCHER, filter, { ...page, after: first.next });
      const third = await listLog(database(), WATCHER, filter, { ...page, after: second.next });
      const read = [first, second, third].flatMap(({ notifications }) => notifications.map(({ id }) => id));
      assert.deepEqual(read, before.slice(0, 12));
    }
  });

  test('a rare kind is found through pages with cursors, each of which examines a bounded number of rows', async () => {
    const record = await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf({ kind: 'token', token: coin })]);
    await insertNotifications(database(), { records: [record], count: 2 * EXAMINED_MAX });
    for (const filter of [{}, { recordIds: [record.id] }]) {
      const { ids, pages } = await readAll(database(), { ...filter, type: 'TOKEN_TRANSFER' }, 10);
      assert.equal(ids.length, 1);
      // All of them are in one slice, and each slice examines an equal part of a page.
      const examined = 'recordIds' in filter ? EXAMINED_MAX : Math.ceil(EXAMINED_MAX / slicesOf[kind]);
      assert.equal(pages, Math.ceil((2 * EXAMINED_MAX + 1) / examined));
      if (!('recordIds' in filter)) continue;
      const ofAll = await readAllOf(undefined, database(), { ...filter, type: 'TOKEN_TRANSFER' }, 10);
      assert.deepEqual(ofAll, { ids, pages });
    }
  });

  test('the statistics of a watched address count its states and show its oldest due time', async () => {
    const record = await watchAddress(database());
    const other = await watchAddress(database());
    await insertNotifications(database(), { records: [record, other], count: 14 });
    const set = (position: number, change: ReturnType<typeof sql>) =>
      database().query(sql`
        update notification_status set ${change} where id = (
          select id from notification_status where watched_address_id = ${record.id} order by id offset ${position} limit 1)`);
    await set(0, sql`state = 'held'`);
    await set(1, sql`state = 'waiting', next_attempt_at = ${later(7)}, retry_count = 1`);
    await set(2, sql`state = 'waiting', next_attempt_at = ${later(5)}, retry_count = 2`);
    await set(3, sql`state = 'waiting', next_attempt_at = ${later(99)}`);
    await set(4, sql`state = 'processed', processed_at = ${later(3)}`);
    await set(5, sql`state = 'withdrawn'`);
    await set(6, sql`state = 'cancelled'`);
    await database().query(sql`
      insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
      select shard_id, id, ${later(2)}::timestamptz + retry_count * interval '1 ms', 1, 'timeout'
      from notification_status where watched_address_id = ${record.id} and retry_count > 0`);
    assert.deepEqual(await recordStatistics(database(), WATCHER, record.id, later(10)), {
      counts: { held: 1, waiting: 3, processed: 1, withdrawn: 1, cancelled: 1 },
      isComplete: true,
      oldestDueAt: later(5),
      lastSuccessAt: later(3),
      lastFailureAt: later(4),
    });
    assert.deepEqual(await recordStatistics(database(), WATCHER, randomUUID(), later(10)), {
      counts: { held: 0, waiting: 0, processed: 0, withdrawn: 0, cancelled: 0 },
      isComplete: true,
      oldestDueAt: undefined,
      lastSuccessAt: undefined,
      lastFailureAt: undefined,
    });
  });
});

onSampledDatabase(import.meta.url, ({ database }) => {
  for (const removed of [false, true])
    test(`the log shows block and time of an acknowledged transfer that a reorg orphans, and it counts as orphaned ${removed ? 'until its removal notice is sent' : 'for good without removal notices'}`, async () => {
      await watchAddress(database(), { settings: { removed } });
      await mine(database(), headerOf(1), []);
      await mine(database(), headerOf(2), [transferOf()]);
      await attemptDue(database(), { now: later(1), succeeds: true });
      assert.deepEqual(await countOrphaned(database()), { count: 0, since: undefined });
      await mine(database(), headerOf(2, 1, 1), [], { now: later(3), reorg: { ancestorNumber: 1 } });
      if (removed) await attemptDue(database(), { now: later(4), succeeds: true });
      const page = { order: 'newest first', after: undefined, limit: 10 } as const;
      const [logged] = (await listLog(database(), WATCHER, {}, page)).notifications;
      const { state, revision, orphaned } = logged ?? {};
      assert.deepEqual([state, revision], ['processed', removed ? 1 : 0]);
      assert.deepEqual(orphaned, { blockHash: headerOf(2).hash, at: later(3) });
      const expected = removed ? { count: 0, since: undefined } : { count: 1, since: later(3) };
      assert.deepEqual(await countOrphaned(database()), expected);
    });
});

onPostgres(({ database }) => {
  test('no combination of filters reads all of 100,000 notifications', planTest, async () => {
    const records = await Promise.all(Array.from({ length: 20 }, () => watchAddress(database())));
    await insertNotifications(database(), { records, count: 100_000 });
    await database().query(sql`analyze notification`);
    const filters = combine({
      rest: [{ state: 'withdrawn', type: 'TOKEN_TRANSFER' }],
      hash: [{ hash: hashOf(50_000) }],
      records: [{ recordIds: [records[3]?.id ?? ''] }, { recordIds: records.map(({ id }) => id) }],
      from: [{ from: later(10_000_000) }],
      until: [{ until: later(11_000_000) }],
      fromBlock: [{ fromBlock: 2_000 }],
      toBlock: [{ toBlock: 2_100 }],
    });
    assert.equal(filters.length, 2 ** 6 * 3);
    const { db, plans } = withPlans(database());
    for (const filter of filters) {
      for (const order of ['newest first', 'oldest first'] as const) {
        plans.length = 0;
        await listLog(db, WATCHER, filter, { order, after: 70_000, limit: 100 });
        for (const plan of plans)
          assert.doesNotMatch(
            plan,
            /Seq Scan on notification(?!_id_seq)/,
            `${JSON.stringify(filter)}\n${plan}`,
          );
      }
    }
    plans.length = 0;
    const page = { order: 'newest first', after: undefined, limit: 100 } as const;
    await listScopedLog(db, undefined, { recordIds: records.slice(0, 2).map(({ id }) => id) }, page);
    assert.doesNotMatch(plans.join(), /Seq Scan on notification/, plans.join());
    plans.length = 0;
    await recordStatistics(db, WATCHER, records[0]?.id ?? '', noon);
    assert.doesNotMatch(plans.join(), /Seq Scan on (notification|delivery_attempt)/);
  });

  test(
    'the statistics of a watched address read the attempts of those notifications that failed last',
    planTest,
    async () => {
      const record = await watchAddress(database());
      await insertNotifications(database(), { records: [record], count: 1_000 });
      await database().query(sql`
      update queue set retry_count = 20, next_retry_at = ${later(0)}::timestamptz + (id * 7 % 1000) * interval '1 minute'`);
      await database().query(sql`
      insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
      select shard_id, id, next_retry_at - attempt * interval '1 hour', 1, 'timeout'
      from queue cross join generate_series(1, 20) as attempt`);
      await database().query(sql`analyze`);
      const read: number[] = [];
      const counting: Db = {
        async query(statement) {
          read.push(await countRead(database(), statement, 'delivery_attempt'));
          return database().query(statement);
        },
      };
      const { lastFailureAt } = await recordStatistics(counting, WATCHER, record.id, later(10));
      assert.deepEqual(lastFailureAt, later(999 * 60_000 - 3_600_000));
      assert.deepEqual(read, [100 * 20]);
    },
  );
});

/** All combinations of the choices, each of them left out or made. */
function combine(choices: Record<string, readonly LogFilter[]>): LogFilter[] {
  let all: LogFilter[] = [{}];
  for (const values of Object.values(choices))
    all = all.flatMap((one) => [one, ...values.map((value) => ({ ...one, ...value }))]);
  return all;
}
