/**
 * Random numbers that come again with their seed.
 */
import { createHash } from 'node:crypto';

/** Gives numbers from 0 to below 1. */
export function createRandom(seed: number): () => number {
  let count = 0;
  return () => {
    count += 1;
    return createHash('sha256').update(`${seed}/${count}`).digest().readUInt32BE() / 2 ** 32;
  };
}
