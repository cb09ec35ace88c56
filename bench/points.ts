/**
 * What questions about points cost with many awards, users and months: the service as operators run it, on PostgreSQL. No
 * request is made twice, so that no answer comes from the cache.
 */
import { Agent, request } from 'node:http';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { findFreePort } from '../devnet/free-port.ts';
import { monthOf, monthPeriod } from '../src/core/month.ts';
import type { Database } from '../src/store/db.ts';
import { insertAwards } from '../src/store/points.ts';
import { awardOf } from '../test/kit/awards.ts';
import { hashOf } from '../test/kit/chain-story.ts';
import { createTestDatabase, type TestDatabase } from '../test/kit/database.ts';
import { waitUntil } from '../test/kit/wait.ts';
import { startProgram } from './program.ts';
import type { Figures } from './run.ts';
import { spreadOf } from './spread.ts';
import { percentile } from './stage.ts';

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));
/** Awards of this month and the last one, a hundred of each user. */
const AWARDS = [100_000, 10_000_000];
const AWARDS_PER_USER = 100;
/** Leaderboards: how many users, and of how many months. */
const BOARDS = [
  { users: 100_000, year: 2020, months: 12 },
  { users: 1_000_000, year: 2021, months: 3 },
];
const REQUESTS = 400;
const BATCHES = 20;
const BATCH_AWARDS = 1_000;
const PING_MS = 5;

export async function points(): Promise<Figures> {
  const rows: Figures['rows'] = [];
  for (const awards of AWARDS) {
    await using place = await createTestDatabase('postgres');
    const database = await place.open();
    const users = awards / AWARDS_PER_USER;
    await fill(place, awards, users);
    await using api = await startApi(place);
    const months = [
      monthOf(new Date()),
      monthOf(new Date(monthPeriod(monthOf(new Date())).start.getTime() - 1)),
    ];
    const questions = {
      'vs-last-month': (user: string) => `vs-last-month?user=${user}`,
      'user-by-current-month': (user: string) => `user-by-current-month?user=${user}`,
      'user-by-category': (user: string) => `user-by-category?month=${months[1]}&user=${user}`,
      user: (user: string) => `user?month=${months[1]}&user=${user}`,
    };
    for (const [what, pathOf] of Object.entries(questions)) {
      const times: number[] = [];
      for (let index = 0; index < REQUESTS; index += 1)
        times.push((await api.ask(pathOf(userOf(Math.floor(Math.random() * users))))).ms);
      const sorted = times.sort((one, other) => one - other);
      rows.push({ what, awards, users, p50Ms: percentile(sorted, 0.5), p99Ms: percentile(sorted, 0.99) });
    }
    rows.push({
      what: `write ${BATCH_AWARDS} awards`,
      awards,
      users,
      ...(await timeWrites(database, users)),
    });
    if (awards !== AWARDS.at(-1)) continue;
    for (const { users: leaders, year, months: count } of BOARDS) {
      const answers = [];
      for (let month = 1; month <= count; month += 1)
        answers.push(await api.askBeside(`leaderboard?month=${year}-${String(month).padStart(2, '0')}`));
      rows.push({
        what: 'leaderboard',
        awards,
        users: leaders,
        ms: spreadOf(answers.map(({ ms }) => ms)),
        longestPauseMs: spreadOf(answers.map(({ pauseMs }) => pauseMs)),
        mebibytes: Number(((answers[0]?.bytes ?? 0) / 2 ** 20).toFixed(1)),
      });
    }
  }
  return { conditions: { awardsPerUser: AWARDS_PER_USER, requests: REQUESTS, database: 'PostgreSQL' }, rows };
}

const userOf = (index: number) => `0x${(index + 1).toString(16).padStart(40, '0')}`;

