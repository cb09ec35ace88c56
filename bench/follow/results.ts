/**
 * bench/results/follow.json: every run of every part as it was, written after each one, so that a run that is
 * interrupted keeps what it has.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import type { Machine } from '../machine.ts';

export const parts = ['backfill', 'linear', 'live', 'ledgers'] as const;
export type Part = (typeof parts)[number];

/** What one run came to; units are in the names. */
export type Figures = Record<string, number>;

export type Outcome = {
  contestant: string;
  blocks: number;
  /** From 1. */
  repeat: number;
  /** Why there are no figures. */
  failure?: string;
  figures: Figures;
};

export type PartResult = {
  machine: Machine;
  conditions: Record<string, string | number>;
  runs: Outcome[];
};

export type Results = Partial<Record<Part, PartResult>>;

const FILE = new URL('../results/follow.json', import.meta.url);

/** What is there; nothing before the first run. */
export async function readResults(): Promise<Results> {
  const text = await readFile(FILE, 'utf8').catch(() => '{}');
  return JSON.parse(text);
}

export async function writeResults(results: Results): Promise<void> {
  await mkdir(new URL('./', FILE), { recursive: true });
  await writeFile(FILE, `${JSON.stringify(results, null, 2)}\n`);
}
