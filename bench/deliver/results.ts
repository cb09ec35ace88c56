/**
 * bench/results/deliver.json: every run of every part as it was, written after each one.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import type { Machine } from '../machine.ts';
import { spreadOf } from '../spread.ts';

export const parts = ['http', 'https', 'choose', 'neighbour', 'crowd', 'block', 'takeover'] as const;
export type Part = (typeof parts)[number];

/** What one run came to; units are in the names. */
export type Figures = Record<string, number>;
export type Outcome = { contestant: string; repeat: number; failure?: string; figures: Figures };
export type PartResult = { machine: Machine; conditions: Record<string, string | number>; runs: Outcome[] };
export type Results = Partial<Record<Part, PartResult>>;

const FILE = new URL('../results/deliver.json', import.meta.url);

/** What is there; nothing before the first run. */
export async function readResults(): Promise<Results> {
  return JSON.parse(await readFile(FILE, 'utf8').catch(() => '{}'));
}

export async function writeResults(results: Results): Promise<void> {
  await mkdir(new URL('./', FILE), { recursive: true });
  await writeFile(FILE, `${JSON.stringify(results, null, 2)}\n`);
}

/** A Markdown table for each part: medians and, in brackets, the lowest and the highest of the runs. */
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
