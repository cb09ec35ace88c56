/**
 * Shows where the time of an uncached leaderboard goes: in PostgreSQL, on the way to a driver, or in the service. Writes
 * bench/results/points-profile.json.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseMonth } from '../../src/domain/month.ts';
import type { Database } from '../../src/store/db/db.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import { renderLeaders } from '../../src/store/points/point-lists.ts';
import { createTestDatabase } from '../../test/kit/database.ts';
import { profileFlags, readProfiles } from '../cpu-profile.ts';
import { describeMachine } from '../machine.ts';
import { spreadOf } from '../spread.ts';
import { boardMonth, fillBoards } from './fill.ts';
import { startApi } from './service.ts';

const RESULT = new URL('../results/points-profile.json', import.meta.url);
const BOARDS = { users: 100_000, year: 2020, months: 12 };
/** Requests before the measurement of the service starts. */
const WARM_REQUESTS = 400;

export async function profilePoints(): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-profile-'));
  try {
    await using place = await createTestDatabase('postgres');
    await fillBoards(place, [BOARDS]);
    const stages = await timeStages(await place.open());
    await using api = await startApi(place, profileFlags(folder));
    for (let index = 0; index < WARM_REQUESTS; index += 1)
      await api.ask(`user-by-current-month?user=0x${index.toString(16).padStart(40, '0')}`);
    const readings = [];
    for (let month = 1; month <= BOARDS.months; month += 1)
      readings.push(await api.ask(`leaderboard?month=${boardMonth(BOARDS.year, month)}`));
    const cached = [];
    for (let month = 1; month <= BOARDS.months; month += 1)
      cached.push(await api.ask(`leaderboard?month=${boardMonth(BOARDS.year, month)}`));
    await api[Symbol.asyncDispose]();
    const rows = [
      ...Object.entries(stages).map(([stage, times]) => ({ stage, ms: spreadOf(times) })),
      {
        stage: 'the service until the first byte',
        ms: spreadOf(readings.map(({ firstByteMs }) => firstByteMs)),
      },
      { stage: 'the service until the last byte', ms: spreadOf(readings.map(({ ms }) => ms)) },
      { stage: 'the same from the cache: sending alone', ms: spreadOf(cached.map(({ ms }) => ms)) },
    ];
    console.table(rows);
    const threads = await readProfiles(folder);
    const conditions = { users: BOARDS.users, mebibytes: ((readings[0]?.bytes ?? 0) / 2 ** 20).toFixed(1) };
    const result = { scenario: 'points --profile', machine: describeMachine(), conditions, rows, threads };
    await writeFile(RESULT, `${JSON.stringify(result, null, 2)}\n`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Times every stage without the service, for each month in turn. */
async function timeStages(database: Database): Promise<Record<string, number[]>> {
  const stages: Record<string, number[]> = {};
  const reader = { bytesMax: Number.MAX_SAFE_INTEGER, onPiece() {} };
  const note = (stage: string, ms: number) => {
    stages[stage] ??= [];
    stages[stage].push(Number(ms.toFixed(1)));
  };
  for (let number = 1; number <= BOARDS.months; number += 1) {
    const month = parseMonth(boardMonth(BOARDS.year, number));
    let statement: Sql | undefined;
    const catcher: Database = {
      ...database,
      each: async (asked) => {
        statement = asked;
      },
    };
    await renderLeaders(catcher, month, reader);
    const scan = sql`select entry from point_month where month = ${`${month}-01`}::date and points <> 0
      order by minus_points, user_address`;
    note('PostgreSQL: reading the index', await explain(database, scan));
    const together = sql`select string_agg(entry, ',') from (${scan}) as entries`;
    note('PostgreSQL: the entries as one text, without pieces', await explain(database, together));
    if (statement !== undefined) note('PostgreSQL: the whole statement', await explain(database, statement));
    const startedAt = performance.now();
    await renderLeaders(database, month, reader);
    note('the statement until a driver has its answer', performance.now() - startedAt);
  }
  return stages;
}

/** The execution time that PostgreSQL reports, without sending any rows. */
async function explain(database: Database, { text, values }: Sql): Promise<number> {
  const [row] = await database.query<{ 'QUERY PLAN': [{ 'Execution Time': number }] }>({
    text: `explain (analyze, timing off, format json) ${text}`,
    values,
  });
  return row?.['QUERY PLAN'][0]['Execution Time'] ?? Number.NaN;
}
