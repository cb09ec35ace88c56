/**
 * A bounded wait for an answer, after which the caller asks somewhere else or fails.
 */
import { startAbort } from './abort.ts';
import type { Clock } from './clock.ts';

/** The first outcome, or 'late' if there is none after `ms` or when the signal aborts. */
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
