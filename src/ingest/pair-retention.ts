/**
 * Removes states of pairs that nobody asks for any more: those of the last day are kept whole, of each older hour the last.
 */
import type { Clock } from '../core/clock.ts';
import type { Step } from '../core/loop.ts';
import type { Database } from '../store/db.ts';
import { prunePairReadings, prunePairStates } from '../store/market.ts';

/** Rows of one step: a delete of this size takes milliseconds. */
const STEP_ROWS = 1_000;
const HOUR_MS = 60 * 60 * 1000;
/** Longer than any time-weighted price looks back. */
const KEPT_MS = 24 * HOUR_MS;

/** The step that thins out states and readings; below what it has been through it does not look again. */
export function createPairPruner({ database, clock }: { database: Database; clock: Clock }): Step {
  let from = new Date(0);
  return async () => {
    const before = new Date(Math.floor((clock.now().getTime() - KEPT_MS) / HOUR_MS) * HOUR_MS);
    const readings = await prunePairReadings(database, STEP_ROWS);
    if (before <= from) return readings === STEP_ROWS ? 'worked' : 'idle';
    const states = await prunePairStates(database, { from, before, limit: STEP_ROWS });
    if (states < STEP_ROWS) from = before;
    return [readings, states].includes(STEP_ROWS) ? 'worked' : 'idle';
  };
}
