/**
 * Lets one line stand for many: of events that may repeat quickly, at most one in `pauseMs` is logged.
 */
import type { Clock } from './clock.ts';

/** Returns how many events since the last logged one were not logged, or undefined for an event that must not be logged. */
export function createLogLimit(clock: Pick<Clock, 'steadyMs'>, pauseMs: number): () => number | undefined {
  let loggedMs = Number.NEGATIVE_INFINITY;
  let left = 0;
  return () => {
    const nowMs = clock.steadyMs();
    if (nowMs - loggedMs < pauseMs) {
      left += 1;
      return undefined;
    }
    const others = left;
    loggedMs = nowMs;
    left = 0;
    return others;
  };
}
