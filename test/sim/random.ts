/**
 * Random choices from a seed. The same seed makes the same choices on every machine.
 */
import { hash } from 'node:crypto';

export type Random = {
  /** A whole number from `min` to `max`. */
  between(min: number, max: number): number;
  chance(probability: number): boolean;
  /** One of the items. There must be at least one. */
  pick<T>(items: readonly T[]): T;
};

export function createRandom(seed: number): Random {
  let count = 0;
  /** At least 0 and below 1. */
  const share = (): number => {
    count += 1;
    return hash('sha256', `${seed} ${count}`, 'buffer').readUInt32BE() / 2 ** 32;
  };
  const between = (min: number, max: number) => min + Math.floor(share() * (max - min + 1));
  return {
    between,
    chance: (probability) => share() < probability,
    pick(items) {
      const [item] = items.slice(between(0, items.length - 1));
      if (item === undefined) throw new RangeError('nothing to pick from');
      return item;
    },
  };
}
