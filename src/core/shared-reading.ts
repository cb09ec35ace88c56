/**
 * Readings for requests that need no key: many clients may make them at once.
 */
import type { Clock } from './clock.ts';

/** Calls that come before a reading has ended, or within `keepMs` after it began, share it. */
export function shareReading<T>(
  read: (now: Date) => Promise<T>,
  { clock, keepMs }: { clock: Pick<Clock, 'steadyMs'>; keepMs: number },
): (now: Date) => Promise<T> {
  let kept: { reading: Promise<T>; fromMs: number; hasEnded: boolean } | undefined;
  return (now) => {
    const nowMs = clock.steadyMs();
    if (kept !== undefined && (!kept.hasEnded || nowMs - kept.fromMs < keepMs)) return kept.reading;
    const own = { reading: read(now), fromMs: nowMs, hasEnded: false };
    const end = () => {
      own.hasEnded = true;
    };
    own.reading.then(end, end);
    kept = own;
    return own.reading;
  };
}

/** Calls share the next reading that begins after them. Each begins when the one before has ended, so one runs at a time. */
export function shareNextReading<T>(read: () => Promise<T>): () => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  let next: Promise<T> | undefined;
  return () => {
    if (next !== undefined) return next;
    next = last.then(() => {
      next = undefined;
      return read();
    });
    last = next.catch(() => undefined);
    return next;
  };
}
