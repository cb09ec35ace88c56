/**
 * A clock that moves only when a test moves it.
 */
import type { Clock } from '../../src/core/clock.ts';

export type TestClock = Clock & {
  /** Moves the present; every wait whose end is reached resolves. */
  advance(ms: number): void;
  /** How long each wait that is under way was asked to last, oldest first. */
  waits(): number[];
};

/** Starts at `start`, noon of an ordinary day unless told otherwise. */
export function createTestClock(start = new Date('2025-11-20T12:00:00.000Z')): TestClock {
  let nowMs = start.getTime();
  const waiting = new Set<{ ms: number; endMs: number; end(): void }>();
  return {
    now: () => new Date(nowMs),
    wait(ms, signal) {
      return new Promise((resolve) => {
        if (ms <= 0 || signal.aborted) return resolve();
        const one = {
          ms,
          endMs: nowMs + ms,
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
      for (const one of [...waiting]) if (one.endMs <= nowMs) one.end();
    },
    waits: () => [...waiting].map(({ ms }) => ms),
  };
}
