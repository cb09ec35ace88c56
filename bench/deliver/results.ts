/**
 * bench/results/deliver.json: every run of every part, unchanged. The file is written after each run.
 */
import type { Machine } from '../machine.ts';
import { type Figures, type Outcome as RunOutcome, resultsFile } from '../repeats.ts';
import { spreadOf } from '../spread.ts';

export const parts = [
  ...(['http', 'https', 'processes', 'choose', 'neighbour', 'crowd', 'block', 'takeover'] as const),
];
export type Part = (typeof parts)[number];

export type { Figures };
export type Outcome = RunOutcome & { contestant: string; repeat: number };
export type PartResult = { machine: Machine; conditions: Record<string, string | number>; runs: Outcome[] };
type AllResults = Record<Part, PartResult>;
export type Results = Partial<AllResults>;

export const { read: readResults, write: writeResults } = resultsFile<AllResults>('deliver');

/** Renders a Markdown table for each part: medians, with the lowest and the highest run in brackets. */
export function renderTables(results: Results): string {
  return parts.flatMap((part) => renderPart(part, results[part])).join('\n');
}

function renderPart(part: Part, result: PartResult | undefined): string[] {
  if (result === undefined) return [];
  const names = [...new Set(result.runs.flatMap(({ figures }) => Object.keys(figures)))];
  const conditions = Object.entries({ ...result.machine, ...result.conditions });
  return [
    `### ${part}`,
    '',
    conditions.map(([name, value]) => `${name} ${value}`).join(', '),
    '',
    `| | runs | ${names.join(' | ')} |`,
    `|---|---|${'---|'.repeat(names.length)}`,
    ...Array.from(
      Map.groupBy(result.runs, ({ contestant }) => contestant),
      ([contestant, runs]) => {
        const cells = names.map((name) => spreadOf(runs.flatMap(({ figures }) => figures[name] ?? [])));
        return `| ${[contestant, runs.length, ...cells].join(' | ')} |`;
      },
    ),
    ...result.runs.flatMap(({ contestant, repeat, failure }) =>
      failure === undefined ? [] : ['', `${contestant}, run ${repeat}: ${failure}`],
    ),
    '',
  ];
}
