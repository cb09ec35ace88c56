/**
 * Measures fairness between watchers: `npm run bench -- deliver/fairness [--scenario A,B,C,D,E] [--service FOLDER] [--embedded]
 * [--seconds 90] [--baseline 60] [--friendly 60] [--every-ms 3000] [--hosts 10000] [--rows 50000] [--repeats 1]`. `--service` is the folder
 * of another checkout, with its node_modules, whose service is measured. `deliver/fairness --table` prints the last results.
 */
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { messageOf } from '../../../src/core/fault.ts';
import { describeMachine, type Machine } from '../../machine.ts';
import { type Figures, parseCount, resultsFile } from '../../repeats.ts';
import { medianOf, spreadOf } from '../../spread.ts';
import type { PhaseReport } from './measure.ts';
import { runScenario, type Scenario, type Size, scenarios } from './scenarios.ts';
import { type DatabaseKind, ROOT } from './stage.ts';
import { judge } from './verdict.ts';

/** `commit` belongs to the service, `machine.commit` to the benchmark. `repeat` counts from 1. */
type Run = {
  scenario: Scenario;
  repeat?: number;
  commit: string;
  database: DatabaseKind;
  machine: Machine;
  size: Size;
  phases: PhaseReport[];
};
type Results = { runs: Run[] };

const COUNT_MAX = 1_000_000;
const SECONDS_MAX = 3_600;
const REPEATS_MAX = 100;
const results = resultsFile<Results>('fairness');

export async function fairness(words: string[]): Promise<void> {
  const { values } = parseArgs({
    args: words,
    allowPositionals: true,
    options: {
      scenario: { type: 'string', default: Object.keys(scenarios).join(',') },
      service: { type: 'string', default: ROOT },
      embedded: { type: 'boolean', default: false },
      seconds: { type: 'string', default: '90' },
      baseline: { type: 'string', default: '60' },
      friendly: { type: 'string', default: '60' },
      'every-ms': { type: 'string', default: '3000' },
      hosts: { type: 'string', default: '10000' },
      rows: { type: 'string', default: '50000' },
      repeats: { type: 'string', default: '1' },
      table: { type: 'boolean', default: false },
    },
  });
  if (values.table) {
    process.stdout.write(renderTables((await results.read()).runs ?? []));
    return;
  }
  const everyMs = parseCount(values['every-ms'], COUNT_MAX);
  const blocksOf = (seconds: string) => Math.ceil((parseCount(seconds, SECONDS_MAX) * 1000) / everyMs);
  const size: Size = {
    everyMs,
    baselineBlocks: blocksOf(values.baseline),
    attackBlocks: blocksOf(values.seconds),
    friendlyBlocks: blocksOf(values.friendly),
    hosts: parseCount(values.hosts, COUNT_MAX),
    rows: parseCount(values.rows, COUNT_MAX),
  };
  const service = path.resolve(values.service);
  const database: DatabaseKind = values.embedded ? 'embedded' : 'postgres';
  const commit = commitOf(service);
  const wanted = values.scenario.split(',').map(parseScenario);
  for (let repeat = 1; repeat <= parseCount(values.repeats, REPEATS_MAX); repeat += 1) {
    for (const scenario of wanted) {
      const machine = describeMachine();
      const options = { service, database, isDurable: true, size } as const;
      const onProgress = (text: string) => void process.stderr.write(`${scenario}: ${text}\n`);
      try {
        const phases = await runScenario(scenario, { ...options, onProgress });
        const run = { scenario, repeat, commit, database, machine, size, phases };
        process.stdout.write(renderTables([run]));
        await keep(run);
      } catch (error) {
        // The other scenarios still run.
        process.stderr.write(`${scenario} failed: ${messageOf(error)}\n`);
        process.exitCode = 1;
      }
    }
  }
}

/** Adds a run to the file. It replaces the same repeat of the same scenario, commit and database. */
async function keep(run: Run): Promise<void> {
  const { runs = [] } = await results.read();
  const keyOf = (one: Run) => `${groupOf(one)} ${one.repeat ?? 1}`;
  await results.write({ runs: [...runs.filter((other) => keyOf(other) !== keyOf(run)), run] });
}

const groupOf = ({ scenario, commit, database }: Run) => `${scenario} ${commit} ${database}`;

function parseScenario(text: string): Scenario {
  const scenario = text.trim().toUpperCase();
  if (scenario in scenarios) return scenario as Scenario;
  throw new Error(`unknown scenario ${text}: use one of ${Object.keys(scenarios).join(', ')}`);
}

