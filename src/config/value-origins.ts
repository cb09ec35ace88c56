/**
 * Configuration values before they are checked, and where each came from.
 */
import type { LineCounter } from 'yaml';
import { parentPointer, setAt } from './pointer.ts';

/** Offsets into the file: first character, and the one after the last. */
export type Range = readonly [start: number, end: number];

/** A place in the file (list entries have no `key`), an environment variable, or the calling program. */
export type Place = { key?: Range; value: Range } | { variable: string } | { program: true };

export type SourceFile = {
  /** Path as the user gave it. */
  file: string;
  text: string;
  lines: LineCounter;
};

export type Settings = {
  /** Absent when everything comes from the environment. */
  source?: SourceFile;
  values: Record<string, unknown>;
  /** By JSON pointer. A value without an entry has the origin of the nearest key above it. */
  places: Map<string, Place>;
  /** Pointers of the texts from variables, which must be converted to the type of their key. */
  fromVariables: Set<string>;
};

/** Replaces a value and its origin, and drops the origins of everything below it. */
export function replaceValue(
  settings: Settings,
  pointer: string,
  given: { value: unknown; place: Place },
): void {
  for (const known of [...settings.places.keys(), ...settings.fromVariables]) {
    if (known !== pointer && !known.startsWith(`${pointer}/`)) continue;
    settings.places.delete(known);
    settings.fromVariables.delete(known);
  }
  setAt(settings.values, pointer, given.value);
  settings.places.set(pointer, given.place);
}

/** The origin of a value, or of the nearest key above it. */
export function nearestPlace(settings: Settings, pointer: string): Place | undefined {
  for (let at = pointer; ; at = parentPointer(at)) {
    const place = settings.places.get(at);
    if (place !== undefined || at === '') return place;
  }
}
