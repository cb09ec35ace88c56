/**
 * Random numbers that a seed reproduces.
 */
import { createHash } from 'node:crypto';

/** Returns a generator of numbers from 0 up to, but excluding, 1. */
export function createRandom(seed: number): () => number {
  let count = 0;
  return () => {
    count += 1;
    return createHash('sha256').update(`${seed}/${count}`).digest().readUInt32BE() / 2 ** 32;
  };
}
