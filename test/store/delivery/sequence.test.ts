import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { toBytes } from '../../../src/core/hex.ts';
import { shardOfRecord } from '../../../src/domain/shard.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { advanceSequences } from '../../../src/store/delivery/sequence.ts';
import { settle } from '../../../src/store/delivery/settle.ts';
import { deleteWatchedAddress, updateWatchedAddress } from '../../../src/store/watchers/watched.ts';
import { attemptDue, leaseDue, readDue } from '../../kit/attempts.ts';
import {
  alice,
  carol,
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
import { inLine } from '../../kit/in-line.ts';
import { rollbackTo } from '../../kit/rollback.ts';

const strict = { settings: { strictOrder: true } };
const payments = (amounts: readonly bigint[]) => amounts.map((amount) => transferOf({ amount }));

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Attempts everything that is due now, and returns the amounts. */
  const attempt = async (ms: number, succeeds = true) =>
    (await attemptDue(database(), { now: later(ms), succeeds })).map(({ amount }) => amount);
  const attemptSorted = async (ms: number, succeeds = true) =>
    (await attempt(ms, succeeds)).sort((a, b) => Number(a - b));

  test('a transaction takes a bounded number of locks, however many watched addresses it has', async () => {
    await database().transaction(async (tx) => {
      const records = Array.from({ length: 5_000 }, () => ({ shardId: 1, id: randomUUID() }));
      await advanceSequences(tx, records, noon);
      const [locks] = await tx.query<{ count: number }>(
        sql`select count(*) from pg_locks where locktype = 'advisory' and classid = ${0x6362_0007} and pid = pg_backend_pid()`,
      );
      const [min, max] = tx.isDistributed === true ? [32, 32] : [1_000, 1_024];
      assert.ok((locks?.count ?? 0) >= min && (locks?.count ?? 0) <= max, `${locks?.count} locks`);
    });
  });

  test('notifications of a watched address with strict_order are attempted one at a time, in the order of the chain', async () => {
    await watchAddress(database(), strict);
    await mine(database(), headerOf(1), payments([3n, 1n]));
    await mine(database(), headerOf(2), payments([2n]));
    assert.deepEqual(await listStates(database()), ['waiting', 'held', 'held']);
    const tried = [await attempt(1), await attempt(2), await attempt(3), await attempt(4)];
    assert.deepEqual(tried, [[3n], [1n], [2n], []]);
    await mine(database(), headerOf(3), payments([4n]));
    assert.deepEqual(await attempt(5), [4n]);
  });

  test('a failing notification holds back later ones of its watched address, not of others, until its retry succeeds', async () => {
    await watchAddress(database(), strict);
    await watchAddress(database(), { address: alice });
    await mine(database(), headerOf(1), payments([1n, 2n]));
    assert.deepEqual(await attemptSorted(1, false), [1n, 1n, 2n]);
    await mine(database(), headerOf(2), payments([3n]));
    assert.deepEqual(await attempt(2), [3n]);
    assert.deepEqual(await attemptSorted(60_001, false), [1n, 1n, 2n]);
    assert.deepEqual(await attemptSorted(120_001), [1n, 1n, 2n]);
    assert.deepEqual(await attempt(120_002), [2n]);
    assert.deepEqual(await attempt(120_003), [3n]);
  });

  test('transfers that are mined again in another order are attempted in the order of the new chain', async () => {
    await watchAddress(database(), strict);
    const [first, second] = [transferOf({ amount: 1n }), transferOf({ amount: 2n })];
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [first, second]);
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: headerOf(2), now: noon });
    assert.deepEqual(await listStates(database()), ['withdrawn', 'withdrawn']);
    await mine(database(), headerOf(2, 1, 1), [transferOf({ amount: 3n }), second, first]);
    assert.deepEqual([await attempt(1), await attempt(2), await attempt(3)], [[3n], [2n], [1n]]);
  });

  const onSide = { reorg: { ancestorNumber: 1 } };
  for (const { what, before } of [
    { what: 'behind a new one', before: [1n] },
    { what: 'behind one that it held back', before: [1n, 2n] },
  ])
    test(`a transfer that failed and is mined again ${what} waits for it, and keeps its retry`, async () => {
      await watchAddress(database(), strict);
      const [first, second] = [transferOf({ amount: 1n }), transferOf({ amount: 2n })];
      await mine(database(), headerOf(1), []);
      await mine(
        database(),
        headerOf(2),
        [first, second].filter(({ amount }) => before.includes(amount)),
      );
      assert.deepEqual(await attempt(1, false), [1n]);
      await mine(database(), headerOf(2, 1, 1), [second, first], { ...onSide, now: later(2) });
      assert.deepEqual([await attempt(3, false), await attempt(4)], [[2n], []]);
      assert.deepEqual([await attempt(60_003), await attempt(60_004)], [[2n], [1n]]);
      const [one] = await listNotifications(database());
      assert.deepEqual([one?.amount, one?.state, one?.retry_count], ['1', 'processed', 1]);
    });

  test('a transfer that stays although its watched address has another address keeps its place', async () => {
    const { id } = await watchAddress(database(), strict);
    const [first, second] = [transferOf({ amount: 1n }), transferOf({ amount: 2n, receiver: carol })];
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [first]);
    assert.deepEqual(await attempt(1, false), [1n]);
    await database().query(sql`update watched_address set address = ${toBytes(carol)} where id = ${id}`);
    await mine(database(), headerOf(2, 1, 1), [first, second], { ...onSide, now: later(2) });
    assert.deepEqual([await attempt(60_001), await attempt(60_002)], [[1n], [2n]]);
  });

  test('a removal notice comes before a transfer that failed and stays on the chain', async () => {
    await watchAddress(database(), { settings: { strictOrder: true, removed: true } });
    const [gone, kept] = [transferOf({ amount: 1n }), transferOf({ amount: 2n })];
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [gone, kept]);
    assert.deepEqual([await attempt(1), await attempt(2, false)], [[1n], [2n]]);
    await mine(database(), headerOf(2, 1, 1), [kept], { ...onSide, now: later(3) });
    const revisions = async (ms: number) =>
      (await attemptDue(database(), { now: later(ms), succeeds: true })).map(({ amount, revision }) => [
        amount,
        revision,
      ]);
    assert.deepEqual(await revisions(60_001), [[1n, 1]]);
    assert.deepEqual(await revisions(60_002), [[2n, 0]]);
  });

  test('a transfer that gives way while it may be under way counts as seen when a reorg orphans it', async () => {
    const { id } = await watchAddress(database(), { settings: { strictOrder: true, removed: true } });
    const [first, second] = [transferOf({ amount: 1n }), transferOf({ amount: 2n })];
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [first]);
    await attemptDue(database(), {
      ...{ now: later(1), succeeds: true },
      meanwhile: async () => {
        await mine(database(), headerOf(2, 1, 1), [second, first], { ...onSide, now: later(1) });
        await rollbackTo(database(), { ancestorNumber: 1, expectedTip: headerOf(2, 1, 1), now: later(1) });
      },
    });
    const due = await attemptDue(database(), { now: later(2), succeeds: true });
    assert.deepEqual(
      due.map((one) => [one.watchedAddressId, one.amount, one.revision]),
      [[id, 1n, 1]],
    );
  });

  test('a notification that lacks confirmations comes before one that failed, which waits with it', async () => {
    await watchAddress(database(), strict);
    const [first, second] = [transferOf({ amount: 1n }), transferOf({ amount: 2n })];
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [first]);
    assert.deepEqual(await attempt(1, false), [1n]);
    await database().query(sql`update watched_address set confirmations = 1`);
    await mine(database(), headerOf(2, 1, 1), [second, first], { ...onSide, now: later(2) });
    assert.deepEqual(await attempt(60_001), []);
    await mine(database(), headerOf(3), [], { releasedBefore: 1, now: later(60_002) });
    assert.deepEqual([await attempt(60_003), await attempt(60_004)], [[2n], [1n]]);
  });

  test('a notification that lacks confirmations holds back later ones of its watched address', async () => {
    await watchAddress(database(), { settings: { strictOrder: true, confirmations: 2 } });
    await mine(database(), headerOf(1), payments([1n]), { releasedBefore: 0 });
    await database().query(sql`update watched_address set confirmations = null`);
    await mine(database(), headerOf(2), payments([2n]), { releasedBefore: 1 });
    assert.deepEqual(await attempt(1), []);
    await mine(database(), headerOf(3), [], { releasedBefore: 2 });
    assert.deepEqual([await attempt(2), await attempt(3)], [[1n], [2n]]);
  });

  test('an attempted transfer of an orphaned block leaves the sequence, so the new branch does not wait for it', async () => {
    await watchAddress(database(), strict);
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), []);
    await mine(database(), headerOf(3), payments([1n]));
    assert.deepEqual(await attempt(1, false), [1n]);
    await rollbackTo(database(), { ancestorNumber: 1, expectedTip: headerOf(3), now: later(2) });
    await mine(database(), headerOf(2, 1, 1), payments([2n]));
    assert.deepEqual([await attempt(3), await attempt(60_001)], [[2n], []]);
  });

  test('after the URL changes, waiting and held notifications go to the new one, in order', async () => {
    const record = await watchAddress(database(), strict);
    await mine(database(), headerOf(1), payments([1n, 2n]));
    const at = { origin: 'https://two.example:443', now: noon };
    await updateWatchedAddress(database(), 1, record.id, { webhookUrl: 'https://two.example/' }, at);
    const tried = await attemptDue(database(), { now: later(1), succeeds: true });
    assert.deepEqual(
      tried.map(({ amount, webhookUrl }) => [amount, webhookUrl]),
      [[1n, 'https://two.example/']],
    );
    assert.deepEqual(await attempt(2), [2n]);
  });

  test('held notifications are cancelled with their watched address, even if it is deleted while they are being created', async () => {
    const record = await watchAddress(database(), strict);
    await mine(database(), headerOf(1), payments([1n, 2n]));
    await deleteWatchedAddress(database(), 1, record.id, { now: noon });
    assert.deepEqual(await listStates(database()), ['cancelled', 'cancelled']);
    const other = await watchAddress(database(), strict);
    await mine(database(), headerOf(2), payments([1n, 2n]));
    await database().query(sql`delete from watched_address where id = ${other.id}`);
    assert.deepEqual(await attempt(1), []);
    assert.deepEqual(new Set(await listStates(database())), new Set(['cancelled']));
  });
});