/** Facts and sums as insertAwards makes them; the indexes of the facts afterwards, all at once. */
async function fill(place: TestDatabase, awards: number, users: number): Promise<void> {
  // Statements of minutes: the program's own connections give up on those.
  const client = new pg.Client({ connectionString: place.url });
  await client.connect();
  const boards = BOARDS.map(
    ({ users: leaders, year, months }) => `
      insert into point_month (month, user_address, points, award_count)
      select make_date(${year}, m, 1), decode(lpad(to_hex(u), 40, '0'), 'hex'), round((random() * 10000)::numeric, 4), 1
      from generate_series(1, ${months}) m, generate_series(1, ${leaders}) u;`,
  );
  await client.query(`
    set work_mem = '512MB'; set maintenance_work_mem = '1GB';
    alter table point drop constraint point_pkey;
    drop index point_user;
    insert into point (rule, version, category, user_address, points, tx_hash, ordinal, role, awarded_at, inputs)
    select 'swap', 1, (array['trading', 'staking', 'bridge'])[1 + i % 3], decode(lpad(to_hex(1 + i % ${users}), 40, '0'), 'hex'),
      round((random() * 100)::numeric, 4), sha256(int8send(i)), 0, 'user',
      date_trunc('month', now() at time zone 'UTC') at time zone 'UTC' + (random() * 60 - 30) * interval '1 day', '{}'
    from generate_series(1::bigint, ${awards}) i;
    insert into point_day
    select user_address, (awarded_at at time zone 'UTC')::date, category, rule, version, role, sum(points), count(*)
    from point group by 1, 2, 3, 4, 5, 6;
    insert into point_month (month, user_address, points, award_count)
    select date_trunc('month', awarded_at at time zone 'UTC')::date, user_address, sum(points), count(*)
    from point group by 1, 2;
    ${awards === AWARDS.at(-1) ? boards.join('') : ''}
    alter table point add primary key (tx_hash, ordinal, rule, version, role);
    create index point_user on point (user_address, awarded_at, id);`);
  // What was committed a moment ago is not marked as seen by everybody yet.
  await waitUntil(
    async () => {
      await client.query('vacuum analyze point, point_day, point_month');
      const { rows } = await client.query(
        "select bool_and(relallvisible >= relpages * 0.99) as seen from pg_class where relname in ('point', 'point_day', 'point_month')",
      );
      return rows[0]?.seen === true;
    },
    { timeoutMs: 600_000 },
  );
  await client.end();
}

/** Of so many users each, as blocks bring them. */
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

/** The API alone, with no chain to follow. */
async function startApi(place: TestDatabase) {
  const port = await findFreePort(0);
  const program = await startProgram({
    command: [process.execPath, ...process.execArgv, MAIN, 'start', '--role', 'api'],
    folder: path.dirname(MAIN),
    environment: {
      CHAINBELL_CHAIN_ID: '31337',
      CHAINBELL_CHAIN_RPC: 'http://127.0.0.1:1',
      CHAINBELL_DATABASE_URL: place.url,
      CHAINBELL_DATA_DIR: place.dataDir,
      CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64'),
      CHAINBELL_HTTP_PORT: String(port),
      CHAINBELL_METRICS_PORT: String(await findFreePort(0)),
    },
  });
  const agent = new Agent({ keepAlive: true });
  const pinger = new Agent({ keepAlive: true });
  const get = (url: string, by: Agent) =>
    new Promise<{ ms: number; bytes: number; status: number | undefined }>((resolve, reject) => {
      const startedAt = performance.now();
      request(`http://127.0.0.1:${port}${url}`, { agent: by }, (response) => {
        let bytes = 0;
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length;
        });
        response.on('end', () =>
          resolve({ ms: round(performance.now() - startedAt), bytes, status: response.statusCode }),
        );
        response.on('error', reject);
      })
        .on('error', reject)
        .end();
    });
  const ask = async (question: string) => {
    const answer = await get(`/api/points/${question}`, agent);
    if (answer.status !== 200 && answer.status !== 404) throw new Error(`${question}: ${answer.status}`);
    return answer;
  };
  await waitUntil(
    async () => {
      await program.assertAlive();
      return get('/livez', agent).then(
        ({ status }) => status === 200,
        () => false,
      );
    },
    { timeoutMs: 30_000, describe: 'the API to listen' },
  );
  for (let index = 0; index < REQUESTS; index += 1)
    await ask(`vs-last-month?user=${userOf(2 ** 40 + index)}`);
  return {
    ask,
    /** While it is asked something small every few milliseconds: its longest answer is how long nothing else went on. */
    async askBeside(question: string) {
      let isOver = false;
      let pauseMs = 0;
      const pinging = (async () => {
        while (!isOver) {
          pauseMs = Math.max(pauseMs, (await get('/livez', pinger)).ms);
          await delay(PING_MS);
        }
      })();
      const answer = await ask(question);
      isOver = true;
      await pinging;
      return { ...answer, pauseMs };
    },
    async [Symbol.asyncDispose]() {
      agent.destroy();
      pinger.destroy();
      await program[Symbol.asyncDispose]();
    },
  };
}

const round = (ms: number) => Number(ms.toFixed(2));
