/**
 * Tracks how the heads move over time: which nodes stay behind, and whether the head stays below a height.
 */
import type { Clock } from '../../core/clock.ts';

export type Progress = {
  /** Records a height that at least one honest node names. */
  noteReach(number: number): void;
  /** Records the head that a quorum names. */
  noteHead(number: number): void;
  /**
   * How many blocks a head of this height is behind. Undefined unless the chain passed this height at least
   * `LASTING_MS` ago.
   */
  blocksBehind(number: number): number | undefined;
  /**
   * Since when each head has been below this height; for one that no head has reached, since this was first called with it or a
   * lower one. Undefined unless that has lasted for `LASTING_MS`.
   */
  belowSince(number: number): Date | undefined;
  /** Since when the head has had its height. Undefined unless that has lasted for `LASTING_MS`. */
  unmovedSince(): Date | undefined;
};

/**
 * A shorter delay is normal. A load balancer may ask a lagging back end, a reorg may pass through a shorter
 * branch, or a node may be importing a large block.
 */
export const LASTING_MS = 30_000;
/** The least time between two heights that are kept. */
const STEP_MS = 1_000;
/** Falls of the head that are remembered until it recovers. Beyond that, the oldest after the first is dropped. */
const PEAKS_MAX = 64;

export function createProgress(clock: Clock): Progress {
  /** Oldest first. Keeps one height that is at least `LASTING_MS` old, as soon as there is one. */
  const reached: { number: number; atMs: number }[] = [];
  let reach = 0;
  /** Heads that no later head has reached, highest first, each with the time since which heads have been lower. */
  const peaks: { number: number; left: Instant | undefined }[] = [];
  /** The lowest height above all heads that was asked for, since then: the stored tip when nodes went back before this start. */
  let beyond: { number: number; since: Instant } | undefined;
  /** Since when the head has had its height. */
  let moved: Instant | undefined;
  const present = (): Instant => ({ at: clock.now(), ms: clock.steadyMs() });
  const ifLasting = (since: Instant | undefined) =>
    since !== undefined && clock.steadyMs() - since.ms >= LASTING_MS ? since.at : undefined;

  return {
    noteReach(number) {
      reach = number;
      const atMs = clock.steadyMs();
      const newest = reached.at(-1);
      if (newest === undefined || atMs - newest.atMs >= STEP_MS) reached.push({ number, atMs });
      while (reached[1] !== undefined && atMs - reached[1].atMs >= LASTING_MS) reached.shift();
    },
    noteHead(number) {
      if (beyond !== undefined && number >= beyond.number) beyond = undefined;
      let last = peaks.at(-1);
      if (last?.number !== number) moved = present();
      while (last !== undefined && last.number <= number) {
        peaks.pop();
        last = peaks.at(-1);
      }
      if (last !== undefined) last.left ??= present();
      peaks.push({ number, left: undefined });
      if (peaks.length > PEAKS_MAX) peaks.splice(1, 1);
    },
    blocksBehind(number) {
      const [oldest] = reached;
      if (oldest === undefined || clock.steadyMs() - oldest.atMs < LASTING_MS) return undefined;
      return number < Math.min(oldest.number, reach) ? reach - number : undefined;
    },
    belowSince(number) {
      const head = peaks.at(-1);
      if (head === undefined || head.number >= number) return undefined;
      const peak = peaks.findLast((one) => one.number >= number);
      if (peak !== undefined) return ifLasting(peak.left);
      // A follower elsewhere may store a block before this process has seen its head, again and again.
      beyond ??= { number, since: present() };
      return ifLasting(beyond.since);
    },
    unmovedSince: () => ifLasting(moved),
  };
}

/** One instant by the wall clock, for display, and by the steady clock. */
type Instant = { at: Date; ms: number };
