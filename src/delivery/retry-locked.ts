/**
 * Retries work on rows that another transaction has locked.
 */
import { backOffMs } from '../core/back-off.ts';
import type { Clock } from '../core/clock.ts';

/** A block's commit keeps its locks for milliseconds. */
const PAUSE_MS = { min: 5, max: 250 };

/** Calls `work` until its result is something other than 'locked', or the signal aborts. */
export async function untilUnlocked<T>(
  clock: Clock,
  signal: AbortSignal,
  work: () => Promise<T | 'locked'>,
): Promise<T | 'locked'> {
  for (let lockedCount = 0; ; lockedCount += 1) {
    const result = await work();
    if (result !== 'locked' || signal.aborted) return result;
    await clock.wait(backOffMs(PAUSE_MS, lockedCount), signal);
  }
}
