/**
 * Prunes data of pairs that no query needs. Swaps go first: their sums give the volumes of other days. Of the states those
 * of the last day are kept whole, of each older hour the last; sums and hours go together.
 */
import type { Clock } from '../../core/clock.ts';
import type { Step } from '../../core/loop.ts';
import type { Database } from '../../store/db/db.ts';
import {
  pruneOldPairStates,
  prunePairReadings,
  prunePairStates,
  pruneSwaps,
  pruneSwapVolumes,
} from '../../store/retention/market-retention.ts';

/** Rows of one step: a delete of this size takes milliseconds. */
const STEP_ROWS = 1_000;
const HOUR_MS = 60 * 60 * 1000;
/** Every state is kept for this long: longer than any time-weighted price looks back. */
export const WHOLE_MS = 24 * HOUR_MS;

type PairRetention = {
  /** How long swaps are kept themselves: more than the day that volumes are about. */
  swapsMs: number;
  /** How long their sums, and the price of each hour. */
  pairHistoryMs: number;
};

/** The step that thins out facts of pairs; each hour it goes through them once, until nothing is left to remove. */
export function createPairPruner(options: { database: Database; clock: Clock } & PairRetention): Step {
  const { database, clock, swapsMs, pairHistoryMs } = options;
  let doneMs = Number.NEGATIVE_INFINITY;
  /** Before this there is no more than one state of an hour. */
  let thinned = new Date(0);
  return async () => {
    const hourMs = Math.floor(clock.now().getTime() / HOUR_MS) * HOUR_MS;
    const readings = await prunePairReadings(database, STEP_ROWS);
    if (hourMs <= doneMs) return readings === STEP_ROWS ? 'worked' : 'idle';
    const limit = STEP_ROWS;
    const old = new Date(hourMs - pairHistoryMs);
    const whole = new Date(hourMs - WHOLE_MS);
    const states = await prunePairStates(database, { from: thinned, before: whole, limit });
    if (states < limit) thinned = whole;
    const counts = [
      readings,
      states,
      await pruneOldPairStates(database, { before: old, limit }),
      await pruneSwaps(database, { before: new Date(hourMs - swapsMs), unvaluedBefore: old, limit }),
      await pruneSwapVolumes(database, { before: old, limit }),
    ];
    if (counts.includes(limit)) return 'worked';
    doneMs = hourMs;
    return 'idle';
  };
}
