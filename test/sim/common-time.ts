/**
 * The database's clock, which somebody sets, beside the story's clock, which tells true time.
 */
import type { TimeSource } from '../../src/app/common-clock.ts';
import type { TestClock } from '../kit/clock.ts';

export function createCommonTime(clock: TestClock) {
  let setMs = 0;
  let followedMs = 0;
  let version = 0;
  let changed = Promise.withResolvers<void>();
  const change = (ms: number) => {
    setMs = ms;
    version += 1;
    changed.resolve();
    changed = Promise.withResolvers();
  };
  return {
    source: {
      readWall: async () => new Date(clock.now().getTime() + setMs),
      steadyMs: clock.steadyMs,
      wait: clock.wait,
    } satisfies TimeSource,
    /** The present of a process that has followed every step. */
    now: () => new Date(clock.now().getTime() + followedMs),
    /** Somebody sets the clock. */
    step: (ms: number) => change(setMs + ms),
    /** The schedule has moved. */
    follow(): void {
      followedMs = setMs;
    },
    isFollowed: () => followedMs === setMs,
    /** Somebody sees the mistake. */
    setRight: () => change(followedMs),
    /** Counts the times that it was set. */
    version: () => version,
    changed: () => changed.promise,
  };
}
