/**
 * A clock that moves only when a test moves it.
 */
import type { Clock } from '../../src/core/clock.ts';

export type TestClock = Clock & {
  /** Time goes by, and every wait whose end is reached resolves. A negative `ms` sets the clock back, as `step`. */
  advance(ms: number): void;
  /** The clock is set: `now` changes, and no time goes by. */
  step(ms: number): void;
  /** How long each wait that is under way was asked to last, oldest first. */
  waits(): number[];
};

/** Starts at `start`, noon of an ordinary day unless told otherwise. */
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
