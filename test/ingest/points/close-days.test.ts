/**
 * Closing the days of balances that no longer move, after a long pause of the chain.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { closeDays } from '../../../src/ingest/points/accruals.ts';
import type { Tx } from '../../../src/store/db/db.ts';
import { type Position, savePositions } from '../../../src/store/points/accruals.ts';
import { addressOf, hashOf, headerOf } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

const DAY_MS = 86_400_000;
const TODAY = 20_000;
const STATEMENTS_MAX = 12;

const openSince = (user: number, days: number): Position => ({
  ...{ rule: 'hold', user: addressOf(user), balance: 5n, balanceSeconds: 1n, txHash: hashOf(user), touch: 0 },
  ...{ day: TODAY - days, touchedAt: new Date((TODAY - days) * DAY_MS) },
});

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Closes what one block may close. Returns the number of days by user, and of statements. */
  async function closeOnce() {
    const header = { ...headerOf(7), minedAt: new Date(TODAY * DAY_MS + 1_000) };
    let statements = 0;
    const closed = await database().transaction((tx) => {
      const counting: Tx = {
        ...tx,
        query(statement) {
          statements += 1;
          return tx.query(statement);
        },
      };
      return closeDays(counting, ['hold'], [{ header }]);
    });
    const days = closed.map(({ day }) => day.day);
    assert.deepEqual(
      days,
      days.toSorted((one, other) => one - other),
      'the oldest first',
    );
    const countOf = (user: number) => closed.filter(({ day }) => day.user === addressOf(user)).length;
    return { closed, countOf, statements };
  }

  test('years of one balance and a day of others are closed with one block, in few statements', async () => {
    await database().transaction((tx) =>
      savePositions(tx, [openSince(1, 3_650), openSince(2, 1), openSince(3, 40)], []),
    );
    const { closed, countOf, statements } = await closeOnce();
    assert.deepEqual([closed.length, countOf(1), countOf(2), countOf(3)], [3_691, 3_650, 1, 40]);
    assert.ok(statements <= STATEMENTS_MAX, `${statements} statements`);
    assert.equal((await closeOnce()).closed.length, 0);
  });

  test('above the limit of a block, all balances get their share, and the next blocks close the rest', async () => {
    await database().transaction((tx) =>
      savePositions(
        tx,
        Array.from({ length: 3 }, (_, index) => openSince(index + 1, 4_000)),
        [],
      ),
    );
    const { closed, countOf, statements } = await closeOnce();
    assert.equal(closed.length, 5_000);
    assert.ok(Math.min(countOf(1), countOf(2), countOf(3)) >= 1_666);
    assert.ok(statements <= STATEMENTS_MAX, `${statements} statements`);
    assert.equal((await closeOnce()).closed.length, 5_000);
    assert.equal((await closeOnce()).closed.length, 2_000);
  });
});
