import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Award } from '../../../src/domain/award.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createBatchStore, dryRun } from '../../../src/store/points/award-import.ts';
import { deleteAwardsAbove, insertAwards } from '../../../src/store/points/awards.ts';
import { awardOf, listWrongSums } from '../../kit/awards.ts';
import { addressOf, alice, bob, hashOf, headerOf } from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { emptyDatabase } from '../../kit/empty-tables.ts';
import { withImpatient } from '../../kit/impatient.ts';

/** An imported award with this key. */
const importedOf = (key: number, parts: Parameters<typeof awardOf>[0] = {}) =>
  awardOf({ rule: 'import', block: undefined, txHash: hashOf(key), ...parts });

async function countAwards(database: Database): Promise<number | undefined> {
  const [row] = await database.query<{ count: number }>(sql`select count(*) from point`);
  return row?.count;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('awards that are stored already are skipped, and one with other contents refuses the whole batch', async () => {
    const store = createBatchStore(database());
    assert.deepEqual(await store([importedOf(1), importedOf(2)]), { addedCount: 2, conflicts: [] });
    assert.deepEqual(await store([importedOf(2), importedOf(3)]), { addedCount: 1, conflicts: [] });
    const others: Award[] = [
      importedOf(1, { user: bob }),
      importedOf(1, { category: 'bridge' }),
      importedOf(1, { points: '10.000000000000000001' }),
      importedOf(1, { awardedAt: new Date('2026-01-15T12:00:00.001Z') }),
    ];
    for (const other of others)
      assert.deepEqual(await store([importedOf(4), other]), { addedCount: 0, conflicts: [1] });
    assert.deepEqual(await store([importedOf(1, { rule: 'import:b' }), importedOf(1, { ordinal: 1 })]), {
      addedCount: 2,
      conflicts: [],
    });
    assert.equal(await countAwards(database()), 5);
    assert.deepEqual(await listWrongSums(database()), []);
  });

  test('a dry run reports for each batch the result of storing it, and stores nothing', async () => {
    const batch = fc.uniqueArray(
      fc.record({ key: fc.integer({ min: 1, max: 8 }), points: fc.constantFrom('1', '2') }),
      { selector: ({ key }) => key, minLength: 1, maxLength: 5 },
    );
    await fc.assert(
      fc
        .asyncProperty(
          fc.array(batch, { maxLength: 4 }),
          fc.array(batch, { maxLength: 1 }),
          async (given, before) => {
            const toAwards = (lines: { key: number; points: string }[]) =>
              lines.map(({ key, points }) => importedOf(key, { points }));
            const store = createBatchStore(database());
            for (const lines of before) await store(toAwards(lines));
            const reported = await dryRun(database(), async (storeDry) => {
              const results = [];
              for (const lines of given) results.push(await storeDry(toAwards(lines)));
              return results;
            });
            assert.equal(await countAwards(database()), before.flat().length);
            const stored = [];
            for (const lines of given) stored.push(await store(toAwards(lines)));
            assert.deepEqual(reported, stored);
          },
        )
        .beforeEach(() => emptyDatabase(database())),
      { numRuns: 25 },
    );
  });
});

onPostgres(({ database, place }) => {
  test('concurrent blocks, reorgs and imports do not deadlock, lose or duplicate awards', async () => {
    const store = createBatchStore(await place().open());
    const other = createBatchStore(await place().open());
    const users = Array.from({ length: 20 }, (_, index) => addressOf(index + 1));
    // The two imports have opposite orders, so that they would deadlock if they locked single rows.
    const importsOf = (start: number) =>
      users.map((user, index) => importedOf(start * 100 + index, { user, points: String(start + 1) }));
    const batches = Array.from({ length: 30 }, (_, index) => importsOf(index));
    const imports = async (batchStore: typeof store, order: Award[][]) => {
      let added = 0;
      for (const batch of order) added += (await batchStore(batch)).addedCount;
      return added;
    };
    const blocks = async () => {
      for (let number = 1; number <= 30; number += 1) {
        await database().transaction(async (tx) => {
          for (const user of users.toReversed())
            await insertAwards(tx, [awardOf({ user, block: headerOf(number) })]);
        });
        if (number % 10 === 5) await database().transaction((tx) => deleteAwardsAbove(tx, number - 3));
      }
    };
    const [first, second] = await Promise.all([
      imports(store, batches),
      imports(
        other,
        batches.toReversed().map((batch) => batch.toReversed()),
      ),
      blocks(),
    ]);
    assert.equal(first + second, 600);
    assert.equal(await countAwards(database()), 600 + (30 - 3 * 3) * 20);
    assert.deepEqual(await listWrongSums(database()), []);
  });

  test('a dry run holds up no other transaction', async () => {
    await dryRun(await place().open(), async (storeDry) => {
      await storeDry([importedOf(1)]);
      const added = await database().transaction((tx) =>
        insertAwards(tx, [importedOf(1), importedOf(2, { user: alice })]),
      );
      assert.equal(added, 2);
      assert.deepEqual(await storeDry([importedOf(2, { user: bob })]), { addedCount: 0, conflicts: [0] });
    });
    assert.equal(await countAwards(database()), 2);
  });
});

onPostgres(({ database, place }) => {
  test('a dry run may wait for its lines longer than other transactions may be idle', async () => {
    const stored = await withImpatient(place().url, database(), (impatient, waitForEnd) =>
      dryRun(impatient, async (store) => {
        const first = await store([importedOf(1)]);
        await waitForEnd();
        return [first, await store([importedOf(1), importedOf(2)])];
      }),
    );
    assert.deepEqual(
      stored.map(({ addedCount }) => addedCount),
      [1, 1],
    );
  });
});
