/**
 * A clock that moves only when the test moves it.
 */
import type { Clock } from '../../src/core/clock.ts';

export type TestClock = Clock & {
  /** Lets time pass and resolves every wait that has ended. A negative `ms` sets the clock back, as `step` does. */
  advance(ms: number): void;
  /** Sets the clock: `now` changes, but no time passes. */
  step(ms: number): void;
  /** The requested durations of all pending waits, oldest first. */
  waits(): number[];
};

/** Starts at `start`, by default noon of an ordinary day. */
export function createTestClock(start = new Date('2025-11-20T12:00:00.000Z')): TestClock {
  let nowMs = start.getTime();
  let steadyMs = 0;
  const waiting = new Set<{ ms: number; endMs: number; end(): void }>();
  return {
    now: () => new Date(nowMs),
    steadyMs: () => steadyMs,
    stepsMs: () => 0,
    wait(ms, signal) {
      return new Promise((resolve) => {
        if (ms <= 0 || signal.aborted) return resolve();
        const one = {
          ms,
          endMs: steadyMs + ms,
          end() {
            waiting.delete(one);
            signal.removeEventListener('abort', one.end);
            resolve();
          },
        };
        waiting.add(one);
        signal.addEventListener('abort', one.end, { once: true });
      });
    },
    advance(ms) {
      nowMs += ms;
      if (ms > 0) steadyMs += ms;
      for (const one of [...waiting]) if (one.endMs <= steadyMs) one.end();
    },
    step(ms) {
      nowMs += ms;
    },
    waits: () => [...waiting].map(({ ms }) => ms),
  };
}
