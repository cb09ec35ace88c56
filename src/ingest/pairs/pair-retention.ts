/**
 * Prunes data of pairs that no query needs. Swaps go first, because their sums give the volumes of older days. Of the states,
 * all of the last 26 hours and the last one of each older hour are kept. Sums and hourly states are deleted at the same age.
 */
import type { Clock } from '../../core/clock.ts';
import type { Step } from '../../core/loop.ts';
import { findTipTimes } from '../../store/blocks/blocks.ts';
import type { Database } from '../../store/db/db.ts';
import {
  findSettledHour,
  pruneOldPairStates,
  prunePairReadings,
  prunePairStates,
  pruneSwaps,
  pruneSwapVolumes,
} from '../../store/retention/market-retention.ts';
import { raisePruneMark } from '../../store/retention/prune-marks.ts';

/** Rows of one delete, which takes milliseconds. */
const STEP_ROWS = 1_000;
const HOUR_MS = 60 * 60 * 1000;
/** All states of this time before the newest stored block are kept: those of the longest time-weighted price, which takes 24 hours. */
export const WHOLE_MS = 26 * HOUR_MS;

type PairRetention = {
  /** How long swaps are kept: longer than the day over which volumes are computed. */
  swapsMs: number;
  /** How long their sums and the hourly states are kept. */
  pairHistoryMs: number;
};

/**
 * A step that prunes data of pairs. It runs through all data once an hour, until nothing is left to delete. Ages count from the newest
 * stored block, because a clock that is ahead at the start would otherwise delete what prices need.
 */
export function createPairPruner(options: { database: Database; clock: Clock } & PairRetention): Step {
  const { database, clock, swapsMs, pairHistoryMs } = options;
  let doneMs = Number.NEGATIVE_INFINITY;
  /** Before this time, each hour has at most one state, and gets no other one. */
  let thinned = new Date(0);
  return async () => {
    const tip = await findTipTimes(database);
    const newestMs = Math.min(clock.now().getTime(), tip?.minedAt.getTime() ?? Number.NEGATIVE_INFINITY);
    const hourMs = Math.floor(newestMs / HOUR_MS) * HOUR_MS;
    const readings = await prunePairReadings(database, STEP_ROWS);
    if (hourMs <= doneMs) return readings === STEP_ROWS ? 'worked' : 'idle';
    const limit = STEP_ROWS;
    const old = new Date(hourMs - pairHistoryMs);
    const whole = new Date(hourMs - WHOLE_MS);
    const swaps = new Date(hourMs - swapsMs);
    await raisePruneMark(database, 'pair_state', whole);
    await raisePruneMark(database, 'swap', swaps);
    const settled = await findSettledHour(database);
    const states = await prunePairStates(database, { from: thinned, before: whole, limit });
    if (states < limit && settled !== undefined) thinned = settled < whole ? settled : whole;
    const counts = [
      readings,
      states,
      await pruneOldPairStates(database, { before: old, limit }),
      await pruneSwaps(database, { before: swaps, unvaluedBefore: old, limit }),
      await pruneSwapVolumes(database, { before: old, limit }),
    ];
    if (counts.includes(limit)) return 'worked';
    doneMs = hourMs;
    return 'idle';
  };
}
