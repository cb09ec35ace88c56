/**
 * Waiting notifications follow their changed watched addresses at a cost that a long queue, or a long history, doesn't determine.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { deleteWatchedAddress, updateWatchedAddress } from '../../../src/store/watchers/watched.ts';
import {
  alignChanged,
  type Change,
  changeWatchedAddresses,
} from '../../../src/store/watchers/watched-bulk.ts';
import { later, listNotifications, noon, watchAddress } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { insertNotifications, planTest } from '../../kit/many-notifications.ts';

const URL_NEW = 'https://new.example/hook';
const ORIGIN_NEW = 'https://new.example:443';
const PAGE_ROWS = 5_000;

/** The database, which counts the rows and index entries of `queue` and `notification` that its statements outside transactions read. */
function countReads(database: Database): { counted: Database; reads: { rows: number } } {
  const reads = { rows: 0 };
  const readSoFar = sql`
    select coalesce(sum(pg_stat_get_xact_tuples_returned(oid)), 0)::bigint as rows from pg_class
    where relkind in ('r', 'i') and relname ~ '^(queue|notification)'`;
  const counted: Database = {
    ...database,
    query: (statement) =>
      database.transaction(async (tx) => {
        const [before] = await tx.query<{ rows: number }>(readSoFar);
        const result = await tx.query<never>(statement);
        const [after] = await tx.query<{ rows: number }>(readSoFar);
        reads.rows += (after?.rows ?? 0) - (before?.rows ?? 0);
        return result;
      }),
  };
  return { counted, reads };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test(
    'a deletion does not read the whole queue for the few notifications of its watched address',
    planTest,
    async () => {
      const [gone, other] = [await watchAddress(database()), await watchAddress(database())];
      await insertNotifications(database(), { records: [gone], count: 100, state: 'processed' });
      await insertNotifications(database(), { records: [other], count: 2 * PAGE_ROWS });
      await insertNotifications(database(), { records: [gone], count: 1 });
      await database().query(sql`analyze`);
      const { counted, reads } = countReads(database());
      await deleteWatchedAddress(counted, 1, gone.id, { now: later(1) });
      assert.ok(reads.rows < PAGE_ROWS + 1_000, `${reads.rows} rows`);
      const states = await listNotifications(database());
      assert.deepEqual(
        states.filter(({ state }) => state === 'cancelled').map((row) => row.watched_address_id),
        [gone.id],
      );
    },
  );

  test(
    'a deletion does not read the whole history of its watched address for a short queue',
    planTest,
    async () => {
      const [gone, other] = [await watchAddress(database()), await watchAddress(database())];
      await insertNotifications(database(), { records: [gone], count: 4 * PAGE_ROWS, state: 'processed' });
      await insertNotifications(database(), { records: [other], count: PAGE_ROWS });
      await insertNotifications(database(), { records: [gone], count: 1 });
      await database().query(sql`analyze`);
      const { counted, reads } = countReads(database());
      await deleteWatchedAddress(counted, 1, gone.id, { now: later(1) });
      assert.ok(reads.rows < 3 * PAGE_ROWS, `${reads.rows} rows`);
      const [last] = (await listNotifications(database())).slice(-1);
      assert.equal(last?.state, 'cancelled');
    },
  );

  test('notifications of many watched addresses follow them from behind a long queue', async () => {
    const other = await watchAddress(database());
    await insertNotifications(database(), { records: [other], count: 3 * PAGE_ROWS });
    // More than one query reads, and of more watched addresses.
    const records = await Promise.all(Array.from({ length: 101 }, () => watchAddress(database())));
    await insertNotifications(database(), { records, count: 101 * 51 });
    const changes = records.map(
      ({ id }, index): Change =>
        index % 2 === 0
          ? { operation: 'update', id, patch: { webhookUrl: URL_NEW } }
          : { operation: 'delete', id },
    );
    await database().transaction((tx) => changeWatchedAddresses(tx, 1, changes, { now: noon }));
    await alignChanged(database(), 1, changes, later(1));
    const lanes = await database().query<{ id: number; origin: string }>(sql`select id, origin from lane`);
    const originOf = new Map(lanes.map(({ id, origin }) => [id, ` ${origin}`]));
    const rows = await database().query<{
      record: string;
      state: string;
      lane: number | null;
      count: number;
    }>(sql`
      select watched_address_id as record, state, lane_id as lane, count(*) as count from notification_status group by 1, 2, 3`);
    assert.deepEqual(
      new Map(
        rows.map(({ record, state, lane, count }) => [
          record,
          `${count} ${state}${lane === null ? '' : originOf.get(lane)}`,
        ]),
      ),
      new Map([
        [other.id, `${3 * PAGE_ROWS} waiting https://one.example:443`],
        ...records.map(({ id }, index): [string, string] => [
          id,
          index % 2 === 0 ? `51 waiting ${ORIGIN_NEW}` : '51 cancelled',
        ]),
      ]),
    );
  });

  test('a patch that leaves the origin of the URL looks for no notifications', async () => {
    const record = await watchAddress(database());
    const aligned: (readonly string[])[] = [];
    const patch = (webhookUrl: string, origin: string) =>
      updateWatchedAddress(
        database(),
        1,
        record.id,
        { webhookUrl },
        {
          ...{ origin, now: noon },
          align: async (_database, _watcherId, recordIds) => {
            aligned.push(recordIds);
          },
        },
      );
    await patch(record.webhookUrl, 'https://one.example:443');
    await patch('https://one.example/other', 'https://one.example:443');
    assert.deepEqual(aligned, []);
    await patch(URL_NEW, ORIGIN_NEW);
    assert.deepEqual(aligned, [[record.id]]);
  });
});
