/**
 * The database's clock, which can be set, beside the story's clock, which shows true time.
 */
import type { TimeSource } from '../../src/app/common-clock.ts';
import type { TestClock } from '../kit/clock.ts';

export function createCommonTime(clock: TestClock) {
  let setMs = 0;
  let followedMs = 0;
  let formerMs = 0;
  let version = 0;
  let changed = Promise.withResolvers<void>();
  const change = (ms: number) => {
    formerMs = setMs;
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
    /** The current time of a process that has followed every step. */
    now: () => new Date(clock.now().getTime() + followedMs),
    /** The latest time that a process may have while some have followed the last step and others have not. */
    latest: () => new Date(clock.now().getTime() + Math.max(formerMs, setMs)),
    /** Sets the clock forward or back. */
    step: (ms: number) => change(setMs + ms),
    /** Records that the schedule has moved. */
    follow(): void {
      followedMs = setMs;
    },
    isFollowed: () => followedMs === setMs,
    /** Undoes the last step. */
    setRight: () => change(followedMs),
    /** How often the clock was set. */
    version: () => version,
    changed: () => changed.promise,
  };
}
