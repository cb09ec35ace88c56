/**
 * Measures the speed of progress, averaged over the last 30 seconds.
 */
import type { Clock } from './clock.ts';

export type ProgressRate = {
  add(count: number): void;
  /** Average over the last 30 seconds, or since the start if that is more recent. 0 at first. */
  perSecond(): number;
};

const WINDOW_MS = 30_000;
/** Samples are at least this far apart, so 31 of them span the window. */
const SAMPLE_MS_MIN = 1_000;

export function createProgressRate(clock: Clock): ProgressRate {
  let total = 0;
  const samples = [{ atMs: clock.now().getTime(), total }];
  return {
    add(count) {
      total += count;
      const nowMs = clock.now().getTime();
      if (nowMs - (samples.at(-1)?.atMs ?? 0) < SAMPLE_MS_MIN) return;
      samples.push({ atMs: nowMs, total });
      // Keep one sample that is older than the window, so that the window is fully covered.
      while (samples.length > 2 && nowMs - (samples[1]?.atMs ?? nowMs) >= WINDOW_MS) samples.shift();
    },
    perSecond() {
      const [oldest] = samples;
      const elapsedMs = clock.now().getTime() - (oldest?.atMs ?? 0);
      return elapsedMs <= 0 ? 0 : ((total - (oldest?.total ?? 0)) * 1000) / elapsedMs;
    },
  };
}
