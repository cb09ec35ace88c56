/**
 * The counts behind limits, and concurrent requests that together would exceed a limit.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { beforeEach, test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import type { Address } from '../../../src/core/hex.ts';
import { webhookOrigin } from '../../../src/domain/webhook-url.ts';
import type { Database, Tx } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import {
  type Limits,
  readUsage,
  startCounting,
  stopCounting,
  withinLimits,
} from '../../../src/store/watchers/limits.ts';
import {
  deleteWatchedAddress,
  insertWatchedAddress,
  updateWatchedAddress,
} from '../../../src/store/watchers/watched.ts';
import { type Change, changeWatchedAddresses } from '../../../src/store/watchers/watched-bulk.ts';
import { replaceWatchedSet } from '../../../src/store/watchers/watched-set.ts';
import { beginRemoval, removeBatch } from '../../../src/store/watchers/watcher-removal.ts';
import { addressOf, addWatchers, later, noon, watchAddress } from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';

const urlOf = (host: number, path = 'hook') => `https://h${host}.example/${path}`;

function create(database: Database, parts: { url?: string; address?: Address; limits?: Limits }) {
  const { url = urlOf(1), address = addressOf(1), limits = {} } = parts;
  const record = { id: randomUUID(), address, watchCoin: true, watchToken: true, webhookUrl: url };
  const at = { origin: webhookOrigin(url), now: noon, limits };
  return database.transaction((tx) => insertWatchedAddress(tx, 1, record, at));
}

/** The first reason why a limit refused the work, undefined if it was not refused. */
async function refusalOf(work: Promise<unknown>): Promise<string | undefined> {
  try {
    await work;
    return undefined;
  } catch (error) {
    assert.ok(error instanceof Fault && error.code === 'conflict', String(error));
    return error.problems[0]?.message;
  }
}

const creation = (url: string, address = addressOf(9)): Change => ({
  operation: 'create',
  record: { id: randomUUID(), address, watchCoin: true, watchToken: true, webhookUrl: url },
});

