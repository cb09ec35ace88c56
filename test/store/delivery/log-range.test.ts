import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import type { Database, Db } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { EXAMINED_MAX } from '../../../src/store/delivery/log.ts';
import type { LogFilter } from '../../../src/store/delivery/log-filter.ts';
import { findScopedMatches, type Scope } from '../../../src/store/delivery/log-of-all.ts';
import { preparePartitions } from '../../../src/store/retention/partitions.ts';
import { later, noon, watchAddress } from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { countRead, insertNotifications, planTest } from '../../kit/many-notifications.ts';

const WATCHER = 1;
const orders = ['newest first', 'oldest first'] as const;
const DAY_MS = 86_400_000;

/** Creates partitions for the days of this many notifications, the records, and the notifications. */
async function createHistory(database: Database, count: number) {
  const before = new Date(noon.getTime() - DAY_MS);
  const limits = { notification: before, delivery_attempt: before, record_delivery_sum: before };
  await preparePartitions(database, { now: noon, before: limits });
  const records = [await watchAddress(database), await watchAddress(database, { watcherId: 2 })];
  for (const ofWatcher of records)
    await insertNotifications(database, { records: [ofWatcher], count: count / 10, state: 'processed' });
  await insertNotifications(database, {
    records: records.slice(0, 1),
    count: (count * 8) / 10,
    state: 'processed',
  });
  // On a server autovacuum does this.
  await database.query(sql`vacuum analyze notification`);
  return records;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('pages of a range have all notifications in it once, also those whose id is far from the others', async () => {
    const [record] = await createHistory(database(), 3 * EXAMINED_MAX);
    const last = 3 * EXAMINED_MAX;
    for (const [id, number] of [
      [last - 3, 1],
      [7, last / 10 - 1],
    ] as const)
      await database().query(sql`update notification set block_number = ${number} where id = ${id}`);
    const filters: LogFilter[] = [
      { toBlock: 10 },
      { fromBlock: last / 10 - 20 },
      { fromBlock: 1_500, toBlock: 1_510 },
      { from: later((last - 200) * 1_000) },
      { from: later(20_000_000), until: later(20_050_000), fromBlock: 2_003 },
    ];
    for (const scope of [WATCHER, undefined])
      for (const recordIds of [undefined, [record?.id ?? '']])
        for (const filter of filters)
          for (const order of orders) {
            const { ids, pages } = await readAll(database(), scope, { ...filter, recordIds }, order);
            const what = JSON.stringify({ scope, filter, order, pages });
            assert.deepEqual(
              ids,
              await findNaively(database(), scope, { ...filter, recordIds }, order),
              what,
            );
            assert.ok(pages <= Math.ceil(ids.length / 100) + 3, what);
          }
  });
});

onPostgres(({ database }) => {
  const COUNT = 100_000;
  let recordId = '';
  beforeEach(async () => {
    const [record] = await createHistory(database(), COUNT);
    recordId = record?.id ?? '';
  });

  const filters: LogFilter[] = [
    { toBlock: COUNT / 20 },
    { fromBlock: COUNT / 20 },
    { fromBlock: 5_000, toBlock: 5_010 },
    { until: later(90_000_000), state: 'withdrawn' },
    { from: later((COUNT * 1_000) / 2) },
    { from: later(COUNT * 999) },
  ];
  for (const [whose, scope] of [
    ['a watcher', WATCHER],
    ['all watchers', undefined],
  ] as const)
    test(
      `a page of ${whose} reads a bounded number of notifications, wherever its range is`,
      planTest,
      async () => {
        for (const recordIds of [undefined, [recordId]])
          for (const filter of filters)
            for (const order of orders) {
              const { counting, read } = countReads(database());
              const page = { order, after: undefined, limit: 100 };
              await findScopedMatches(counting, scope, { ...filter, recordIds }, page);
              const what = JSON.stringify({ filter, recordIds, order, read });
              assert.ok(read.reduce((sum, rows) => sum + rows, 0) <= 4 * EXAMINED_MAX, what);
            }
      },
    );
});

/** Reads all pages: the ids, and the number of pages. */
async function readAll(database: Database, scope: Scope, filter: LogFilter, order: (typeof orders)[number]) {
  const ids: number[] = [];
  let after: number | undefined;
  for (let pages = 1; ; pages += 1) {
    const { keys, next } = await findScopedMatches(database, scope, filter, { order, after, limit: 100 });
    ids.push(...keys.map(({ id }) => id));
    if (next === undefined) return { ids, pages };
    after = next;
  }
}

async function findNaively(
  database: Database,
  scope: Scope,
  { fromBlock = 0, toBlock = 1e9, from = later(-1), until = later(1e12), recordIds }: LogFilter,
  order: (typeof orders)[number],
): Promise<number[]> {
  const rows = await database.query<{ id: number }>(sql`
    select id from notification_status
    where block_number between ${fromBlock} and ${toBlock}
      and created_at >= ${from}::timestamptz and created_at < ${until}::timestamptz
      and (${scope ?? null}::bigint is null or watcher_id = ${scope ?? null}::bigint)
      and (${recordIds?.[0] ?? null}::uuid is null or watched_address_id = ${recordIds?.[0] ?? null}::uuid)
    order by id`);
  const ids = rows.map(({ id }) => id);
  return order === 'oldest first' ? ids : ids.toReversed();
}

/** The database, and how many notifications each of its statements reads. */
function countReads(database: Database): { counting: Db; read: number[] } {
  const read: number[] = [];
  const counting: Db = {
    async query(statement) {
      read.push(await countRead(database, statement, 'notification'));
      return database.query(statement);
    },
  };
  return { counting, read };
}
