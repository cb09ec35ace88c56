import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { shardOf, shardOfRecord } from '../../../src/domain/shard.ts';
import { webhookOrigin } from '../../../src/domain/webhook-url.ts';
import type { Database, Tx } from '../../../src/store/db/db.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import { textLock } from '../../../src/store/db/text-lock.ts';
import { startCounting } from '../../../src/store/watchers/limits.ts';
import { defaultSettings, replaceSettings } from '../../../src/store/watchers/settings.ts';
import {
  deleteWatchedAddress,
  findWatchedAddress,
  insertWatchedAddress,
  listWatchedAddresses,
  updateWatchedAddress,
} from '../../../src/store/watchers/watched.ts';
import { changeWatchedAddresses } from '../../../src/store/watchers/watched-bulk.ts';
import { replaceWatchedSet } from '../../../src/store/watchers/watched-set.ts';
import {
  addressOf,
  addWatchers,
  bob,
  carol,
  headerOf,
  later,
  listLanes,
  listNotifications,
  listStates,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { inLine } from '../../kit/in-line.ts';
import { planTest, withPlans } from '../../kit/many-notifications.ts';

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a watched address is read as it was stored, and only by its watcher', async () => {
    const record = await watchAddress(database(), { watchToken: false });
    assert.deepEqual(record, {
      id: record.id,
      watcherId: 1,
      address: bob,
      watchCoin: true,
      watchToken: false,
      webhookUrl: 'https://one.example/hook',
      createdAt: noon,
      updatedAt: noon,
    });
    assert.deepEqual(await findWatchedAddress(database(), 1, record.id), record);
    assert.equal(await findWatchedAddress(database(), 2, record.id), undefined);
    assert.equal(await findWatchedAddress(database(), 1, randomUUID()), undefined);
  });

  test('a patch changes only the fields that it contains', async () => {
    const record = await watchAddress(database());
    const at = { origin: undefined, now: later(10) };
    const update = (patch: Parameters<typeof updateWatchedAddress>[3]) =>
      updateWatchedAddress(database(), 1, record.id, patch, at);
    assert.deepEqual(await update({ watchCoin: false }), {
      ...record,
      watchCoin: false,
      updatedAt: later(10),
    });
    assert.deepEqual(await update({ address: carol }), {
      ...record,
      watchCoin: false,
      address: carol,
      updatedAt: later(11),
    });
    assert.deepEqual(await update({ watchCoin: true, watchToken: false }), {
      ...record,
      watchToken: false,
      address: carol,
      updatedAt: later(12),
    });
  });

  test('another watcher can neither change nor delete a watched address', async () => {
    const record = await watchAddress(database());
    const at = { origin: undefined, now: later(10) };
    assert.equal(await updateWatchedAddress(database(), 2, record.id, { watchCoin: false }, at), undefined);
    assert.equal(await deleteWatchedAddress(database(), 2, record.id, { now: noon }), false);
    assert.deepEqual(await findWatchedAddress(database(), 1, record.id), record);
  });

  test('a new URL moves the waiting and held notifications of its watched address, and no others', async () => {
    const record = await watchAddress(database());
    const other = await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await mine(database(), headerOf(2), [transferOf()], { confirmations: 1 });
    const at = { origin: 'https://two.example:443', now: later(10) };
    await updateWatchedAddress(database(), 1, record.id, { webhookUrl: 'https://two.example/' }, at);
    const [oldLane, newLane] = await listLanes(database());
    const rows = await listNotifications(database());
    const inOldLane = (id: string) =>
      rows
        .filter((row) => row.watched_address_id === id)
        .map((row) => [row.state, row.lane_id === oldLane?.id] as const);
    assert.deepEqual(
      new Map(inOldLane(record.id)),
      new Map([
        ['waiting', false],
        ['held', false],
      ]),
    );
    assert.deepEqual(
      new Map(inOldLane(other.id)),
      new Map([
        ['waiting', true],
        ['held', true],
      ]),
    );
    assert.deepEqual(newLane?.next_due, later(10));
  });

  test('deleting a watched address cancels its waiting notifications, once', async () => {
    const record = await watchAddress(database());
    await watchAddress(database(), { watcherId: 2 });
    await mine(database(), headerOf(1), [transferOf()]);
    assert.equal(await deleteWatchedAddress(database(), 1, record.id, { now: noon }), true);
    assert.deepEqual((await listStates(database())).sort(), ['cancelled', 'waiting']);
    assert.equal(await deleteWatchedAddress(database(), 1, record.id, { now: noon }), false);
    await mine(database(), headerOf(2), [transferOf()]);
    assert.deepEqual((await listStates(database())).sort(), ['cancelled', 'waiting', 'waiting']);
  });

  test('pages contain every watched address once, by creation time and then by id', async () => {
    await addWatchers(database(), 1);
    const ids = [];
    for (let number = 0; number < 7; number += 1) {
      const record = {
        id: randomUUID(),
        address: addressOf(number % 5),
        watchCoin: true,
        watchToken: true,
        webhookUrl: 'https://one.example/',
      };
      const createdAt = later(Math.floor(number / 3));
      const { id } = await database().transaction((tx) =>
        insertWatchedAddress(tx, 1, record, {
          origin: 'https://one.example:443',
          now: createdAt,
        }),
      );
      ids.push([createdAt.getTime(), id] as const);
    }
    await watchAddress(database(), { watcherId: 2 });
    const expected = ids
      .sort(([timeA, a], [timeB, b]) => timeA - timeB || (a < b ? -1 : 1))
      .map(([, id]) => id);
    const read: string[] = [];
    let after: { createdAt: Date; id: string } | undefined;
    do {
      const page = await listWatchedAddresses(database(), 1, { after, limit: 2 });
      read.push(...page.map(({ id }) => id));
      after = page.at(-1);
    } while (after !== undefined);
    assert.deepEqual(read, expected);
  });

  test(
    'replacing a set joins no list with the stored records, because the planner may take both for short',
    planTest,
    async () => {
      await addWatchers(database(), 1);
      const members = Array.from({ length: 300 }, (_, index) => ({
        address: addressOf(0x1000 + index),
        watchCoin: index % 2 === 0,
        watchToken: true,
      }));
      const replaceWith = (set: typeof members) =>
        database().transaction(async (tx) => {
          const { db, plans } = withPlans(tx);
          const { counts } = await replaceWatchedSet(
            { ...tx, ...db },
            1,
            'https://one.example/hook',
            set,
            noon,
          );
          const joined = plans.filter(
            (plan) => /watched_address/.test(plan) && /Join|Nested Loop|SubPlan/.test(plan),
          );
          assert.deepEqual(joined, []);
          return counts;
        });
      assert.deepEqual(await replaceWith(members.slice(0, 200)), {
        created: 200,
        updated: 0,
        deleted: 0,
        unchanged: 0,
      });
      const next = members
        .slice(100)
        .map((member, index) => (index < 50 ? { ...member, watchToken: false } : member));
      assert.deepEqual(await replaceWith(next), { created: 100, updated: 50, deleted: 100, unchanged: 50 });
      assert.deepEqual(await replaceWith([]), { created: 0, updated: 0, deleted: 200, unchanged: 0 });
    },
  );
});

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a set that replaces any number of records reads a bounded number of ids, and counts all', async () => {
    const ID_MAX = 3;
    await database().transaction(startCounting);
    const kept = await watchAddress(database());
    for (let count = 0; count < 7; count++) await watchAddress(database());
    for (let count = 1; count <= 5; count++) await watchAddress(database(), { address: addressOf(count) });
    await watchAddress(database(), { url: 'https://two.example/hook' });
    const members = [{ address: kept.address, watchCoin: true, watchToken: true }];
    let most = 0;
    const { counts, deletedIds } = await database().transaction((tx) => {
      const counting: Tx = {
        ...tx,
        async query<Row>(statement: Sql) {
          const rows = await tx.query<Row>(statement);
          most = Math.max(most, rows.length);
          return rows;
        },
      };
      return replaceWatchedSet(counting, 1, kept.webhookUrl, members, later(1), ID_MAX);
    });
    assert.deepEqual(counts, { created: 0, updated: 0, deleted: 12, unchanged: 1 });
    assert.equal(deletedIds.length, ID_MAX);
    assert.ok(most <= 2 * ID_MAX, `${most} rows`);
    const usage = await database().query(
      sql`select records, origins from watcher_usage where watcher_id = 1`,
    );
    assert.deepEqual(usage, [{ records: 2, origins: 2 }]);
  });
});