onSampledDatabase(import.meta.url, ({ database }) => {
  beforeEach(() => addWatchers(database(), 1, 2));
  const start = () => database().transaction(startCounting);
  const change = (changes: readonly Change[], limits: Limits = {}) =>
    database().transaction((tx) => changeWatchedAddresses(tx, 1, changes, { now: noon, limits }));

  /** Compares the counts with the stored records. */
  async function checkCounts(): Promise<void> {
    const counted = await database().query(sql`
      select watcher_id, records, origins from watcher_usage where records > 0 order by 1`);
    const real = await database().query(sql`
      select w.watcher_id, count(*) as records, count(distinct l.origin) as origins
      from watched_address w join lane l on l.id = w.lane_id group by 1 order by 1`);
    assert.deepEqual(counted, real);
    const origins = await database().query(sql`
      select watcher_id, origin, records from origin_usage order by 1, 2`);
    const realOrigins = await database().query(sql`
      select w.watcher_id, l.origin, count(*) as records
      from watched_address w join lane l on l.id = w.lane_id group by 1, 2 order by 1, 2`);
    assert.deepEqual(origins, realOrigins);
  }

  test('every change of watched addresses is counted, whichever function makes it', async () => {
    const old = await watchAddress(database());
    await watchAddress(database(), { watcherId: 2 });
    await start();
    await checkCounts();
    const [one] = await change([creation(urlOf(1)), creation(urlOf(2)), creation(urlOf(2, 'other'))]);
    assert.ok(one !== undefined && !(one instanceof Fault));
    await checkCounts();
    const at = { origin: webhookOrigin(urlOf(3)), now: later(1) };
    await updateWatchedAddress(database(), 1, one.id, { webhookUrl: urlOf(3) }, at);
    await change([{ operation: 'update', id: old.id, patch: { webhookUrl: urlOf(3) } }, creation(urlOf(3))]);
    await checkCounts();
    const members = [5, 6, 7].map((number) => ({
      address: addressOf(number),
      watchCoin: true,
      watchToken: true,
    }));
    for (const set of [members, members.slice(1), []]) {
      await database().transaction((tx) => replaceWatchedSet(tx, 1, urlOf(4), set, noon));
      await checkCounts();
    }
    await deleteWatchedAddress(database(), 1, one.id, { now: noon });
    await change([{ operation: 'delete', id: old.id }]);
    await checkCounts();
    await beginRemoval(database(), 2, noon);
    await removeBatch(database(), 2);
    await checkCounts();
    assert.equal((await readUsage(database(), 2)).records, 0);
  });

  test('watched addresses are counted only between start and stop, and each start counts all of them again', async () => {
    const countRows = async () => (await database().query(sql`select from watcher_usage`)).length;
    await watchAddress(database());
    assert.equal(await countRows(), 0);
    await start();
    await stopCounting(database());
    await watchAddress(database(), { url: urlOf(2) });
    assert.deepEqual(
      await readUsage(database(), 1),
      { records: 2, origins: 2 },
      'reading the usage starts counting',
    );
    await checkCounts();
  });

  test('a refusal names a watched address that the list leaves in its place', async () => {
    const limits = { recordsPerAddressAndUrl: 1 };
    const made = await change([creation(urlOf(1)), creation(urlOf(1))]);
    const ids = made.flatMap((one) => (one !== undefined && 'id' in one ? [one.id] : []));
    // They are equally old, so the one with the lower id is named.
    const [kept = '', gone = ''] = ids.toSorted();
    const nameOf = (one: unknown) => (one instanceof Fault ? one.problems[0]?.message.split('. ')[1] : one);
    const move = (id: string, url: string): Change => ({
      operation: 'update',
      id,
      patch: { webhookUrl: url },
    });
    const [, stays] = await change([{ operation: 'delete', id: gone }, creation(urlOf(1))], limits);
    assert.equal(nameOf(stays), `See ${kept}`);
    const [, , moved] = await change([move(kept, urlOf(2)), creation(urlOf(1)), creation(urlOf(1))], limits);
    assert.equal(nameOf(moved), 'See an earlier change of this request');
  });

  test('a list is checked in order: a deleted watched address makes room for later ones, and a refused one creates no lane', async () => {
    const limits = { records: 2, receiverOrigins: 1, recordsPerAddressAndUrl: 1 };
    const [first, again, second, elsewhere] = await change(
      [
        creation(urlOf(1), addressOf(1)),
        creation(urlOf(1), addressOf(1)),
        creation(urlOf(1), addressOf(2)),
        creation(urlOf(2), addressOf(2)),
      ],
      limits,
    );
    assert.ok(first !== undefined && !(first instanceof Fault) && second !== undefined && 'id' in second);
    const messages = [again, elsewhere].map((one) => (one instanceof Fault ? one.problems[0]?.message : one));
    assert.deepEqual(messages, [
      'this address may be watched at most 1 time for this URL. See an earlier change of this request',
      'a watcher may have at most 2 watched addresses. Delete some, or ask the operator for a higher limit',
    ]);
    assert.equal((await database().query(sql`select distinct origin from lane`)).length, 1);
    const moved = await change(
      [
        { operation: 'update', id: first.id, patch: { address: addressOf(2) } },
        { operation: 'delete', id: second.id },
        { operation: 'delete', id: randomUUID() },
        creation(urlOf(2), addressOf(3)),
        { operation: 'update', id: first.id, patch: { webhookUrl: urlOf(2) } },
      ],
      limits,
    );
    const outline = moved.map((one) => (one instanceof Fault ? one.problems[0]?.message : typeof one));
    assert.deepEqual(outline, [
      `this address may be watched at most 1 time for this URL. See ${second.id}`,
      'object',
      'undefined',
      'the URLs of a watcher may have at most 1 origins, and this would be one more',
      // This deletes the only record of the first origin, so one origin is left.
      'object',
    ]);
    await checkCounts();
  });

  test('a list that changes many watched addresses repeatedly is checked in its order', async () => {
    const limits = { recordsPerAddressAndUrl: 1, receiverOrigins: 2 };
    const made = await change(
      Array.from({ length: 40 }, (_, index) => creation(urlOf(1), addressOf(index))),
      limits,
    );
    const ids = made.flatMap((one) => (one === undefined || one instanceof Fault ? [] : one.id));
    const move = (index: number, patch: { address?: Address; webhookUrl?: string }): Change => ({
      operation: 'update',
      id: ids[index] ?? '',
      patch,
    });
    const spare = addressOf(99);
    const results = await change(
      [
        // Each takes the spare address and gives it back.
        ...ids.flatMap((_, index) => [
          move(index, { address: spare }),
          move(index, { address: addressOf(index) }),
        ]),
        move(0, { address: spare }),
        creation(urlOf(1), spare),
        move(0, { webhookUrl: urlOf(2) }),
        creation(urlOf(1), spare),
        // It gets an address and a URL that another one has, by two changes.
        move(0, { address: addressOf(1) }),
        move(0, { webhookUrl: urlOf(1) }),
        creation(urlOf(3), spare),
        { operation: 'delete', id: ids[0] ?? '' },
        move(0, { webhookUrl: urlOf(3) }),
        creation(urlOf(3), spare),
      ],
      limits,
    );
    const outline = results.map((one) => (one instanceof Fault ? one.problems[0]?.path : typeof one));
    assert.deepEqual(outline, [
      ...Array.from({ length: 81 }, () => 'object'),
      '/address',
      'object',
      'object',
      'object',
      '/address',
      '/webhook_url',
      'object',
      'undefined',
      'object',
    ]);
    await checkCounts();
  });

  test('watched addresses above a limit that is set later can stay, change and be deleted, but not grow', async () => {
    const ids: string[] = [];
    for (const host of [1, 2, 3]) ids.push((await watchAddress(database(), { url: urlOf(host) })).id);
    const limits = { records: 2, receiverOrigins: 1, recordsPerAddressAndUrl: 1 };
    const [id = ''] = ids;
    const update = (patch: { address?: Address; webhookUrl?: string }) => {
      const origin = patch.webhookUrl === undefined ? undefined : webhookOrigin(patch.webhookUrl);
      return refusalOf(updateWatchedAddress(database(), 1, id, patch, { origin, now: later(1), limits }));
    };
    assert.equal(await update({ address: addressOf(7) }), undefined);
    assert.equal(await update({ webhookUrl: urlOf(9) }), undefined);
    assert.equal(await update({ webhookUrl: urlOf(2) }), undefined);
    const put = (tx: Tx, host: number, count: number) => {
      const members = Array.from({ length: count }, (_, index) => ({
        ...{ address: addressOf(100 + index), watchCoin: true, watchToken: true },
      }));
      return withinLimits(tx, 1, limits, () => replaceWatchedSet(tx, 1, urlOf(host), members, noon));
    };
    assert.equal(await refusalOf(database().transaction((tx) => put(tx, 3, 1))), undefined);
    assert.match(
      (await refusalOf(database().transaction((tx) => put(tx, 3, 2)))) ?? '',
      /may have at most 2 watched/,
    );
    assert.equal(await deleteWatchedAddress(database(), 1, id, { now: noon, limits }), true);
    assert.match(
      (await refusalOf(create(database(), { url: urlOf(3), limits }))) ?? '',
      /may have at most 2 watched/,
    );
    await checkCounts();
  });
});

