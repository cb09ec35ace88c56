/**
 * Stores how long each test file took in the last run on this machine, so that the next run can start the longest files first.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FileResult } from './run-file.ts';

const RECORD = fileURLToPath(new URL('../../node_modules/.cache/test-durations.json', import.meta.url));
/** Folders with long files, for the first run on a machine. */
const LONG_FOLDERS = ['sim', 'system', 'abuse', 'faults', 'devnet', 'cli'];
const LONG_MS = 20_000;
const SHORT_MS = 2_000;

/** Sorts the groups by duration, longest first. If a long group started last, the other processors would idle at the end. */
export function longestFirst(groups: readonly string[][], known = readDurations()): string[][] {
  const expectedMs = (file: string): number => {
    const ms = known[file];
    if (typeof ms === 'number') return ms;
    return LONG_FOLDERS.includes(file.split('/')[1] ?? '') ? LONG_MS : SHORT_MS;
  };
  const sum = (group: readonly string[]) => group.reduce((ms, file) => ms + expectedMs(file), 0);
  return groups.toSorted((one, other) => sum(other) - sum(one));
}

/** Stores these durations for the next run. Does nothing on a machine where they cannot be written. */
export function keepDurations(results: readonly Pick<FileResult, 'file' | 'durationMs'>[]): void {
  const known = readDurations();
  for (const { file, durationMs } of results) known[file] = Math.round(durationMs);
  try {
    mkdirSync(path.dirname(RECORD), { recursive: true });
    writeFileSync(RECORD, `${JSON.stringify(known, null, 1)}\n`);
  } catch {
    // Another user owns node_modules, so the durations are not stored.
  }
}

function readDurations(): Record<string, unknown> {
  try {
    const read: unknown = JSON.parse(readFileSync(RECORD, 'utf8'));
    return typeof read === 'object' && read !== null ? { ...read } : {};
  } catch {
    return {};
  }
}
