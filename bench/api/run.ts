/**
 * Compares cached responses of Chainbell's public API with Nitro's. Both read the same tables of one PostgreSQL.
 * `npm run bench -- api [--repeats 5] [--seconds 5]` measures; `api --table` prints the last results. Needs wrk on the PATH.
 */
import { loadavg } from 'node:os';
import { isDeepStrictEqual, parseArgs } from 'node:util';
import { migrate } from '../../src/store/db/migrate.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { createTestDatabase } from '../../test/kit/database.ts';
import { startDurableServer } from '../deliver/stage.ts';
import { describeMachine, type Machine } from '../machine.ts';
import { inTurn, parseCount, resultsFile } from '../repeats.ts';
import { spreadOf } from '../spread.ts';
import { type Contestant, chainbell, nitro } from './contestants.ts';
import { CONNECTIONS, type Load, load } from './load.ts';

type Run = { what: string; contestant: string; repeat: number; figures: Load & Record<string, number> };
type Results = { machine: Machine; conditions: Record<string, string | number>; runs: Run[] };

const file = resultsFile<Results>('api');
const REPEATS_MAX = 100;
const SECONDS_MAX = 60;
/** A leaderboard of this many users is 100 KB of JSON. */
const USERS = 1_500;
const PATHS = {
  price: '/api/price/native',
  leaderboard: '/api/points/leaderboard?month=2026-01',
};
const WARM_UP_SECONDS = 2;

export async function api(words: string[]): Promise<void> {
  const { values } = parseArgs({
    args: words.slice(1),
    options: {
      repeats: { type: 'string', default: '5' },
      seconds: { type: 'string', default: '5' },
      table: { type: 'boolean', default: false },
    },
  });
  if (values.table) {
    process.stdout.write(renderTable(await file.read()));
    return;
  }
  await using _server = await startDurableServer();
  await using database = await createTestDatabase('postgres');
  await fill(database.url);
  const contestants = [chainbell, await nitro()];
  await compareAnswers(contestants, database.url);
  const seconds = parseCount(values.seconds, SECONDS_MAX);
  const repeats = parseCount(values.repeats, REPEATS_MAX);
  const results: Results = {
    machine: describeMachine(),
    conditions: { connections: CONNECTIONS, seconds, generator: 'wrk on the same machine', users: USERS },
    runs: [],
  };
  for (let repeat = 1; repeat <= repeats; repeat += 1) {
    for (const contestant of inTurn(contestants, repeat)) {
      for (const run of await measure(contestant, database.url, { repeat, seconds })) {
        results.runs.push(run);
        process.stdout.write(`${JSON.stringify(run)}\n`);
      }
      await file.write(results);
    }
  }
  process.stdout.write(renderTable(results));
}

/** Stores a price and the points of one month. */
async function fill(url: string): Promise<void> {
  const database = await openDatabase({ url, dataDir: '' });
  try {
    await migrate(database);
    await database.script(`
      insert into price (asset, price, observed_at, source) values ('ETH', 2500.25, clock_timestamp(), 'bench');
      insert into point_month (month, user_address, points, award_count)
      select '2026-01-01', decode(substr(md5(n::text) || md5('user ' || n), 1, 40), 'hex'), n * 12.25, 1
      from generate_series(1, ${USERS}) as n;`);
  } finally {
    await database.close();
  }
}

/** @throws Error when the contestants answer differently, because then they don't do the same work. */
async function compareAnswers(contestants: readonly Contestant[], databaseUrl: string): Promise<void> {
  for (const path of Object.values(PATHS)) {
    const answers: unknown[] = [];
    for (const contestant of contestants) {
      await using contending = await contestant.start(databaseUrl);
      const answer = await fetch(contending.url + path);
      answers.push(await answer.json());
    }
    for (const answer of answers)
      if (!isDeepStrictEqual(answer, answers[0])) throw new Error(`the answers to ${path} differ`);
  }
}

/** Measures both bodies with one process. Each body is cached before its measurement starts. */
async function measure(
  contestant: Contestant,
  databaseUrl: string,
  { repeat, seconds }: { repeat: number; seconds: number },
): Promise<Run[]> {
  await using contending = await contestant.start(databaseUrl);
  const runs: Run[] = [];
  for (const [what, path] of Object.entries(PATHS)) {
    await load(contending.url + path, WARM_UP_SECONDS);
    const machineLoad = Number(loadavg()[0]?.toFixed(1));
    const before = contending.program.usage().cpuSeconds;
    const figures = await load(contending.url + path, seconds);
    const { cpuSeconds, peakMiB } = contending.program.usage();
    const cpu = Number((cpuSeconds - before).toFixed(2));
    runs.push({
      ...{ what, contestant: contestant.name, repeat },
      figures: { load: machineLoad, ...figures, cpuSeconds: cpu, peakMiB },
    });
  }
  return runs;
}

/** Renders Markdown: medians, with the lowest and the highest run in brackets. */
function renderTable({ machine, conditions, runs = [] }: Partial<Results>): string {
  const names = [...new Set(runs.flatMap(({ figures }) => Object.keys(figures)))];
  const groups = Map.groupBy(runs, ({ what, contestant }) => `${what} | ${contestant}`);
  const rows = Array.from(groups, ([name, group]) => {
    const cells = names.map((figure) => spreadOf(group.flatMap(({ figures }) => figures[figure] ?? [])));
    return `| ${[name, group.length, ...cells].join(' | ')} |`;
  });
  return [
    Object.entries({ ...machine, ...conditions })
      .map(([name, value]) => `${name} ${value}`)
      .join(', '),
    '',
    `| | | runs | ${names.join(' | ')} |`,
    `|---|---|---|${'---|'.repeat(names.length)}`,
    ...rows.sort(),
    '',
  ].join('\n');
}
