/**
 * Waits a limited time for a promise, after which the caller goes on without its result.
 */
import { startAbort } from './abort.ts';
import type { Clock } from './clock.ts';

/** The first outcome, or 'late' if none arrives within `ms` or before the signal aborts. */
export async function firstOrLate<Outcome>(
  { clock, signal }: { clock: Clock; signal: AbortSignal },
  outcomes: readonly Promise<Outcome>[],
  ms: number,
): Promise<Outcome | 'late'> {
  const timer = startAbort(signal);
  const late = clock.wait(ms, timer.signal).then(() => 'late' as const);
  try {
    return await Promise.race([...outcomes, late]);
  } finally {
    timer.abort();
    timer.release();
  }
}
