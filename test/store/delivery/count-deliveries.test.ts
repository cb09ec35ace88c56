/**
 * The sums of deliveries: equal to a scan of the attempts, whatever happens and wherever the step is killed.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { removeWatcher } from '../../../src/api/admin/watchers.ts';
import { bucketBoundsMs } from '../../../src/domain/time-buckets.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { redeliverOne } from '../../../src/store/delivery/redelivery.ts';
import { LATER_SUCCESS } from '../../../src/store/delivery/settle-sql.ts';
import { readReceiverStatistics, readStatistics } from '../../../src/store/delivery/statistics.ts';
import { beginRemoval, removeBatch } from '../../../src/store/watchers/watcher-removal.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { bob, headerOf, later, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { countAll, countOf } from '../../kit/count.ts';
import { onEachDatabase, onPostgres } from '../../kit/each-database.ts';
import { emptyDatabase } from '../../kit/empty-tables.ts';
import { insertNotifications } from '../../kit/many-notifications.ts';
import { rollbackTo } from '../../kit/rollback.ts';
import {
  type Attempt,
  type Notification,
  ORIGINS,
  plain,
  recordId,
  SHARDS,
  scan,
} from '../../kit/scanned-statistics.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const ATTEMPTS_MS = 30 * DAY_MS;

const notification: fc.Arbitrary<Notification> = fc.record({
  shard: fc.integer({ min: 0, max: SHARDS.length - 1 }),
  createdMs: fc.integer({ min: 0, max: 3 * DAY_MS }),
  isHeld: fc.boolean(),
  record: fc.integer({ min: 0, max: 2 }),
});
const attempt: fc.Arbitrary<Attempt> = fc.record({
  notification: fc.nat(),
  revision: fc.constantFrom(0, 0, 0, 1, 2),
  lane: fc.nat({ max: 2 }),
  afterMs: fc.oneof(fc.integer({ min: 0, max: 2_000 }), fc.integer({ min: 0, max: 2 * DAY_MS })),
  durationMs: fc.integer({ min: 0, max: 10_000 }),
  outcome: fc.constantFrom('success', 'success', 'http_5xx', 'timeout'),
  knowsFailures: fc.boolean(),
});
type Event =
  | { attempts: Attempt[] }
  | { count: number | undefined }
  | { restart: true }
  | { passMs: number }
  | { all: true };
const event: fc.Arbitrary<Event> = fc.oneof(
  { weight: 6, arbitrary: fc.record({ attempts: fc.array(attempt, { minLength: 1, maxLength: 8 }) }) },
  {
    weight: 4,
    arbitrary: fc.record({ count: fc.option(fc.integer({ min: 1, max: 9 }), { nil: undefined }) }),
  },
  { weight: 1, arbitrary: fc.record({ restart: fc.constant(true as const) }) },
  { weight: 2, arbitrary: fc.record({ all: fc.constant(true as const) }) },
  { weight: 3, arbitrary: fc.record({ passMs: fc.integer({ min: HOUR_MS / 2, max: 2 * DAY_MS }) }) },
);

async function readAll(database: Database) {
  const entries = (array: readonly (string | number)[], prefix: string): [string, number][] =>
    array.map((entry) => [`${prefix}${BigInt(entry) >> 40n}`, Number(BigInt(entry) & (2n ** 40n - 1n))]);
  const percentiles = (array: readonly number[], kind: string): [string, number][] =>
    array.map((value, index) => [`${kind}-percentiles ${index}`, value]);
  const sums = await database.query<Record<string, never>>(sql`
    select s.*, latencies::text[] as l, answers::text[] as a, latency_percentiles::float8[] as lp, answer_percentiles::float8[] as ap
    from delivery_sum s
    where unit in ('h', 'd') or (unit, started_at) in (select unit, started_at from receiver_window where built_parts = parts)`);
  const records = await database.query<Record<string, never>>(
    sql`select *, counters::text[] as c from record_delivery_sum`,
  );
  const names = ['attempts', 'failed_attempts', 'delivered', 'first_attempt', 'answered', 'answer_ms'];
  return {
    sums: plain(
      new Map(
        sums.map((row) => [
          `${row.shard_id} ${row.unit} ${(row.started_at as unknown as Date).toISOString()} ${row.origin}`,
          new Map([
            ...names.map((name) => [name, Number(row[name])] as [string, number]),
            ...entries(row.l ?? [], 'l'),
            ...entries(row.a ?? [], 'a'),
            ...percentiles(row.lp ?? [], 'l'),
            ...percentiles(row.ap ?? [], 'a'),
          ]),
        ]),
      ),
    ),
    records: plain(
      new Map(
        records.map((row) => [
          `${row.shard_id} ${row.watched_address_id} ${(row.started_at as unknown as Date).toISOString()}`,
          // The first counters of a day may name a number twice.
          new Map(
            Array.from(
              Map.groupBy(entries(row.c ?? [], ''), ([number]) => number),
              ([number, all]) => [number, all.reduce((sum, [, count]) => sum + count, 0)] as const,
            ),
          ),
        ]),
      ),
    ),
  };
}

async function insertNotification(database: Database, one: Notification): Promise<void> {
  await database.query(sql`
    insert into notification (shard_id, created_at, block_number, ordinal, kind, watched_address_id, tx_hash, sender, amount, is_held)
    values (${SHARDS[one.shard]}, ${later(one.createdMs)}, 1, 0, 'c', ${recordId(one.shard, one.record)},
      decode(repeat('00', 32), 'hex'), '\\x00', 1, ${one.isHeld})`);
}

async function insertAttempt(
  database: Database,
  notifications: readonly Notification[],
  one: Attempt,
  earlier: readonly Attempt[] = [],
): Promise<void> {
  const of = notifications[one.notification];
  if (of === undefined) return;
  const status = { success: 200, http_5xx: 500, timeout: null }[one.outcome];
  const [lane] = await database.query<{ id: number }>(
    sql`select id from lane where origin = ${ORIGINS[one.lane] ?? ''}`,
  );
  const ofMessage = earlier.filter(
    ({ notification: same, revision }) => same === one.notification && revision === one.revision,
  );
  const isFirst = !ofMessage.some(({ outcome }) => outcome === 'success');
  const knows = one.outcome === 'success' && one.knowsFailures;
  await database.query(sql`
    insert into delivery_attempt (shard_id, notification_id, lane_id, revision, started_at, duration_ms, outcome, status, failures)
    values (${SHARDS[of.shard]}, ${one.notification + 1}, ${lane?.id},
      ${one.revision}, ${later(of.createdMs + one.afterMs)}, ${one.durationMs}, ${one.outcome}, ${status},
      ${knows ? (isFirst ? ofMessage.length : LATER_SUCCESS) : null})`);
}

/** Attempts fail, a minute apart, and then one succeeds. */
async function attemptUntil(database: Database, from: Date, failures: number): Promise<void> {
  for (let count = 0; count <= failures; count += 1) {
    const now = new Date(from.getTime() + count * 60_000);
    assert.equal((await attemptDue(database, { now, succeeds: count === failures })).length, 1);
  }
}

