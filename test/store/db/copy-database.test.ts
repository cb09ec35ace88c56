import assert from 'node:assert/strict';
import { test } from 'node:test';
import { copyDatabase } from '../../../src/store/db/copy-database.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createDeliveryCount } from '../../../src/store/delivery/count-deliveries.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { addressOf, headerOf, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { contentOf } from '../../kit/database-content.ts';

test('a copy has every row and column of every table, and ids go on after it', async () => {
  await using old = await createTestDatabase('embedded');
  await using place = await createTestDatabase('postgres');
  const [source, target] = [await old.open(), await place.open()];
  const odd = { text: `{"a,b":"é\\"\\\\"}`, big: '9'.repeat(78) };
  await source.script(
    "insert into watcher (name, created_at, suspended_at) values ('é \"'' \\ ,{}', 'infinity', null)",
  );
  await source.script('update record_counting set is_counted = true');
  await watchAddress(source, { watcherId: 1 });
  await watchAddress(source, { watcherId: 1, address: addressOf(2) });
  for (let number = 1; number <= 3; number += 1)
    await mine(
      source,
      headerOf(number),
      Array.from({ length: 700 }, () => transferOf({ amount: BigInt(odd.big) / BigInt(number) })),
    );
  await attemptDue(source, { now: noon, succeeds: true });
  const [clock, attemptsMs] = [createTestClock(), 1e9];
  const counting = createDeliveryCount({ database: source, clock, attemptsMs });
  for (let round = 0; round < 3; round += 1) await counting.step();
  await source.query(sql`
    insert into deferred_match (id, watcher_id, block_number, address, set_id, records, records_left, notifications_left, has_earlier)
    values (1, 1, 2, ${Buffer.alloc(20, 9)}, 1, 2, 2, 2, false)`);
  await source.query(sql`
    insert into deferred_transfers (set_id, part, block_number, matches, match_count)
    values (1, 0, 2, ${odd.text}::jsonb, 1)`);
  await source.query(sql`
    insert into deferred_records (group_id, part, watcher_id, block_number, record_ids)
    values (1, 0, 1, 2, ${['a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', null]}::uuid[])`);
  const seen: number[] = [];
  const counts = await copyDatabase(source, target, {
    onProgress({ table, copied, rows }) {
      if (table === 'notification') seen.push(copied / rows);
    },
  });
  const [before, after] = [await contentOf(source), await contentOf(target)];
  assert.deepEqual(after, before);
  assert.equal(counts.get('notification'), before.get('notification')?.length);
  assert.ok(seen.length > 1 && seen.at(-1) === 1, String(seen));
  // Sums of deliveries go on after what was counted before.
  assert.ok((after.get('delivery_sum')?.length ?? 0) > 0);
  await createDeliveryCount({ database: target, clock, attemptsMs }).step();
  assert.deepEqual((await contentOf(target)).get('delivery_sum'), before.get('delivery_sum'));
  const [row] = await target.query<{ id: number }>(
    sql`insert into watcher (name, created_at) values ('next', now()) returning id`,
  );
  assert.equal(row?.id, 1 + (before.get('watcher')?.length ?? 0));
  // Triggers count again.
  const records = sql`select records from watcher_usage where watcher_id = 1`;
  const [counted] = await target.query<{ records: number }>(records);
  await watchAddress(target, { watcherId: 1, address: addressOf(3) });
  assert.equal((await target.query<{ records: number }>(records))[0]?.records, (counted?.records ?? 0) + 1);
});

test('the last step before the commit comes after every table, and its failure undoes the copy', async () => {
  await using old = await createTestDatabase('embedded');
  await using place = await createTestDatabase('postgres');
  const [source, target] = [await old.open(), await place.open()];
  await watchAddress(source);
  const copied: string[] = [];
  const fail = copyDatabase(source, target, {
    onProgress: ({ table }) => copied.push(table),
    async beforeCommit() {
      assert.ok(copied.includes('watched_address'));
      throw new Error('the folder is read-only');
    },
  });
  await assert.rejects(fail, /the folder is read-only/);
  assert.deepEqual(await target.query(sql`select from watched_address`), []);
});

test('a copy into a database that is in use, or that fails, changes nothing there', async () => {
  await using old = await createTestDatabase('embedded');
  await using place = await createTestDatabase('postgres');
  const [source, target] = [await old.open(), await place.open()];
  await watchAddress(source);
  await mine(source, headerOf(1), [transferOf()]);
  await watchAddress(target);
  const before = await contentOf(target);
  await assert.rejects(copyDatabase(source, target, { onProgress: () => {} }), { code: 'conflict' });
  assert.deepEqual(await contentOf(target), before);
  await target.script('truncate watcher, watched_address, lane, watcher_queue cascade');
  const emptied = await contentOf(target);
  const fail = ({ table }: { table: string }) => {
    if (table === 'watched_address') throw new Error('the disk is full');
  };
  await assert.rejects(copyDatabase(source, target, { onProgress: fail }), /the disk is full/);
  assert.deepEqual(await contentOf(target), emptied);
  await copyDatabase(source, target, { onProgress: () => {} });
  assert.deepEqual(await contentOf(target), await contentOf(source));
});
