/**
 * An amount that is used up and grows again with time, such as the bytes that a node may send.
 */
import type { Clock } from '../../core/clock.ts';

export type Allowance = {
  /** Takes the amount. False, and nothing is taken, if less is left. */
  take(amount: number): boolean;
  /** Gives back an amount, up to `max`. */
  give(amount: number): void;
};

/** Starts with `max`, and grows by `perSecond` up to it. */
export function createAllowance(
  clock: Clock,
  { max, perSecond }: { max: number; perSecond: number },
): Allowance {
  let left = max;
  let atMs = clock.steadyMs();
  const give = (amount: number) => {
    left = Math.min(max, left + amount);
  };
  return {
    give,
    take(amount) {
      const nowMs = clock.steadyMs();
      give(((nowMs - atMs) / 1_000) * perSecond);
      atMs = nowMs;
      if (left < amount) return false;
      left -= amount;
      return true;
    },
  };
}