/** The commit of the checkout; ends in `+` when there are uncommitted changes. */
function commitOf(folder: string): string {
  const git = (...words: string[]) =>
    execFileSync('git', ['-C', folder, ...words], { encoding: 'utf8' }).trim();
  const isDirty = git('status', '--porcelain', '--', 'src', 'package-lock.json') !== '';
  return `${git('rev-parse', '--short=12', 'HEAD')}${isDirty ? '+' : ''}`;
}

/** The columns of the summary. The result file has further figures. */
const COLUMNS: Record<string, (figures: Figures) => string> = {
  'sent of expected': ({ sent, expected }) => `${sent} of ${expected}`,
  'row → POST p50 / p99 / max, ms': (figures) =>
    cellOf(figures, ['rowToPostP50Ms', 'rowToPostP99Ms', 'rowToPostMaxMs']),
  'new watchers served': ({ newcomersSent, newcomers }) => `${newcomersSent} of ${newcomers}`,
  'their first webhook, max ms': (figures) => cellOf(figures, ['newcomerFirstMaxMs']),
  'in strict order, sent of expected': ({ orderedSent, orderedExpected }) =>
    `${orderedSent ?? '–'} of ${orderedExpected ?? '–'}`,
  'row → POST in strict order, 10 of one block, p50 / p99, ms': (figures) =>
    cellOf(figures, ['orderedP50Ms', 'orderedP99Ms']),
  'API GET p50 / p99, ms': (figures) => cellOf(figures, ['apiGetP50Ms', 'apiGetP99Ms']),
  'API POST p50 / p99, ms': (figures) => cellOf(figures, ['apiPostP50Ms', 'apiPostP99Ms']),
  'API failures': ({ apiFailures, apiCalls }) => `${apiFailures} of ${apiCalls}`,
  'follower lag p50 / p99, ms': (figures) => cellOf(figures, ['followerLagP50Ms', 'followerLagP99Ms']),
  'memory, MiB': (figures) => cellOf(figures, ['residentPeakMiB']),
  'hostile connections': (figures) => cellOf(figures, ['hostileOpenPeak']),
  'hostile requests/s': (figures) => cellOf(figures, ['hostilePerSecond']),
  'processor time taken by other machines, %': (figures) => cellOf(figures, ['stolenPercent']),
};

function cellOf(figures: Figures, names: readonly string[]): string {
  return names.map((name) => figures[name] ?? '–').join(' / ');
}

/** Renders each run: its conditions, its phases as columns, and the requirements. Then the medians of repeated runs. */
function renderTables(runs: readonly Run[]): string {
  const repeated = [...Map.groupBy(runs, groupOf).values()].filter((group) => group.length > 1);
  return [...runs.flatMap(renderRun), ...repeated.flatMap(renderMedians)].join('\n');
}

function renderMedians(runs: readonly Run[]): string[] {
  const [first] = runs;
  if (first === undefined) return [];
  const judged = runs.map(({ scenario, phases }) => judge(scenario, phases));
  return [
    `#### ${first.scenario}: medians of ${runs.length} runs of ${first.commit}, ${first.database}`,
    '',
    '| required | limit | median (lowest to highest) | |',
    '|---|---|---|---|',
    ...(judged[0] ?? []).map(({ name, limit, isFloor }, index) => {
      const seen = judged.map((requirements) => requirements[index]?.seen ?? Number.NaN);
      const isMet = isFloor ? medianOf(seen) >= limit : medianOf(seen) <= limit;
      return `| ${name} | ${isFloor ? '≥' : '≤'} ${limit} | ${spreadOf(seen)} | ${isMet ? 'met' : '**not met**'} |`;
    }),
    '',
  ];
}

function renderRun({ scenario, commit, database, machine, size, phases }: Run): string[] {
  const { commit: benchCommit, ...computer } = machine;
  const conditions = Object.entries({ service: commit, database, ...size, ...computer, bench: benchCommit });
  const row = (cells: readonly (string | number)[]) => `| ${cells.join(' | ')} |`;
  return [
    `#### ${scenario}: ${scenarios[scenario]}`,
    '',
    conditions.map(([name, value]) => `${name} ${value}`).join(', '),
    '',
    row(['', ...phases.map(({ name }) => name)]),
    `|---|${'---|'.repeat(phases.length)}`,
    ...Object.entries(COLUMNS).map(([name, cell]) =>
      row([name, ...phases.map(({ figures }) => cell(figures))]),
    ),
    '',
    row(['required', 'limit', 'seen', '']),
    '|---|---|---|---|',
    ...judge(scenario, phases).map(({ name, limit, seen, isFloor, isMet }) =>
      row([name, `${isFloor ? '≥' : '≤'} ${limit}`, seen, isMet ? 'met' : '**not met**']),
    ),
    '',
  ];
}
