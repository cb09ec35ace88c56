/**
 * What lies in a list or a map of the configuration, with its place.
 */
import { childPointer, findAt } from './pointer.ts';

export type Entry = { pointer: string; value: unknown };

/** The entries of a list or a map, none where there is neither. */
export function entriesOf(values: unknown, pointer: string): (Entry & { key: string })[] {
  const parent = findAt(values, pointer);
  if (typeof parent !== 'object' || parent === null) return [];
  return Object.entries(parent).map(([key, value]) => ({ pointer: childPointer(pointer, key), key, value }));
}
