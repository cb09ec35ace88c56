/**
 * Swaps, their sums, and the volume of any period.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { amountOf, decimal, decimalText } from '../../../src/core/decimal.ts';
import {
  deleteSwapsAbove,
  deleteSwapsBetween,
  insertSwaps,
  listUnvaluedPairs,
  listUnvaluedSwaps,
  type PricedSwap,
  sumSwapValue,
  valueSwaps,
} from '../../../src/store/market/swaps.ts';
import { hashOf, later } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { emptyDatabase } from '../../kit/empty-tables.ts';

const PAIR = 1;
const MINUTE_MS = 60_000;
const ever = { after: later(-1e10), until: later(1e10) };

onSampledDatabase(import.meta.url, ({ database }) => {
  const volume = async (range = ever, pairId = PAIR) =>
    decimalText(await sumSwapValue(database(), pairId, range));

  test('the volume of any period is the sum of its swaps, including its end and excluding its start', async () => {
    // Times around the five minutes where sums end and begin, and some between them.
    const moment = fc
      .tuple(fc.integer({ min: -4, max: 4 }), fc.integer({ min: -2, max: 2 }), fc.boolean())
      .map(([bucket, offset, isOdd]) => bucket * 5 * MINUTE_MS + offset + (isOdd ? 77_777 : 0));
    const story = fc.record({
      swaps: fc.array(fc.record({ ms: moment, units: fc.bigInt({ min: 0n, max: 10n ** 40n }) }), {
        maxLength: 30,
      }),
      ranges: fc.array(fc.tuple(moment, moment), { minLength: 1, maxLength: 6 }),
      aboveNumber: fc.nat(30),
    });
    await fc.assert(
      fc.asyncProperty(story, async ({ swaps, ranges, aboveNumber }) => {
        await emptyDatabase(database());
        const stored = swaps.map(({ ms, units }, index) => swapOf(index + 1, ms, amountOf(units, 18)));
        if (stored.length > 0) await database().transaction((tx) => insertSwaps(tx, stored));
        await database().transaction((tx) => deleteSwapsAbove(tx, aboveNumber));
        const left = stored.filter(({ blockNumber }) => blockNumber <= aboveNumber);
        for (const [one, other] of ranges) {
          const [after, until] = [later(Math.min(one, other)), later(Math.max(one, other))];
          const inside = left.filter(({ minedAt }) => minedAt > after && minedAt <= until);
          const sum = inside.reduce((total, { price }) => total.plus(price?.usdValue ?? 0), decimal('0'));
          assert.equal(await volume({ after, until }), decimalText(sum));
        }
      }),
      { numRuns: 40 },
    );
  });

  test('a swap that is stored twice counts once', async () => {
    const swaps = [swapOf(1, 0, decimal('3')), swapOf(2, 0, decimal('4'))];
    await database().transaction((tx) => insertSwaps(tx, swaps));
    await database().transaction((tx) => insertSwaps(tx, [...swaps, swapOf(3, 0, decimal('5'))]));
    assert.equal(await volume(), '12');
  });

  test('deleting swaps leaves those of other pairs and other blocks', async () => {
    const foreign = { ...swapOf(2, 0, decimal('100')), pairId: 2, ordinal: 9 };
    await database().transaction((tx) =>
      insertSwaps(tx, [...[1, 2, 3, 4].map((number) => swapOf(number, 0, decimal('1'))), foreign]),
    );
    await database().transaction((tx) => deleteSwapsBetween(tx, [PAIR], { from: 2, to: 3 }));
    assert.equal(await volume(), '2');
    assert.equal(await volume(ever, 2), '100');
  });

  test('a swap without a price counts as 0 until it is valued, once', async () => {
    await database().transaction((tx) =>
      insertSwaps(tx, [swapOf(1, 0, undefined), swapOf(2, 0, decimal('1'))]),
    );
    assert.equal(await volume(), '1');
    assert.deepEqual(await listUnvaluedPairs(database(), [PAIR, 2]), [PAIR]);
    const open = await listUnvaluedSwaps(database(), PAIR, 10);
    assert.deepEqual(
      open.map(({ blockNumber, amount1Out }) => [blockNumber, amount1Out]),
      [[1, 2n ** 200n]],
    );
    const valued = open.map((swap) => ({ ...swap, price: { usdValue: decimal('2.5'), priceId: 3 } }));
    await database().transaction((tx) => valueSwaps(tx, valued));
    await database().transaction((tx) => valueSwaps(tx, valued));
    assert.equal(await volume(), '3.5');
    assert.deepEqual(await listUnvaluedPairs(database(), [PAIR]), []);
  });
});

function swapOf(
  blockNumber: number,
  ms: number,
  usdValue: ReturnType<typeof decimal> | undefined,
): PricedSwap {
  const log = { blockNumber, txHash: hashOf(blockNumber), ordinal: 0, logIndex: 0 };
  const identity = { pairId: PAIR, ...log, minedAt: later(ms) };
  const amounts = { amount0In: 1n, amount1In: 0n, amount0Out: 0n, amount1Out: 2n ** 200n };
  return { ...identity, ...amounts, price: usdValue && { usdValue, priceId: undefined } };
}