onPostgres(({ database, place }) => {
  beforeEach(() => addWatchers(database(), 1, 2));
  const both = async () => [database(), await place().open()] as const;

  for (const [name, limits, partsOf, allowed] of [
    ['records', { records: 7 }, (index: number) => ({ address: addressOf(index) }), 7],
    ['an address and URL', { recordsPerAddressAndUrl: 2 }, () => ({}), 2],
    ['origins', { receiverOrigins: 3 }, (index: number) => ({ url: urlOf(index) }), 3],
  ] as const)
    test(`of many concurrent requests to two processes as many pass as the limit of ${name} allows`, async () => {
      const processes = await both();
      const refusals = await Promise.all(
        Array.from({ length: 40 }, (_, index) => {
          const process = processes[index % 2] ?? database();
          return refusalOf(create(process, { ...partsOf(index), limits }));
        }),
      );
      assert.equal(refusals.filter((refusal) => refusal === undefined).length, allowed);
      const [row] = await database().query<{ count: number }>(
        sql`select count(*) as count from watched_address`,
      );
      assert.equal(row?.count, allowed);
    });

  test('changes that are under way when counting begins are counted once', async () => {
    const [one, other] = await both();
    const isInserted = Promise.withResolvers<void>();
    const mayCommit = Promise.withResolvers<void>();
    const slow = one.transaction(async (tx) => {
      await changeWatchedAddresses(tx, 1, [creation(urlOf(1))], { now: noon });
      isInserted.resolve();
      await mayCommit.promise;
    });
    await isInserted.promise;
    const starting = other.transaction(startCounting);
    const waiting = sql`select from pg_locks where not granted and relation = 'watched_address'::regclass`;
    await waitUntil(async () => (await one.query(waiting)).length === 1);
    const late = create(one, { url: urlOf(2) });
    await waitUntil(async () => (await one.query(waiting)).length === 2);
    mayCommit.resolve();
    await Promise.all([slow, starting, late]);
    assert.deepEqual(await readUsage(one, 1), { records: 2, origins: 2 });
  });

  test('concurrent changes, deletions and sets of one watcher wait for each other, and none is refused', async () => {
    const limits = { records: 1_000, receiverOrigins: 100, recordsPerAddressAndUrl: 5 };
    const processes = await both();
    const made = await Promise.all(
      Array.from({ length: 10 }, (_, index) => create(database(), { url: urlOf(index % 3), limits })),
    );
    const members = [{ address: addressOf(50), watchCoin: true, watchToken: true }];
    await Promise.all(
      made.flatMap(({ id }, index) => {
        const process = processes[index % 2] ?? database();
        const webhookUrl = urlOf((index + 1) % 4);
        const at = { origin: webhookOrigin(webhookUrl), now: later(1), limits };
        return [
          updateWatchedAddress(process, 1, id, { webhookUrl }, at),
          index % 2 === 0
            ? deleteWatchedAddress(process, 1, id, { now: noon, limits })
            : create(process, { limits, address: addressOf(index + 10) }),
          process.transaction((tx) =>
            withinLimits(tx, 1, limits, () => replaceWatchedSet(tx, 1, urlOf(8), members, noon)),
          ),
        ];
      }),
    );
    const usage = await readUsage(database(), 1);
    const [real] = await database().query(sql`
      select count(*) as records, count(distinct lane_id) as origins from watched_address`);
    assert.deepEqual(usage, real);
  });
});