onEachDatabase(({ database, kind }) => {
  test('the sums equal a scan of the attempts, wherever the step is killed', async () => {
    const run = async (
      notifications: readonly Notification[],
      events: readonly Event[],
      batchIds: number,
    ) => {
      await emptyDatabase(database());
      await database().query(sql`
        insert into lane (shard_id, watcher_id, origin) select 1, 1, origin from unnest(${ORIGINS}::text[]) as origin`);
      for (const one of notifications) await insertNotification(database(), one);
      const attempts: Attempt[] = [];
      let now = noon;
      for (const one of events) {
        if ('attempts' in one)
          for (const added of one.attempts) {
            const known = { ...added, notification: added.notification % notifications.length };
            await insertAttempt(database(), notifications, known, attempts);
            attempts.push(known);
          }
        else if ('passMs' in one) now = new Date(now.getTime() + one.passMs);
        else if ('all' in one) await countAll(database(), { batchIds, now });
        else if ('restart' in one) await database().query(sql`update statistics_state set counted_id = null`);
        else
          await countOf(database(), {
            ...(one.count !== undefined && { killedAt: one.count }),
            batchIds,
            now,
          })
            .step()
            .catch((error: unknown) => assert.match(String(error), /killed/));
      }
      await countAll(database(), { batchIds, now });
      assert.deepEqual(await readAll(database()), scan(notifications, attempts, now));
    };
    await fc.assert(
      fc.asyncProperty(
        fc.array(notification, { minLength: 1, maxLength: 6 }),
        fc.array(event, { minLength: 1, maxLength: 18 }),
        fc.integer({ min: 1, max: 12 }),
        run,
      ),
      { numRuns: kind === 'postgres' ? 40 : 12 },
    );
  });

  test('a redelivery counts as an attempt but not as delivered again, and a removal notice is another message', async () => {
    await watchAddress(database(), { settings: { removed: true } });
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [transferOf()]);
    const [{ id } = { id: 0 }] = await attemptDue(database(), { now: later(1_000), succeeds: false });
    await attemptDue(database(), { now: later(61_000), succeeds: true });
    assert.equal(await redeliverOne(database(), 1, id, later(90_000)), true);
    await attemptDue(database(), { now: later(90_000), succeeds: true });
    const statistics = async () => {
      await countAll(database());
      return readStatistics(database(), { watcherId: 1 }, { period: '24h', now: later(100_000) });
    };
    const { totals, latency } = await statistics();
    assert.deepEqual(totals, { attempts: 3, failedAttempts: 1, delivered: 1, firstAttempt: 0 });
    assert.equal(latency?.count, 1);
    assert.ok(latency.p50Ms >= 61_005 && latency.p50Ms <= 61_005 * 1.1);
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: headerOf(2), now: later(95_000) });
    await attemptDue(database(), { now: later(95_000), succeeds: true });
    const after = await statistics();
    assert.deepEqual(after.totals, { attempts: 4, failedAttempts: 1, delivered: 2, firstAttempt: 1 });
    assert.equal(after.latency?.count, 1);
  });

  test('the latency leaves out notifications that were held', async () => {
    await watchAddress(database(), { settings: { confirmations: 2 } });
    await watchAddress(database(), { url: 'https://two.example/hook' });
    await mine(database(), headerOf(1), [transferOf()]);
    await mine(database(), headerOf(2), []);
    await mine(database(), headerOf(3), []);
    await attemptDue(database(), { now: later(10), succeeds: true });
    await countAll(database());
    const read = (origin?: string) =>
      readStatistics(database(), { watcherId: 1, origin }, { period: '24h', now: later(20) });
    const { totals, latency } = await read();
    assert.deepEqual([totals.delivered, latency?.count], [2, 1]);
    assert.deepEqual((await read('https://one.example:443')).latency, undefined);
    assert.equal((await read('https://two.example:443')).latency?.count, 1);
  });

  for (const strictOrder of [false, true])
    for (const failures of [0, 1, 2])
      test(`a redelivery${strictOrder ? ' in strict order' : ''} that succeeds after ${failures} failures is not counted again, although retention has deleted the attempts`, async () => {
        await watchAddress(database(), { settings: { strictOrder } });
        await mine(database(), headerOf(1), [transferOf()]);
        const [{ id } = { id: 0 }] = await attemptDue(database(), { now: noon, succeeds: true });
        await countAll(database());
        await database().query(sql`delete from delivery_attempt`);
        const now = new Date(noon.getTime() + ATTEMPTS_MS + DAY_MS);
        await redeliverOne(database(), 1, id, now);
        await attemptUntil(database(), now, failures);
        const wanted = { attempts: 1 + failures, failedAttempts: failures, delivered: 0, firstAttempt: 0 };
        const isRight = async () => {
          await countAll(database(), { now });
          const read = { period: '24h', now } as const;
          const { totals, latency } = await readStatistics(database(), { watcherId: 1 }, read);
          assert.deepEqual([totals, latency], [wanted, undefined]);
        };
        await isRight();
        // Another redelivery waits while the sums are built again.
        await redeliverOne(database(), 1, id, new Date(now.getTime() + HOUR_MS));
        await database().query(sql`update statistics_state set counted_id = null`);
        await isRight();
      });

  test('a removal notice of a redelivered transfer is counted once, also after retention has deleted its attempts', async () => {
    await watchAddress(database(), { settings: { removed: true } });
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [transferOf()]);
    const [{ id } = { id: 0 }] = await attemptDue(database(), { now: noon, succeeds: true });
    await redeliverOne(database(), 1, id, later(1_000));
    await attemptDue(database(), { now: later(1_000), succeeds: true });
    const now = new Date(noon.getTime() + ATTEMPTS_MS + DAY_MS);
    const totals = async () => {
      await countAll(database());
      return (await readStatistics(database(), { watcherId: 1 }, { period: '24h', now })).totals;
    };
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: headerOf(2), now });
    await attemptUntil(database(), now, 1);
    assert.deepEqual(await totals(), { attempts: 2, failedAttempts: 1, delivered: 1, firstAttempt: 0 });
    await database().query(sql`delete from delivery_attempt`);
    assert.equal(await redeliverOne(database(), 1, id, new Date(now.getTime() + 120_000)), true);
    await attemptUntil(database(), new Date(now.getTime() + 120_000), 1);
    assert.deepEqual(await totals(), { attempts: 4, failedAttempts: 2, delivered: 1, firstAttempt: 0 });
  });

  test('a transfer that a reorg takes away after a failure and brings back is not delivered with its first attempt', async () => {
    await watchAddress(database());
    const payment = transferOf();
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [payment]);
    await attemptDue(database(), { now: later(10), succeeds: false });
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: headerOf(2), now: later(20) });
    await mine(database(), headerOf(2, 1, 1), [payment], { now: later(30) });
    await attemptDue(database(), { now: later(30), succeeds: true });
    await countAll(database());
    const read = { period: '24h', now: later(40) } as const;
    const { totals } = await readStatistics(database(), { watcherId: 1 }, read);
    assert.deepEqual(totals, { attempts: 2, failedAttempts: 1, delivered: 1, firstAttempt: 0 });
  });

  test('every success knows which attempts were before it, in strict order and after its block was orphaned too', async () => {
    await watchAddress(database(), { settings: { strictOrder: true } });
    const payment = transferOf();
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [payment]);
    await attemptUntil(database(), noon, 1);
    await mine(database(), headerOf(3), [transferOf()]);
    // Its block is orphaned while it is being sent.
    await attemptDue(database(), {
      ...{ now: later(HOUR_MS), succeeds: true },
      meanwhile: () =>
        rollbackTo(database(), { ancestorNumber: 2, expectedTip: headerOf(3), now: later(HOUR_MS) }),
    });
    const rows = await database().query(sql`select outcome, failures from delivery_attempt order by id`);
    assert.deepEqual(rows, [
      { outcome: 'http_5xx', failures: null },
      { outcome: 'success', failures: 1 },
      { outcome: 'success', failures: 0 },
    ]);
  });

  test('buckets without attempts are zero, and the period before is known once attempts were counted that long', async () => {
    const record = await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: true });
    await countAll(database());
    const now = new Date(noon.getTime() + 25 * HOUR_MS);
    const read = (period: '24h' | '30d', at: Date, scope = {}) =>
      readStatistics(database(), { watcherId: 1, ...scope }, { period, now: at });
    const day = await read('24h', now);
    assert.equal(day.buckets.length, 25);
    assert.deepEqual(day.from, new Date(noon.getTime() + HOUR_MS));
    assert.ok(day.buckets.every(({ attempts }) => attempts === 0));
    assert.deepEqual(day.previous, undefined);
    const month = await read('30d', now);
    assert.equal(month.buckets.length, 31);
    const one = { attempts: 1, failedAttempts: 0, delivered: 1, firstAttempt: 1 };
    assert.deepEqual(month.totals, one);
    assert.deepEqual(month.buckets.at(-2), { from: new Date('2025-11-20T00:00:00Z'), ...one });
    assert.deepEqual((await read('24h', new Date(noon.getTime() + 48 * HOUR_MS - 1))).previous, undefined);
    const dayLater = await read('24h', new Date(noon.getTime() + 48 * HOUR_MS));
    assert.deepEqual(dayLater.previous, one);
    assert.deepEqual((await read('24h', noon, { recordId: record.id })).buckets.at(-1), {
      from: noon,
      ...one,
    });
    assert.deepEqual((await read('30d', now, { recordId: record.id })).totals, one);
    assert.deepEqual((await read('30d', now, { recordId: record.id })).buckets, month.buckets);
  });

  test('receivers are ordered by the duration of their answers, by failures or by name', async () => {
    for (const [index, host] of ['one', 'two'].entries())
      await watchAddress(database(), {
        url: `https://${host}.example/hook`,
        watcherId: 1 + index,
        address: bob,
      });
    await mine(database(), headerOf(1), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: false });
    await attemptDue(database(), { now: later(60_000), succeeds: true });
    await database().query(sql`
      update delivery_attempt set duration_ms = 900, outcome = 'http_5xx', status = 500 where shard_id % 1024 = 2`);
    await countAll(database());
    const read = async (order: 'slowest' | 'failing' | 'origin', watcherId?: number) =>
      (
        await readReceiverStatistics(database(), watcherId, {
          period: '30d',
          order,
          limit: 10,
        })
      ).map(({ origin, watcherName, attempts, failedAttempts, answer }) => [
        ...[origin, watcherName, attempts, failedAttempts],
        ...[answer?.count, answer?.p50Ms],
      ]);
    const [fast, slow] = [
      ['https://one.example:443', 'watcher 1', 2, 1, 2, 5],
      ['https://two.example:443', 'watcher 2', 2, 2, 2, bucketBoundsMs.find((bound) => bound >= 900)],
    ];
    assert.deepEqual(await read('slowest'), [slow, fast]);
    assert.deepEqual(await read('failing'), [slow, fast]);
    assert.deepEqual(await read('origin'), [fast, slow]);
    assert.deepEqual(await read('origin', 1), [fast]);
  });

  test('a list of receivers is the same before, while and after new windows are built, also with late attempts', async () => {
    const hosts = ['one', 'two', 'three'];
    for (const [index, host] of hosts.entries())
      await watchAddress(database(), { url: `https://${host}.example/hook`, watcherId: 1 + (index % 2) });
    await mine(database(), headerOf(1), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: false });
    const readList = (period: '24h' | '30d') =>
      readReceiverStatistics(database(), undefined, { period, order: 'origin', limit: 9 });
    const read = async () => [await readList('24h'), await readList('30d')];
    await countOf(database()).step();
    const before = await readList('24h');
    assert.equal(before.filter(({ attempts, answer }) => attempts === 1 && answer?.count === 1).length, 3);
    const now = new Date(noon.getTime() + 13 * HOUR_MS);
    const count = countOf(database(), { now });
    const progress: string[] = [];
    const step = async () => {
      await count.step();
      const rows = await database().query<{ is_built: boolean }>(
        sql`select built_parts = parts as is_built from receiver_window order by unit`,
      );
      progress.push(rows.map(({ is_built: isBuilt }) => (isBuilt ? 'built' : 'begun')).join(' '));
    };
    for (let steps = 0; steps < 3; steps += 1) {
      await step();
      assert.deepEqual(await read(), [before, before]);
    }
    await attemptDue(database(), { now: later(60_000), succeeds: true });
    await mine(database(), headerOf(2), [transferOf()]);
    await attemptDue(database(), { now, succeeds: true });
    for (let steps = 0; steps < 12; steps += 1) {
      await step();
      const after = await read();
      assert.deepEqual(
        after.map((list) => list.map(({ attempts, failedAttempts }) => [attempts, failedAttempts])),
        [1, 2].map(() => hosts.map(() => [3, 1])),
      );
    }
    assert.deepEqual([...new Set(progress)], ['built begun', 'built built', 'begun built']);
  });

  test('windows of former hours are deleted', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: true });
    const at = (hour: number) => new Date(noon.getTime() + hour * HOUR_MS);
    const starts = async () => {
      const rows = await database().query<{ started_at: Date }>(
        sql`select distinct started_at from delivery_sum where unit = 'H' order by started_at`,
      );
      return rows.map(({ started_at: start }) => start);
    };
    for (let hour = 0; hour < 5; hour += 1) await countAll(database(), { now: at(hour) });
    assert.deepEqual(await starts(), [at(3 - 24), at(4 - 24)]);
    // Clocks of two processes may differ at a full hour.
    for (let steps = 0; steps < 3; steps += 1) await countOf(database(), { now: at(3) }).step();
    assert.deepEqual(await starts(), [at(3 - 24), at(4 - 24)]);
  });

  test('lists of receivers are whole again after the clock was set back', async () => {
    const dayLater = new Date(noon.getTime() + 24 * HOUR_MS);
    const monthLater = new Date(noon.getTime() + 32 * 24 * HOUR_MS);
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: true });
    const counts = async () => {
      const read = (period: '24h' | '30d') =>
        readReceiverStatistics(database(), undefined, { period, order: 'origin', limit: 9 });
      return [await read('24h'), await read('30d')].map((list) => list.map(({ delivered }) => delivered));
    };
    for (const now of [noon, monthLater]) await countAll(database(), { now });
    assert.deepEqual(await counts(), [[], []]);
    await countAll(database(), { now: dayLater });
    assert.deepEqual(await counts(), [[1], [1]]);
  });

  test('an embedded database, which has no autovacuum, keeps its summaries of ids, blocks and times up to date', async () => {
    const insert = (count: number) =>
      database().query(sql`
        insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
        select 1, n, ${noon}, 1, 'timeout' from generate_series(1, ${count}::int) as n`);
    const record = await watchAddress(database());
    const unsummarized = async () => {
      const [row] = await database().query<{ count: number }>(sql`
        select sum(brin_summarize_new_values(indexrelid::regclass))::int as count
        from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am a on a.oid = c.relam
        where a.amname = 'brin' and c.relkind = 'i'`);
      return row?.count;
    };
    await unsummarized();
    await insertNotifications(database(), { records: [record], count: 20_000 });
    await insert(6_000);
    const count = countOf(database(), { batchIds: 4_000 });
    for (let round = 0; round < 4; round += 1) await count.step();
    const { totals } = await readStatistics(database(), {}, { period: '24h', now: noon });
    assert.equal(totals.attempts, 6_000);
    if (kind === 'embedded') assert.equal(await unsummarized(), 0);
  });

  test('one step skips the gap that a fail-over leaves in the ids', async () => {
    const insert = () =>
      database().query(sql`
        insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
        values (1, 1, ${noon}, 1, 'timeout')`);
    const moveAhead = () =>
      database().query(
        sql`select setval('delivery_attempt_id_seq', last_value + 16000000) from delivery_attempt_id_seq`,
      );
    const count = countOf(database());
    const readTotal = async () =>
      (await readStatistics(database(), {}, { period: '24h', now: noon })).totals.attempts;
    await insert();
    await countAll(database());
    await moveAhead();
    await insert();
    for (const total of [1, 2]) {
      await count.step();
      assert.equal(await readTotal(), total);
    }
    await moveAhead();
    await count.step();
    const [left] = await database().query<{ count: number }>(sql`
      select last_value - counted_id as count from delivery_attempt_id_seq, statistics_state`);
    assert.equal(left?.count, 0);
  });

  test('the sums of all watchers keep the attempts of a watcher that is deleted at once', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: true });
    await beginRemoval(database(), 1, noon);
    const count = countOf(database());
    const isGone = await removeWatcher(database(), 1, {
      ...{ clock: createTestClock(), count: count.step, isOver: () => false },
    });
    assert.ok(isGone);
    const { totals, latency } = await readStatistics(database(), {}, { period: '24h', now: noon });
    assert.deepEqual([totals.attempts, totals.delivered, latency?.count], [1, 1, 1]);
  });

  test('an answer never has more than its counted_until says', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: true });
    // The step ends after each statement of the reader in turn.
    for (let statement = 1; ; statement += 1) {
      await database().query(sql`update statistics_state set counted_id = null, counted_until = null`);
      await database().query(sql`truncate delivery_sum, record_delivery_sum, receiver_window`);
      let asked = 0;
      const reader: Database = {
        ...database(),
        async query(text) {
          const rows = await database().query(text);
          asked += 1;
          if (asked === statement) await countAll(database());
          return rows as never;
        },
      };
      const read = await readStatistics(reader, {}, { period: '24h', now: noon });
      if (asked < statement) break;
      if (read.countedUntil !== undefined) assert.equal(read.totals.attempts, 1);
      assert.equal(read.latency?.count ?? 0, read.totals.delivered);
    }
  });

  test('the sums of a deleted watcher are deleted with it', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: true });
    await countAll(database());
    await beginRemoval(database(), 1, noon);
    while ((await removeBatch(database(), 1)) !== 'gone');
    const rows = await database().query<{ shard_id: number }>(sql`
      select shard_id from delivery_sum union all select shard_id from record_delivery_sum`);
    assert.ok(rows.length > 0 && rows.every(({ shard_id }) => shard_id === 0));
  });
});

