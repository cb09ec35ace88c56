/**
 * Renders results as Markdown: each contestant's median, with the lowest and the highest run in brackets.
 */
import { spreadOf } from '../spread.ts';
import { type Outcome, type Part, parts, type Results } from './results.ts';

const liveColumns = { p50Ms: 'p50, ms', p90Ms: 'p90, ms', p99Ms: 'p99, ms', maxMs: 'max, ms' };

/** The figures of a run by their names in the results, with the headings of their columns. */
const columns: Record<Part, Record<string, string>> = {
  backfill: {
    seconds: 'time, s',
    secondsFromFirstRows: 'from first rows, s',
    transfersPerSecond: 'transfers/s',
    cpuSeconds: 'CPU, s',
    nodeCpuSeconds: 'CPU of anvil, s',
    peakMiB: 'peak, MiB',
  },
  linear: { seconds: 'time, s', transfersPerSecond: 'transfers/s', peakMiB: 'peak, MiB' },
  processors: {
    seconds: 'time, s',
    transfersPerSecond: 'transfers/s',
    cpuSeconds: 'CPU, s',
    peakMiB: 'peak, MiB',
    swaps: 'swaps',
    awards: 'awards',
  },
  live: liveColumns,
  nodes: {
    seconds: 'time, s',
    secondsFromFirstRows: 'from first rows, s',
    cpuSeconds: 'CPU, s',
    nodeCpuSeconds: 'CPU of anvil, s',
    peakMiB: 'peak, MiB',
  },
  'live-nodes': liveColumns,
};

/** Renders a table for each part that has results, below its conditions. */
export function renderTables(results: Results): string {
  return parts.flatMap((part) => renderPart(part, results)).join('\n');
}

function renderPart(part: Part, results: Results): string[] {
  const result = results[part];
  if (result === undefined) return [];
  const conditions = Object.entries({ ...result.machine, ...result.conditions });
  const figures = columns[part];
  const headings = ['', 'blocks', 'runs', ...Object.values(figures), 'lost', 'extra'];
  const groups = Map.groupBy(result.runs, ({ contestant, blocks }) => `${contestant} | ${blocks}`);
  return [
    `### ${part}`,
    '',
    conditions.map(([name, value]) => `${name} ${value}`).join(', '),
    '',
    `| ${headings.join(' | ')} |`,
    `|${'---|'.repeat(headings.length)}`,
    ...Array.from(
      groups,
      ([group, runs]) => `| ${[group, ...cellsOf(runs, Object.keys(figures))].join(' | ')} |`,
    ),
    ...result.runs.flatMap(({ contestant, repeat, failure }) =>
      failure === undefined ? [] : ['', `${contestant}, run ${repeat}: ${failure}`],
    ),
    '',
  ];
}

function cellsOf(runs: readonly Outcome[], names: readonly string[]): string[] {
  const good = runs.filter(({ failure }) => failure === undefined);
  const count =
    good.length === runs.length ? `${runs.length}` : `${runs.length}, ${runs.length - good.length} failed`;
  const total = (name: string) =>
    good.length === 0 ? '–' : `${good.reduce((sum, { figures }) => sum + (figures[name] ?? 0), 0)}`;
  return [
    count,
    ...names.map((name) => spreadOf(good.flatMap(({ figures }) => figures[name] ?? []))),
    total('lost'),
    total('extra'),
  ];
}
