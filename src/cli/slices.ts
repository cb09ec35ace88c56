/**
 * Parses the number of slices of a watcher.
 */
import { InvalidArgumentError } from 'commander';
import { SLICES_MAX } from '../domain/shard.ts';

export function parseSlices(text: string): number {
  const slices = /^\d{1,3}$/.test(text) ? Number(text) : 0;
  if (slices < 1 || slices > SLICES_MAX)
    throw new InvalidArgumentError(`It must be a whole number from 1 to ${SLICES_MAX}.`);
  return slices;
}
