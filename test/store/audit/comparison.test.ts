/**
 * The data that is read for a comparison with the chain: complete, without duplicates, and from one snapshot.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { Transfer } from '../../../src/domain/block.ts';
import { shardOfRecord } from '../../../src/domain/shard.ts';
import {
  listNotificationsOf,
  listStoredBlocks,
  listWatchesById,
  listWatchesOf,
  type NotificationKey,
  readSnapshot,
} from '../../../src/store/audit/comparison.ts';
import { findTip } from '../../../src/store/blocks/blocks.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { defaultSettings } from '../../../src/store/watchers/settings.ts';
import {
  alice,
  bob,
  carol,
  coin,
  hashOf,
  headerOf,
  later,
  mine,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { withImpatient } from '../../kit/impatient.ts';

const span = { from: 2, to: 3 };
const ROWS_MAX = 100;

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Five blocks, each with a payment to bob. */
  async function mineFive(): Promise<Transfer[]> {
    const payments = [1, 2, 3, 4, 5].map(() => transferOf());
    for (const [index, payment] of payments.entries()) await mine(database(), headerOf(index + 1), [payment]);
    return payments;
  }

  const listOutside = async (keys: readonly NotificationKey[]) =>
    (await listNotificationsOf(database(), { from: 3, to: 3 }, keys, ROWS_MAX))
      .map(({ blockNumber }) => blockNumber)
      .filter((number) => number !== 3);

  test('the stored blocks of a range include its first and its last', async () => {
    for (const number of [1, 2, 3, 4]) await mine(database(), headerOf(number), [], { now: later(number) });
    await database().query(sql`update block set proved = (number = 2)`);
    const stored = (number: number) => {
      const { hash, parentHash, minedAt } = headerOf(number);
      return [number, { number, hash, parentHash, minedAt, proved: number === 2, storedAt: later(number) }];
    };
    assert.deepEqual([...(await listStoredBlocks(database(), span))], [stored(2), stored(3)]);
  });

  test('the records of watched addresses are read with all their settings, up to the limit', async () => {
    const settings = { ...defaultSettings, direction: 'in', tokens: new Map([[coin, 5n]]) } as const;
    const records = [
      await watchAddress(database(), { watchCoin: false, settings }),
      await watchAddress(database(), { watchToken: false, watcherId: 2 }),
    ];
    await watchAddress(database(), { address: carol });
    await database().query(
      sql`update watched_address set created_at = ${later(1)}, updated_at = ${later(2)}`,
    );
    const times = { createdAt: later(1), updatedAt: later(2) };
    const webhookUrl = 'https://one.example/hook';
    assert.deepEqual(await listWatchesOf(database(), [alice, bob], ROWS_MAX), [
      {
        ...{ shardId: shardOfRecord(1, records[0]?.id ?? ''), id: records[0]?.id, address: bob, ...times },
        ...{ watchCoin: false, watchToken: true, settings, laneId: 1, webhookUrl },
      },
      {
        ...{ shardId: shardOfRecord(2, records[1]?.id ?? ''), id: records[1]?.id, address: bob, ...times },
        ...{ watchCoin: true, watchToken: false, settings: defaultSettings, laneId: 2, webhookUrl },
      },
    ]);
    assert.equal((await listWatchesOf(database(), [bob, carol], 2)).length, 2);
  });

  test('the watched addresses of notifications are found by shard and id if they still exist', async () => {
    const [one, other] = [await watchAddress(database()), await watchAddress(database(), { watcherId: 2 })];
    const gone = await watchAddress(database());
    await watchAddress(database());
    await database().query(sql`delete from watched_address where id = ${gone.id}`);
    const find = async (records: [watcherId: number, id: string][]) =>
      (
        await listWatchesById(
          database(),
          records.map(([watcherId, id]) => ({ shardId: shardOfRecord(watcherId, id), watchedAddressId: id })),
        )
      ).map(({ id }) => id);
    assert.deepEqual(
      await find([
        [2, other.id],
        [1, gone.id],
        [1, one.id],
      ]),
      [one.id, other.id],
    );
    assert.deepEqual(await find([[2, one.id]]), []);
    assert.deepEqual(await find([]), []);
  });

  test('the notifications of all blocks of a range are read with all compared fields', async () => {
    const { id } = await watchAddress(database(), { watcherId: 2 });
    const transfers = [
      transferOf({ kind: 'token', ordinal: 7, token: coin, amount: 2n ** 256n - 1n }),
      transferOf({ kind: 'internal', ordinal: 3, sender: bob, receiver: undefined }),
    ];
    await mine(database(), headerOf(1), [transferOf()]);
    await mine(database(), headerOf(2), transfers.slice(0, 1), { now: later(2) });
    await mine(database(), headerOf(3), transfers.slice(1), { now: later(3) });
    await mine(database(), headerOf(4), [transferOf()]);
    const rows = await listNotificationsOf(database(), span, [], ROWS_MAX);
    assert.deepEqual(
      rows.map(({ id: _id, version: _version, ...row }) => row),
      transfers.map((transfer, index) => ({
        ...{ shardId: shardOfRecord(2, id), watchedAddressId: id, ...transfer },
        ...{ blockNumber: index + 2, createdAt: later(index + 2), state: 'waiting' },
        ...{ occurrence: 0, mayBeSeen: false, processedAt: undefined },
        ...{ revision: 0, retryCount: 0, redeliveryCount: 0, nextAttemptAt: later(index + 2) },
        ...{ laneId: 1, releaseNumber: undefined, sequence: undefined },
      })),
    );
    assert.equal((await listNotificationsOf(database(), span, [], 1)).length, 1);
  });

  test('notifications in all states are read, including redelivered ones, but not orphaned ones', async () => {
    const { id } = await watchAddress(database());
    const payments = await mineFive();
    const keys = payments.map(({ txHash }) => ({
      shardId: shardOfRecord(1, id),
      watchedAddressId: id,
      txHash,
    }));
    const fates = [
      ...(['held', 'waiting', 'processed', 'cancelled'] as const).map((state) => ({
        ...{ state, revision: 0, reorgId: null },
      })),
      { state: 'processed', revision: 2, reorgId: null },
      { state: 'withdrawn', revision: 0, reorgId: 1 },
      { state: 'processed', revision: 1, reorgId: 1 },
    ];
    for (const { state, revision, reorgId } of fates) {
      await database().query(
        sql`update notification_status set state = ${state}, revision = ${revision}, reorg_id = ${reorgId}::bigint`,
      );
      const rows = await listNotificationsOf(database(), span, keys, ROWS_MAX);
      assert.deepEqual(
        new Set(rows.map(({ blockNumber }) => blockNumber)),
        new Set(reorgId !== null ? [] : [1, 2, 3, 4, 5]),
        `${state} ${revision}`,
      );
    }
  });

  test('a notification of a block outside the range is found by transaction, watched address and shard together', async () => {
    const { id } = await watchAddress(database());
    const second = await watchAddress(database());
    const payments = await mineFive();
    const keyOf = (payment: Transfer | undefined, parts: Partial<NotificationKey> = {}) => {
      assert.ok(payment !== undefined);
      return { shardId: shardOfRecord(1, id), watchedAddressId: id, txHash: payment.txHash, ...parts };
    };
    const [one, two, three, four, five] = payments;
    assert.deepEqual(await listOutside([]), []);
    for (const [payment, block] of [
      [one, 1],
      [two, 2],
      [four, 4],
      [five, 5],
    ] as const)
      assert.deepEqual(await listOutside([keyOf(payment)]), [block]);
    assert.deepEqual(await listOutside([keyOf(one, { shardId: shardOfRecord(2, id) })]), []);
    assert.deepEqual(await listOutside([keyOf(one, { txHash: hashOf(1) })]), []);
    assert.deepEqual(await listOutside([keyOf(one, { watchedAddressId: randomUUID() })]), []);
    // A notification in the range is read once, whether its key is given or not.
    const given = [keyOf(three), keyOf(three, { watchedAddressId: second.id })];
    const rows = await listNotificationsOf(database(), { from: 3, to: 3 }, given, ROWS_MAX);
    assert.deepEqual(rows.map(({ watchedAddressId }) => watchedAddressId).sort(), [id, second.id].sort());
  });

  test('a snapshot cannot write', async () => {
    await mineFive();
    const write = readSnapshot(database(), (snapshot) => snapshot.query(sql`delete from block`));
    await assert.rejects(write, /read-only transaction/);
    assert.deepEqual((await findTip(database()))?.number, 5);
  });
});

onPostgres(({ database, place }) => {
  test('a snapshot does not see what is committed meanwhile', async () => {
    const span = { from: 1, to: 9 };
    await mine(database(), headerOf(1), []);
    const [before, after] = await readSnapshot(database(), async (snapshot) => {
      const first = await listStoredBlocks(snapshot, span);
      await mine(database(), headerOf(2), []);
      return [first, await listStoredBlocks(snapshot, span)];
    });
    assert.deepEqual(after, before);
    assert.equal(after?.size, 1);
  });

  test('a comparison may compute for longer than other transactions may be idle', async () => {
    await mine(database(), headerOf(1), []);
    const counts = await withImpatient(place().url, database(), (impatient, waitForEnd) =>
      readSnapshot(impatient, async (snapshot) => {
        const first = await listStoredBlocks(snapshot, { from: 1, to: 9 });
        await waitForEnd();
        return [first.size, (await listStoredBlocks(snapshot, { from: 1, to: 9 })).size];
      }),
    );
    assert.deepEqual(counts, [1, 1]);
  });
});