onPostgres(({ database }) => {
  test('an attempt whose transaction is still open is counted later, and counted once', async () => {
    await insertNotification(database(), { shard: 0, createdMs: 0, isHeld: false, record: 0 });
    const insert = (db: Pick<Database, 'query'>) =>
      db.query(sql`
        insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, status)
        values (1, 1, ${noon}, 1, 'timeout', null)`);
    const count = countOf(database());
    const total = async () =>
      (await readStatistics(database(), {}, { period: '24h', now: noon })).totals.attempts;
    await database().transaction(async (tx) => {
      await insert(tx);
      await insert(database());
      await count.step();
      await count.step();
      assert.equal(await total(), 0);
    });
    await count.step();
    await count.step();
    assert.equal(await total(), 2);
  });

  test('while one process adds, others leave it to that one', async () => {
    await insertNotification(database(), { shard: 0, createdMs: 0, isHeld: false, record: 0 });
    for (let index = 0; index < 50; index += 1)
      await insertAttempt(database(), [{ shard: 0, createdMs: 0, isHeld: false, record: 0 }], {
        ...{ notification: 0, revision: 0, lane: 0, afterMs: index, durationMs: 1, outcome: 'http_5xx' },
        knowsFailures: false,
      });
    const counts = Array.from({ length: 4 }, () => countOf(database(), { batchIds: 3 }));
    for (let round = 0; round < 20; round += 1) await Promise.all(counts.map((count) => count.step()));
    await countAll(database());
    const { totals } = await readStatistics(database(), {}, { period: '24h', now: noon });
    assert.deepEqual(totals, { attempts: 50, failedAttempts: 50, delivered: 0, firstAttempt: 0 });
  });
});
