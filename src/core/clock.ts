/**
 * Time, as a dependency: production passes `systemClock`, tests pass a clock that they move.
 */
import { setTimeout as delay } from 'node:timers/promises';

export type Clock = {
  /** The present, UTC. */
  now(): Date;
  /** Resolves after `ms`, or at once when the signal aborts; never rejects. */
  wait(ms: number, signal: AbortSignal): Promise<void>;
};

/** The machine's clock, shifted by what `offsetMs` is at the time (the database's clock minus this machine's). */
export function systemClock(offsetMs: () => number = () => 0): Clock {
  return {
    now: () => new Date(Date.now() + offsetMs()),
    wait: (ms, signal) =>
      delay(ms, undefined, { signal }).catch((error: unknown) => {
        if (!signal.aborted) throw error;
      }),
  };
}
