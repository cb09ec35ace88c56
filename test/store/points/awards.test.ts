import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { decimalText } from '../../../src/core/decimal.ts';
import type { Award } from '../../../src/domain/award.ts';
import { sql } from '../../../src/store/db/sql.ts';
import {
  deleteAwardsAbove,
  insertAwards,
  listAwards,
  sumUserDays,
  sumUserDaysBefore,
} from '../../../src/store/points/awards.ts';
import { awardOf, listWrongSums } from '../../kit/awards.ts';
import { alice, bob, carol, hashOf, headerOf } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { emptyDatabase } from '../../kit/empty-tables.ts';

onSampledDatabase(import.meta.url, ({ database }) => {
  const insert = (...awards: Award[]) => database().transaction((tx) => insertAwards(tx, awards));
  const undo = (ancestorNumber: number) =>
    database().transaction((tx) => deleteAwardsAbove(tx, ancestorNumber));
  const countRows = async () => {
    const [row] = await database().query<{ facts: number; days: number; months: number }>(sql`
      select (select count(*) from point) as facts, (select count(*) from point_day) as days,
        (select count(*) from point_month) as months`);
    return row;
  };

  test('an award is read as it was stored, with any size and characters', async () => {
    const award = awardOf({
      points: `-${'9'.repeat(78)}.${'1'.repeat(36)}`,
      category: 'ликвидность "\\{,}\' 流动性',
      ordinal: Number.MAX_SAFE_INTEGER,
      awardedAt: new Date('2026-02-28T23:59:59.999Z'),
      inputs: { amount: '1"2\\', 'price:17': '0.000001' },
    });
    const imported = awardOf({ txHash: award.txHash, rule: 'import', block: undefined });
    assert.equal(await insert(award, imported), 2);
    assert.deepEqual(await listAwards(database(), award.txHash), [imported, award]);
    assert.deepEqual(await listAwards(database(), hashOf(1)), []);
  });

  test('the same award counts once, within one call and across calls', async () => {
    const award = awardOf();
    const others: Award[] = [
      { ...award, rule: 'other' },
      { ...award, version: 2 },
      { ...award, ordinal: 1 },
      { ...award, role: 'referrer', user: bob },
    ];
    assert.equal(await insert(award, award), 1);
    assert.equal(await insert({ ...award, user: bob }, ...others), 4);
    assert.deepEqual(await countRows(), { facts: 5, days: 4, months: 2 });
    assert.deepEqual(await listWrongSums(database()), []);
  });

  test('awards of orphaned blocks are deleted with their sums, and imported ones and those of other blocks stay', async () => {
    const at = (number: number) => headerOf(number);
    const kept = [awardOf({ block: at(5) }), awardOf({ block: undefined, points: '1.5' })];
    await insert(...kept, awardOf({ block: at(6) }), awardOf({ block: at(7), user: bob }));
    await undo(5);
    assert.deepEqual(await countRows(), { facts: 2, days: 1, months: 1 });
    assert.deepEqual(await database().query(sql`select points::text, award_count from point_month`), [
      { points: '11.5', award_count: 2 },
    ]);
    assert.deepEqual(await listWrongSums(database()), []);
    await undo(5);
    assert.deepEqual(await countRows(), { facts: 2, days: 1, months: 1 });
  });

  test('sums use days and months in UTC in any time zone of the connection', async () => {
    const times = ['2026-01-31T23:59:59.999Z', '2026-02-01T00:00:00.000Z', '2026-02-28T23:59:59.999Z'];
    await database().transaction(async (tx) => {
      await tx.query(sql`set local time zone 'Pacific/Kiritimati'`);
      await insertAwards(
        tx,
        times.map((time) => awardOf({ awardedAt: new Date(time) })),
      );
    });
    const days = await database().query(sql`select day::text from point_day order by day`);
    const months = await database().query(sql`select month::text from point_month order by month`);
    assert.deepEqual(days, [{ day: '2026-01-31' }, { day: '2026-02-01' }, { day: '2026-02-28' }]);
    assert.deepEqual(months, [{ month: '2026-01-01' }, { month: '2026-02-01' }]);
  });

  test('a user’s points under a rule on a day exclude other days, rules, versions and referral awards', async () => {
    const day = new Date('2026-01-15T18:00:00.000Z');
    const sum = async () =>
      (await sumUserDays(database(), [{ rule: 'swap', version: 1, user: alice, day }]))
        .map(decimalText)
        .join();
    assert.equal(await sum(), '0');
    await insert(
      awardOf({ points: '0.1' }),
      awardOf({ points: '0.2', category: 'bridge', awardedAt: new Date('2026-01-15T00:00:00.000Z') }),
      awardOf({ awardedAt: new Date('2026-01-14T23:59:59.999Z') }),
      awardOf({ awardedAt: new Date('2026-01-16T00:00:00.000Z') }),
      awardOf({ rule: 'other' }),
      awardOf({ version: 2 }),
      awardOf({ user: bob }),
      awardOf({ role: 'referrer' }),
    );
    assert.equal(await sum(), '0.3');
  });

  test('the points of a day before a block end at its last moment in UTC, also where the clocks are changed', async () => {
    const day = new Date('2026-03-29T00:00:00.000Z');
    await insert(
      awardOf({ points: '0.1', awardedAt: new Date('2026-03-29T23:59:59.999Z') }),
      awardOf({ points: '0.2', awardedAt: new Date('2026-03-30T00:00:00.000Z'), ordinal: 9 }),
    );
    const sum = await database().transaction(async (tx) => {
      await tx.query(sql`set local time zone 'Europe/Berlin'`);
      return sumUserDaysBefore(tx, [{ rule: 'swap', version: 1, user: alice, day }], 1_000_000);
    });
    assert.deepEqual(sum.map(decimalText), ['0.1']);
  });

  test('sums match the awards after any sequence of awards, imports and orphaned blocks', async () => {
    const award = fc
      .record({
        rule: fc.constantFrom('swap', 'stake'),
        version: fc.integer({ min: 1, max: 2 }),
        category: fc.constantFrom('trading', 'staking', 'ü'),
        user: fc.constantFrom(alice, bob, carol),
        points: fc.constantFrom('1', '0.000000000000000001', '2.5', '-2.5', '123456789012345678901234567890'),
        txHash: fc.integer({ min: 1, max: 6 }).map(hashOf),
        ordinal: fc.integer({ min: 0, max: 2 }),
        role: fc.constantFrom('user', 'referrer'),
        number: fc.option(fc.integer({ min: 1, max: 5 }), { nil: undefined }),
        awardedAt: fc.constantFrom(
          new Date('2026-01-31T23:59:59.999Z'),
          new Date('2026-02-01T00:00:00.000Z'),
          new Date('2024-02-29T12:00:00.000Z'),
        ),
      })
      .map(({ number, ...parts }) =>
        awardOf({ ...parts, block: number === undefined ? undefined : headerOf(number) }),
      );
    const action = fc.oneof(
      { weight: 3, arbitrary: fc.array(award, { maxLength: 12 }) },
      { weight: 1, arbitrary: fc.integer({ min: 0, max: 5 }) },
    );
    await fc.assert(
      fc
        .asyncProperty(fc.array(action, { maxLength: 8 }), async (actions) => {
          for (const one of actions) {
            if (typeof one === 'number') await undo(one);
            else await insert(...one);
            assert.deepEqual(await listWrongSums(database()), []);
          }
        })
        .beforeEach(() => emptyDatabase(database())),
      { numRuns: 40 },
    );
  });
});
