/**
 * Readings for requests that need no key: many clients may make them at once.
 */
import type { Clock } from '../core/clock.ts';

/** For this long after it began, a reading serves further requests. */
const KEEP_MS = 1_000;

/** Calls that come within KEEP_MS, or before the reading has ended, share it. */
export function shareReading<T>(
  clock: Pick<Clock, 'steadyMs'>,
  read: (now: Date) => Promise<T>,
): (now: Date) => Promise<T> {
  let kept: { reading: Promise<T>; fromMs: number; hasEnded: boolean } | undefined;
  return (now) => {
    const nowMs = clock.steadyMs();
    if (kept !== undefined && (!kept.hasEnded || nowMs - kept.fromMs < KEEP_MS)) return kept.reading;
    const own = { reading: read(now), fromMs: nowMs, hasEnded: false };
    const end = () => {
      own.hasEnded = true;
    };
    own.reading.then(end, end);
    kept = own;
    return own.reading;
  };
}
