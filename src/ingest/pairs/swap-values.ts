/**
 * Values swaps that happened while their token had no valid price, with the next price of the token, or with the fixed one that has
 * replaced its feed.
 */
import type { Step } from '../../core/loop.ts';
import { swapTokenValue, type ValuedPair } from '../../domain/pair.ts';
import { lockCommits } from '../../store/blocks/commit-lock.ts';
import type { Database, Db } from '../../store/db/db.ts';
import { listUnvaluedPairs, listUnvaluedSwaps, valueSwaps } from '../../store/market/swaps.ts';
import { listNextPrices, listPrices } from '../../store/prices/prices.ts';
import { valueAt } from './market.ts';

/** Swaps of one step. */
const VALUED_MAX = 1_000;

/** A step that values swaps of one pair, the oldest first. */
export function createSwapValuer(options: { database: Database; pairs: readonly ValuedPair[] }): Step {
  const { database } = options;
  // A token without a value may get a feed again, so its swaps wait.
  const waiting = options.pairs.filter((pair) => swapTokenValue(pair) !== undefined);

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

  /** Returns false if the token has had no price since the oldest unvalued swap. */
  async function valueOldest(pair: ValuedPair): Promise<boolean> {
    // Look before taking the lock, which delays block commits.
    if ((await listValued(database, pair, 1)).length === 0) return false;
    return database.transaction(async (tx) => {
      await lockCommits(tx);
      const valued = await listValued(tx, pair, VALUED_MAX);
      if (valued.length > 0) await valueSwaps(tx, valued);
      return valued.length > 0;
    });
  }
}

/** The oldest unvalued swaps that can be valued now: by a fixed price, the one in force at their time, or else by the next one. */
async function listValued(db: Db, pair: ValuedPair, limit: number) {
  const value = swapTokenValue(pair);
  if (value === undefined) return [];
  const swaps = await listUnvaluedSwaps(db, pair.id, limit);
  const times = swaps.map(({ minedAt }) => minedAt);
  const inForce = 'fixed' in value ? [] : await listPrices(db, value.asset, times);
  const next = 'fixed' in value ? [] : await listNextPrices(db, value.asset, times);
  return swaps.flatMap((swap, index) => {
    const price = valueAt(pair, swap, () => inForce[index]) ?? valueAt(pair, swap, () => next[index]);
    return price === undefined ? [] : [{ ...swap, price }];
  });
}
