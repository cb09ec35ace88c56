/**
 * Retries work on rows that another transaction has locked.
 */
import type { Clock } from '../core/clock.ts';

/** A block's commit keeps its locks for milliseconds. */
const PAUSE_MS_MIN = 5;
const PAUSE_MS_MAX = 250;

/** Calls `work` until its result is something other than 'locked', or the signal aborts. */
export async function untilUnlocked<T>(
  clock: Clock,
  signal: AbortSignal,
  work: () => Promise<T | 'locked'>,
): Promise<T | 'locked'> {
  for (let pauseMs = PAUSE_MS_MIN; ; pauseMs = Math.min(2 * pauseMs, PAUSE_MS_MAX)) {
    const result = await work();
    if (result !== 'locked' || signal.aborted) return result;
    await clock.wait(pauseMs, signal);
  }
}
