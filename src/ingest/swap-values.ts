/**
 * Values for swaps that happened before their token had any price: the first price that it gets.
 */
import type { Step } from '../core/loop.ts';
import { swapTokenValue, type ValuedPair } from '../core/pair.ts';
import { holdBlocks } from '../store/blocks.ts';
import type { Database } from '../store/db.ts';
import { findFirstPrice } from '../store/prices.ts';
import { listUnvaluedPairs, listUnvaluedSwaps, valueSwaps } from '../store/swaps.ts';
import { valueAt } from './market.ts';

/** Swaps of one step. */
const VALUED_MAX = 1_000;

/** Values swaps of one pair, oldest first. */
export function createSwapValuer(options: { database: Database; pairs: readonly ValuedPair[] }): Step {
  const { database } = options;
  const waiting = options.pairs.filter((pair) => {
    const value = swapTokenValue(pair);
    return value !== undefined && 'asset' in value;
  });

  return async () => {
    if (waiting.length === 0) return 'idle';
    const open = new Set(
      await listUnvaluedPairs(
        database,
        waiting.map(({ id }) => id),
      ),
    );
    for (const pair of waiting) if (open.has(pair.id) && (await valueOldest(pair))) return 'worked';
    return 'idle';
  };

  /** False while its token has no price. */
  async function valueOldest(pair: ValuedPair): Promise<boolean> {
    const value = swapTokenValue(pair);
    if (value === undefined || 'fixed' in value) return false;
    const first = await findFirstPrice(database, value.asset);
    if (first === undefined) return false;
    return database.transaction(async (tx) => {
      await holdBlocks(tx);
      const swaps = await listUnvaluedSwaps(tx, pair.id, VALUED_MAX);
      const valued = swaps.flatMap((swap) => {
        const price = valueAt(pair, swap, () => first);
        return price === undefined ? [] : [{ ...swap, price }];
      });
      if (valued.length > 0) await valueSwaps(tx, valued);
      return true;
    });
  }
}