onPostgres(({ database, place }) => {
  const added = 'https://new.example/hook';
  for (const [what, change] of [
    [
      'a patch',
      (one, id, now) => updateWatchedAddress(one, 1, id, { watchCoin: false }, { origin: undefined, now }),
    ],
    [
      'a list',
      (one, id, now) =>
        one.transaction((tx) =>
          changeWatchedAddresses(tx, 1, [{ operation: 'update', id, patch: { watchCoin: false } }], { now }),
        ),
    ],
    [
      'settings',
      (one, id, now) =>
        replaceSettings(one, 1, id, { settings: { ...defaultSettings, confirmations: 3 }, now }),
    ],
  ] satisfies [string, (one: Database, id: string, now: () => Date) => Promise<unknown>][])
    test(`a watched address that ${what} waits for has the time at which it is changed`, async () => {
      const { id } = await watchAddress(database());
      const lock = sql`select from watched_address where shard_id = ${shardOfRecord(1, id)} and id = ${id} for update`;
      let now = later(1);
      await inLine(place(), lock, [
        (one) => change(one, id, () => now),
        async (one) => {
          now = later(60_000);
          await one.query(lock);
        },
      ]);
      assert.deepEqual((await findWatchedAddress(database(), 1, id))?.updatedAt, later(60_000));
    });

  for (const [what, lock] of [
    ['a watched address that it changes', sql`select from watched_address for update`],
    [
      'a receiver that another transaction adds',
      sql`insert into lane (shard_id, watcher_id, origin) values (${shardOf(1, 0)}, 1, ${webhookOrigin(added)})`,
    ],
  ] as const)
    test(`a set that waits for ${what} has the time at which it is stored`, async () => {
      const isNew = what.startsWith('a receiver');
      const record = await watchAddress(database());
      const url = isNew ? added : record.webhookUrl;
      const members = [{ address: record.address, watchCoin: false, watchToken: true }];
      let now = later(1);
      await inLine(place(), lock, [
        (one) => one.transaction((tx) => replaceWatchedSet(tx, 1, url, members, () => now)),
        async (one) => {
          now = later(60_000);
          await one.query(lock).catch(() => {});
        },
      ]);
      const page = { after: undefined, limit: 10 };
      const stored = (await listWatchedAddresses(database(), 1, page)).filter(
        (one) => one.webhookUrl === url,
      );
      assert.deepEqual(
        stored.map(({ updatedAt }) => updatedAt),
        [later(60_000)],
      );
    });

  test('a set that waits for another one of its URL has the time at which it is stored', async () => {
    const record = await watchAddress(database());
    const members = [{ address: carol, watchCoin: true, watchToken: true }];
    const lock = textLock(0x6362_0006, 1, record.webhookUrl);
    let now = later(1);
    await inLine(place(), lock, [
      (one) => one.transaction((tx) => replaceWatchedSet(tx, 1, record.webhookUrl, members, () => now)),
      async (one) => {
        now = later(60_000);
        await one.query(lock);
      },
    ]);
    const page = { after: undefined, limit: 10 };
    const times = (await listWatchedAddresses(database(), 1, page)).map(({ createdAt }) => createdAt);
    assert.deepEqual(times, [later(60_000)]);
  });

  test('a record that is moved to another URL while its set is replaced stays', async () => {
    const record = await watchAddress(database());
    const moved = 'https://two.example/hook';
    const { counts } = await database().transaction((tx) =>
      replaceWatchedSet(
        {
          ...tx,
          async query(statement) {
            if (/^\s*with deleted as/.test(statement.text))
              await updateWatchedAddress(
                database(),
                1,
                record.id,
                { webhookUrl: moved },
                { origin: undefined, now: later(1) },
              );
            return tx.query(statement);
          },
        },
        1,
        record.webhookUrl,
        [],
        later(2),
      ),
    );
    assert.equal(counts.deleted, 0);
    assert.equal((await findWatchedAddress(database(), 1, record.id))?.webhookUrl, moved);
  });

  test('a record that is added while its set is replaced doesn’t count as another change of its address', async () => {
    const record = await watchAddress(database());
    const set = [{ address: record.address, watchCoin: false, watchToken: true }];
    const { counts } = await database().transaction((tx) =>
      replaceWatchedSet(
        {
          ...tx,
          async query(statement) {
            if (/^\s*update watched_address/.test(statement.text)) await watchAddress(database());
            return tx.query(statement);
          },
        },
        1,
        record.webhookUrl,
        set,
        later(2),
      ),
    );
    assert.deepEqual(counts, { created: 0, updated: 1, deleted: 0, unchanged: 0 });
  });
});
