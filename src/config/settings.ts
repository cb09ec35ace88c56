/**
 * A configuration on its way to being checked: plain values, and for each where it came from.
 */
import type { LineCounter } from 'yaml';
import { parentPointer, setAt } from './pointer.ts';

/** Offsets into the file: first character, and the one after the last. */
export type Range = readonly [start: number, end: number];

/** A place in the file (`key` is absent for a list's entry), a variable of the environment, or the calling program. */
export type Place = { key?: Range; value: Range } | { variable: string } | { program: true };

export type SourceFile = {
  /** As the user named it. */
  file: string;
  text: string;
  lines: LineCounter;
};

export type Settings = {
  /** Absent when everything comes from the environment. */
  source?: SourceFile;
  values: Record<string, unknown>;
  /** By JSON pointer; a value without an entry came with the nearest one above it. */
  places: Map<string, Place>;
  /** Pointers of the texts that came out of variables, which have the type that their key asks for. */
  fromVariables: Set<string>;
};

/** Puts a value from elsewhere over what the file says; what was known of the places below is forgotten. */
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

/** Where a value came from, or else the nearest key above it. */
export function nearestPlace(settings: Settings, pointer: string): Place | undefined {
  for (let at = pointer; ; at = parentPointer(at)) {
    const place = settings.places.get(at);
    if (place !== undefined || at === '') return place;
  }
}
