/**
 * Measures the cost of reading points with many awards, users and months. The service runs as operators run it, on PostgreSQL.
 * A separate thread sends the requests over HTTP and measures until the last byte of the response. No request is sent twice,
 * so no response comes from the cache. `npm run bench -- points --profile` shows where a leaderboard's time goes.
 */
import { monthOf, monthPeriod } from '../src/domain/month.ts';
import type { Database } from '../src/store/db/db.ts';
import { insertAwards } from '../src/store/points/awards.ts';
import { awardOf } from '../test/kit/awards.ts';
import { hashOf } from '../test/kit/chain-story.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import type { Figures } from './figures.ts';
import { type Boards, boardMonth, fillAwards, fillBoards, userOf } from './points/fill.ts';
import { type PointsApi, startApi } from './points/service.ts';
import { spreadOf } from './spread.ts';
import { percentile } from './stage.ts';

/** Numbers of awards in this month and the last one; each user has a hundred of them. */
const AWARDS = [100_000, 10_000_000];
const AWARDS_PER_USER = 100;
const BOARDS: readonly Boards[] = [
  { users: 100_000, year: 2020, months: 12 },
  { users: 1_000_000, year: 2021, months: 4 },
];
const REQUESTS = 400;
const BATCHES = 20;
const BATCH_AWARDS = 1_000;

export async function points(): Promise<Figures> {
  const rows: Figures['rows'] = [];
  for (const awards of AWARDS) {
    await using place = await createTestDatabase('postgres');
    const database = await place.open();
    const users = awards / AWARDS_PER_USER;
    await fillAwards(place, awards, users);
    if (awards === AWARDS.at(-1)) await fillBoards(place, BOARDS);
    await using api = await startApi(place);
    rows.push(...(await timeQuestions(api, { awards, users })));
    rows.push({
      what: `write ${BATCH_AWARDS} awards`,
      awards,
      users,
      ...(await timeWrites(database, users)),
    });
    if (awards !== AWARDS.at(-1)) continue;
    for (const boards of BOARDS)
      rows.push({ what: 'leaderboard', awards, users: boards.users, ...(await timeBoards(api, boards)) });
  }
  return { conditions: { awardsPerUser: AWARDS_PER_USER, requests: REQUESTS, database: 'PostgreSQL' }, rows };
}

async function timeQuestions(api: PointsApi, { awards, users }: { awards: number; users: number }) {
  const lastMonth = monthOf(new Date(monthPeriod(monthOf(new Date())).start.getTime() - 1));
  const questions = {
    'vs-last-month': (user: string) => `vs-last-month?user=${user}`,
    'user-by-current-month': (user: string) => `user-by-current-month?user=${user}`,
    'user-by-category': (user: string) => `user-by-category?month=${lastMonth}&user=${user}`,
    user: (user: string) => `user?month=${lastMonth}&user=${user}`,
  };
  for (let index = 0; index < REQUESTS; index += 1)
    await api.ask(questions['vs-last-month'](userOf(2 ** 40 + index)));
  const rows: Figures['rows'] = [];
  for (const [what, pathOf] of Object.entries(questions)) {
    const times: number[] = [];
    for (let index = 0; index < REQUESTS; index += 1)
      times.push((await api.ask(pathOf(userOf(Math.floor(Math.random() * users))))).ms);
    const sorted = times.sort((one, other) => one - other);
    rows.push({ what, awards, users, p50Ms: percentile(sorted, 0.5), p99Ms: percentile(sorted, 0.99) });
  }
  return rows;
}

/** Reads half of the months alone, and the other half while small requests arrive all the time. */
async function timeBoards(api: PointsApi, { year, months }: Boards) {
  const alone = [];
  const beside = [];
  for (let month = 1; month <= months; month += 1) {
    const question = `leaderboard?month=${boardMonth(year, month)}`;
    if (month <= months / 2) alone.push(await api.ask(question));
    else beside.push(await api.askBeside(question));
  }
  return {
    ms: spreadOf(alone.map(({ ms }) => ms)),
    firstByteMs: spreadOf(alone.map(({ firstByteMs }) => firstByteMs)),
    longestPauseMs: spreadOf(beside.map(({ pauseMs }) => pauseMs)),
    mebibytes: Number(((alone[0]?.bytes ?? 0) / 2 ** 20).toFixed(1)),
  };
}

/** Times writes of awards for this many users each, as blocks bring them. */
async function timeWrites(database: Database, users: number) {
  const times: number[] = [];
  for (let batch = 0; batch < BATCHES; batch += 1) {
    const awards = Array.from({ length: BATCH_AWARDS }, (_, index) =>
      awardOf({
        user: `0x${(1 + Math.floor(Math.random() * users)).toString(16).padStart(40, '0')}`,
        txHash: hashOf(batch * BATCH_AWARDS + index),
        awardedAt: new Date(),
      }),
    );
    const startedAt = performance.now();
    await database.transaction((tx) => insertAwards(tx, awards));
    times.push(performance.now() - startedAt);
  }
  const sorted = times.sort((one, other) => one - other);
  return { p50Ms: percentile(sorted, 0.5), p99Ms: percentile(sorted, 0.99) };
}
