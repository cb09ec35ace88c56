/**
 * How fast something goes, for people who wait: an average over the last half minute.
 */
import type { Clock } from './clock.ts';

export type Pace = {
  add(count: number): void;
  /** Of the last 30 seconds, or since the beginning when that is less; 0 at first. */
  perSecond(): number;
};

const WINDOW_MS = 30_000;
/** Samples are at least this far apart: 31 of them span the window. */
const SAMPLE_MS_MIN = 1_000;

export function createPace(clock: Clock): Pace {
  let total = 0;
  const samples = [{ atMs: clock.now().getTime(), total }];
  return {
    add(count) {
      total += count;
      const nowMs = clock.now().getTime();
      if (nowMs - (samples.at(-1)?.atMs ?? 0) < SAMPLE_MS_MIN) return;
      samples.push({ atMs: nowMs, total });
      // The oldest one that is kept is the newest that is older than the window.
      while (samples.length > 2 && nowMs - (samples[1]?.atMs ?? nowMs) >= WINDOW_MS) samples.shift();
    },
    perSecond() {
      const [oldest] = samples;
      const elapsedMs = clock.now().getTime() - (oldest?.atMs ?? 0);
      return elapsedMs <= 0 ? 0 : ((total - (oldest?.total ?? 0)) * 1000) / elapsedMs;
    },
  };
}
