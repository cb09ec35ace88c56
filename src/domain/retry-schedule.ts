/**
 * When a failed notification is attempted again (spec 6.2). Exact, without jitter: the time is published in the payload.
 */
import assert from 'node:assert/strict';

const MINUTE_MS = 60_000;

/**
 * Minutes to wait after failure number `failureCount` (the first is 1): that entry of `retryMinutes`, and the last
 * entry for every failure beyond (spec 6.2).
 */
export function retryDelayMinutes(failureCount: number, retryMinutes: readonly number[]): number {
  assert(Number.isSafeInteger(failureCount) && failureCount >= 1, 'failures are counted from 1');
  const delayMinutes = retryMinutes[failureCount - 1] ?? retryMinutes.at(-1);
  assert(delayMinutes !== undefined, 'a retry schedule has at least one entry');
  return delayMinutes;
}

/** The time of the next attempt after failure number `failureCount`, reckoned from `now` (spec 6.2). */
export function nextRetryAt(now: Date, failureCount: number, retryMinutes: readonly number[]): Date {
  return new Date(now.getTime() + retryDelayMinutes(failureCount, retryMinutes) * MINUTE_MS);
}
