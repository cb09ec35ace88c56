/**
 * How the heads move over time: which nodes stay behind, and whether the head has fallen below a height for
 * good.
 */
import type { Clock } from '../../core/clock.ts';

export type Progress = {
  /** Notes a height that at least one honest node names. */
  noteReach(number: number): void;
  /** Notes the head that a quorum names. */
  noteHead(number: number): void;
  /**
   * How far a head of this height is behind, if the chain passed it at least `LASTING_MS` ago; otherwise
   * undefined.
   */
  blocksBehind(number: number): number | undefined;
  /** Since when each head has been below this height; undefined unless that has lasted for `LASTING_MS`. */
  belowSince(number: number): Date | undefined;
  /** Since when the head has not changed its height; undefined unless that has lasted for `LASTING_MS`. */
  unmovedSince(): Date | undefined;
};

/**
 * Less than this is normal: a load balancer asks a back end that lags, a reorg passes through a shorter
 * branch, a node imports a large block.
 */
export const LASTING_MS = 30_000;
/** Heights are kept in steps of a second. */
const STEP_MS = 1_000;
/** Falls without a recovery between them; of more, the ones after the first are forgotten. */
const PEAKS_MAX = 64;

export function createProgress(clock: Clock): Progress {
  /** Oldest first; the first one is at least `LASTING_MS` old as soon as there is such a one. */
  const reached: { number: number; atMs: number }[] = [];
  let reach = 0;
  /** Heads that no later one has reached, highest first, each with the time from which on heads were lower. */
  const peaks: { number: number; left: Instant | undefined }[] = [];
  let first: Instant | undefined;
  /** Since when the head has its height. */
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
      first ??= present();
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
      return ifLasting(peak === undefined ? first : peak.left);
    },
    unmovedSince: () => ifLasting(moved),
  };
}

/** By the wall clock, for display, and by the steady one. */
type Instant = { at: Date; ms: number };
