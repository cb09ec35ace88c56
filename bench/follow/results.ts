/**
 * bench/results/follow.json: every run of every part, unchanged. The file is written after each run, so an interrupted
 * benchmark keeps its results.
 */
import type { Machine } from '../machine.ts';
import { type Figures, type Outcome as RunOutcome, resultsFile } from '../repeats.ts';

export const parts = ['backfill', 'linear', 'live', 'processors', 'nodes', 'live-nodes'] as const;
export type Part = (typeof parts)[number];

export type { Figures };
export type Outcome = RunOutcome & { contestant: string; blocks: number; repeat: number };

export type PartResult = {
  machine: Machine;
  conditions: Record<string, string | number>;
  runs: Outcome[];
};

type AllResults = Record<Part, PartResult>;
export type Results = Partial<AllResults>;

export const { read: readResults, write: writeResults } = resultsFile<AllResults>('follow');