onPostgres(({ database, place }) => {
  for (const firstInLine of ['the commit', 'the outcome'] as const) {
    test(`the sequence advances when a block commits while the previous notification is settled in a former lane: ${firstInLine} comes first`, async () => {
      const record = await watchAddress(database(), strict);
      await mine(database(), headerOf(1), payments([1n]));
      const [lane] = await leaseDue(database(), { now: noon, limit: 1 });
      assert.ok(lane !== undefined);
      const [due] = await readDue(database(), lane, noon, 1);
      assert.ok(due !== undefined);
      const at = { origin: 'https://two.example:443', now: noon };
      await updateWatchedAddress(database(), 1, record.id, { webhookUrl: 'https://two.example/' }, at);

      const commit = (one: Database) => mine(one, headerOf(2), payments([2n]));
      const outcome = { outcome: 'success', status: 200, response: undefined, nextRetryAt: undefined };
      const { id: notificationId, revision, retryCount, redeliveryCount } = due;
      const times = { startedAt: noon, mayHaveArrived: true, durationMs: 1, settledAt: later(1) };
      const end = (one: Database) =>
        settle(one, [{ lane, notificationId, revision, retryCount, redeliveryCount, ...outcome, ...times }]);
      const key =
        database().isDistributed === true
          ? sql`(get_shard_id_for_distribution_column('watched_address', ${shardOfRecord(1, record.id)}::bigint) * 32 +
              (hashtext(${record.id}) & 31))::integer`
          : sql`hashtext(${record.id}) & 1023`;
      const lockSequence = sql`select pg_advisory_xact_lock(${0x6362_0007}, ${key})`;
      await inLine(place(), lockSequence, firstInLine === 'the commit' ? [commit, end] : [end, commit]);
      const rows = await listNotifications(database());
      assert.deepEqual(
        rows.map(({ amount, state }) => [amount, state]),
        [
          ['1', 'processed'],
          ['2', 'waiting'],
        ],
      );
    });
  }
});
