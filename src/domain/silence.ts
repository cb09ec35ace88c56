/**
 * Notices that a voter has been silent for long. With two voters both must agree, so one that is down would stop everything.
 * Once it counts as silent, the other one is followed alone.
 */
import type { Clock } from '../core/clock.ts';

type Silences<Voter> = {
  /** Records that this voter gave no vote although it was asked, and another one gave one. */
  noteMiss(voter: Voter): void;
  /** Records that this voter has just answered. */
  end(voter: Voter): void;
  clear(): void;
  /** Since when this voter has been silent. Undefined unless that has lasted for SILENCE_MS. */
  since(voter: Voter): Date | undefined;
  /** Whether it gave no vote within this time. */
  missedWithin(voter: Voter, ms: number): boolean;
  /** No voter gives a vote, so the time until the next miss doesn't count. */
  pause(): void;
};

export const SILENCE_MS = 30_000;
/**
 * The time between two misses counts at most this much, so that it takes three of them. A process that is paused, or whose
 * database is away, asks no voter meanwhile.
 */
export const GAP_MS_MAX = 15_000;

export function createSilences<Voter>(clock: Clock): Silences<Voter> {
  const misses = new Map<Voter, { since: Date; lastMs: number; countedMs: number }>();

  return {
    noteMiss(voter) {
      const nowMs = clock.steadyMs();
      const known = misses.get(voter) ?? { since: clock.now(), lastMs: nowMs, countedMs: 0 };
      const countedMs = known.countedMs + Math.min(nowMs - known.lastMs, GAP_MS_MAX);
      misses.set(voter, { since: known.since, lastMs: nowMs, countedMs });
    },
    missedWithin(voter, ms) {
      const known = misses.get(voter);
      return known !== undefined && clock.steadyMs() - known.lastMs <= ms;
    },
    pause() {
      for (const known of misses.values()) known.lastMs = clock.steadyMs();
    },
    end: (voter) => void misses.delete(voter),
    clear: () => misses.clear(),
    since(voter) {
      const known = misses.get(voter);
      return known !== undefined && known.countedMs >= SILENCE_MS ? known.since : undefined;
    },
  };
}
