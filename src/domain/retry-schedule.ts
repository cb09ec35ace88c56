/**
 * Computes the next attempt of a failed notification (spec 6.2). There is no jitter, because the payload contains the time.
 */
import assert from 'node:assert/strict';

const MINUTE_MS = 60_000;

/**
 * Minutes to wait after failure number `failureCount`, counted from 1: that entry of `retryMinutes`, or the last entry if
 * there are more failures than entries (spec 6.2).
 */
export function retryDelayMinutes(failureCount: number, retryMinutes: readonly number[]): number {
  assert(Number.isSafeInteger(failureCount) && failureCount >= 1, 'failures are counted from 1');
  const delayMinutes = retryMinutes[failureCount - 1] ?? retryMinutes.at(-1);
  assert(delayMinutes !== undefined, 'a retry schedule has at least one entry');
  return delayMinutes;
}

/** The time of the next attempt after failure number `failureCount`, which happened at `now` (spec 6.2). */
export function nextRetryAt(now: Date, failureCount: number, retryMinutes: readonly number[]): Date {
  return new Date(now.getTime() + retryDelayMinutes(failureCount, retryMinutes) * MINUTE_MS);
}
