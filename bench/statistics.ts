/**
 * Measures statistics: how long they take over ten million attempts of 30 days, how fast attempts are added up, and in pairs of
 * runs what that costs deliveries. A run without it holds the lock under which attempts are added up.
 */
import { readFileSync } from 'node:fs';
import { performance } from 'node:perf_hooks';
import type { Database } from '../src/store/db/db.ts';
import { sql } from '../src/store/db/sql.ts';
import { createDeliveryCount } from '../src/store/delivery/count-deliveries.ts';
import {
  type Period,
  readReceiverStatistics,
  readStatistics,
  type StatisticsScope,
} from '../src/store/delivery/statistics.ts';
import { addressOf, watchAddress } from '../test/kit/chain-story.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import { waitUntil } from '../test/kit/wait.ts';
import { startDurableServer, startSink } from './deliver/stage.ts';
import { type Contestant, chainbell, throughput } from './deliver/throughput.ts';
import type { Figures } from './figures.ts';
import { inTurn } from './repeats.ts';
import { spreadOf } from './spread.ts';
import { percentile } from './stage.ts';
import { DAY_MS, startStore, timesOf } from './stored-deliveries.ts';

const ATTEMPTS = 10_000_000;
const DAYS = 30;
const WATCHERS = 8;
const RECEIVERS = 20;
const RECORDS_PER_RECEIVER = 250;
/** A watcher with many receivers, beside the others. */
const WIDE_WATCHER = WATCHERS + 1;
const WIDE_RECEIVERS = 1_000;
const PERIODS = ['24h', '30d'] as const;
/** As many as a read of statistics makes. Their times are those of the machine. */
const STATEMENTS = 4;
const ROUNDS = 1_000;
const QUIET_MS_MAX = 300_000;
/** USER_HZ of Linux. */
const TICKS_PER_SECOND = 100;
const REPEATS = 5;
/** Enough for several counts in each run. */
const DELIVERIES = 100_000;
/** As in src/store/delivery/count-deliveries.ts. */
const STATISTICS_LOCK = 0x6362_0009;
/** One in so many attempts fails, and another one follows it. */
const FAILURE_EVERY = 50;

export async function statistics(): Promise<Figures> {
  const rows = [...(await measureReads()), ...(await measureCost())];
  const conditions = {
    attempts: ATTEMPTS,
    days: DAYS,
    watchers: WATCHERS,
    receiversEach: RECEIVERS,
    rounds: ROUNDS,
  };
  return {
    conditions: { ...conditions, wideReceivers: WIDE_RECEIVERS, deliveries: DELIVERIES, repeats: REPEATS },
    rows,
  };
}

async function measureReads(): Promise<Record<string, string | number>[]> {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  const { clock, prune } = await startStore(database, 2 * DAYS * DAY_MS);
  await watchAll(database);
  for (let day = 0; day < DAYS; day += 1) {
    if (day > 0) clock.advance(DAY_MS);
    await prune();
    await fillDay(database, clock.now());
  }
  await database.query(sql`vacuum analyze notification`);
  await database.query(sql`vacuum analyze delivery_attempt`);
  const processor = createProcessorTimer(database);
  const count = createDeliveryCount({
    ...{ database: processor.database, clock, attemptsMs: 2 * DAYS * DAY_MS },
  });
  const batches: number[] = [];
  for (let isDone = false; !isDone; ) {
    batches.push(...(await timesOf(1, count.step)));
    const [row] = await database.query<{ is_done: boolean }>(sql`
      select counted_id = (select last_value from delivery_attempt_id_seq) as is_done from statistics_state`);
    isDone = row?.is_done ?? false;
  }
  const seconds = batches.reduce((sum, ms) => sum + ms, 0) / 1_000;
  const addingSeconds = processor.seconds();
  const parts: number[] = [];
  // The next hour and day, so that windows of all receivers are built.
  clock.advance(DAY_MS);
  do parts.push(...(await timesOf(1, count.step)));
  while (!(await areWindowsBuilt(database)));
  await database.query(sql`vacuum analyze delivery_sum`);
  await database.query(sql`vacuum analyze record_delivery_sum`);
  await untilQuiet(database);
  const [sizes] = await database.query<{ sums: number; records: number; attempts: number }>(sql`
    select (select count(*) from delivery_attempt) as attempts, pg_total_relation_size('delivery_sum') as sums,
      (select sum(pg_total_relation_size(relid)) from pg_partition_tree('record_delivery_sum'))::bigint as records`);
  const now = clock.now();
  const [record] = await database.query<{ id: string }>(sql`
    select watched_address_id::text as id from record_delivery_sum where shard_id = 1 limit 1`);
  const scopes: [what: string, scope: StatisticsScope][] = [
    ['watcher', { watcherId: 1 }],
    ['one receiver', { watcherId: 1, origin: 'https://receiver1.example:443' }],
    ['one watched address', { watcherId: 1, recordId: record?.id }],
    ['all watchers', {}],
  ];
  const rows: Record<string, string | number>[] = [
    {
      what: 'attempts added up',
      perSecond: Math.round((sizes?.attempts ?? 0) / seconds),
      processorMicrosecondsEach: Number(((1e6 * addingSeconds) / (sizes?.attempts ?? 1)).toFixed(1)),
      batchP99Ms: percentile(
        batches.toSorted((one, other) => one - other),
        0.99,
      ),
      sumsMiB: mebibytes(sizes?.sums),
      recordSumsMiB: mebibytes(sizes?.records),
    },
    {
      what: 'windows of all receivers built, both periods',
      steps: parts.length,
      ms: Math.round(parts.reduce((sum, ms) => sum + ms, 0)),
      longestStepMs: Math.round(Math.max(...parts)),
    },
  ];
  return [...rows, ...(await timeReads(database, scopes, now))];
}

/** Whether the windows after the first are built. */
async function areWindowsBuilt(database: Database): Promise<boolean> {
  const [row] = await database.query<{ are_built: boolean }>(
    sql`select bool_and(built_parts = parts and previous is not null) as are_built from receiver_window`,
  );
  return row?.are_built ?? false;
}

/** Waits until PostgreSQL has written what was loaded, and vacuumed it. */
async function untilQuiet(database: Database): Promise<void> {
  await database.query(sql`checkpoint`);
  await waitUntil(
    async () => {
      const workers = await database.query(
        sql`select from pg_stat_activity where backend_type = 'autovacuum worker'`,
      );
      return workers.length === 0;
    },
    { timeoutMs: QUIET_MS_MAX, pollMs: 1_000, describe: 'autovacuum to end' },
  );
}

/** Reads of statistics and of lists of receivers, in both periods, and statements without work to compare them with. */
async function timeReads(
  database: Database,
  scopes: readonly [what: string, scope: StatisticsScope][],
  now: Date,
): Promise<Record<string, string | number>[]> {
  const rows: Record<string, string | number>[] = [];
  const readNothing = async () => {
    for (let statement = 0; statement < STATEMENTS; statement += 1) await database.query(sql`select 1`);
  };
  for (const period of PERIODS) {
    rows.push(await timesRow(`${STATEMENTS} statements that read nothing, before ${period}`, readNothing));
    for (const [what, scope] of scopes)
      rows.push(await timesRow(`${what}, ${period}`, () => readStatistics(database, scope, { period, now })));
    for (const [what, watcherId] of [
      [`${RECEIVERS} receivers`, 1],
      [`${WIDE_RECEIVERS} receivers`, WIDE_WATCHER],
      ['receivers of all watchers', undefined],
    ] as const)
      rows.push(await timesRow(`${what}, ${period}`, () => readReceivers(database, watcherId, period)));
  }
  return rows;
}

/** A database whose transactions add the processor time of their server process to a sum. proc(5): utime and stime. */
function createProcessorTimer(database: Database): { database: Database; seconds(): number } {
  let seconds = 0;
  const read = (pid: number): number => {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
  };
  return {
    database: {
      ...database,
      transaction: (work) =>
        database.transaction(async (tx) => {
          const [row] = await tx.query<{ pid: number }>(sql`select pg_backend_pid() as pid`);
          const before = read(row?.pid ?? 0);
          const result = await work(tx);
          seconds += read(row?.pid ?? 0) - before;
          return result;
        }),
    },
    seconds: () => seconds,
  };
}

const readReceivers = (database: Database, watcherId: number | undefined, period: Period) =>
  readReceiverStatistics(database, watcherId, { period, order: 'slowest', limit: 100 });

const mebibytes = (bytes = 0) => Math.round(bytes / 2 ** 20);

async function timesRow(
  what: string,
  work: () => Promise<unknown>,
): Promise<Record<string, string | number>> {
  const times = await timesOf(ROUNDS, work);
  return { what, p50Ms: percentile(times, 0.5), p99Ms: percentile(times, 0.99) };
}

async function watchAll(database: Database): Promise<void> {
  const wide = Array.from({ length: WIDE_RECEIVERS }, (_, index) => ({
    watcherId: WIDE_WATCHER,
    receiver: index,
  }));
  const usual = Array.from({ length: WATCHERS * RECEIVERS }, (_, index) => ({
    ...{ watcherId: 1 + (index % WATCHERS), receiver: Math.floor(index / WATCHERS) },
  }));
  for (const [index, { watcherId, receiver }] of [...usual, ...wide].entries())
    await watchAddress(database, {
      watcherId,
      address: addressOf(0x2000_0000 + index),
      url: `https://receiver${receiver}.example/hook`,
    });
  // Further records of each receiver.
  await database.query(sql`
    insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at, updated_at)
    select w.shard_id, (left(gen_random_uuid()::text, 34) || '00')::uuid, w.watcher_id, w.lane_id,
      decode(lpad(to_hex(x'30000000'::bigint + (row_number() over ())), 40, '0'), 'hex'), true, true, w.webhook_url, w.created_at, w.updated_at
    from watched_address w cross join generate_series(2, ${RECORDS_PER_RECEIVER}::int) 
    where w.watcher_id <= ${WATCHERS} and w.address >= decode(lpad('20000000', 40, '0'), 'hex')`);
  await database.query(sql`analyze watched_address`);
}

/** Processed notifications of one day with their attempts, spread over the day. */
async function fillDay(database: Database, start: Date): Promise<void> {
  const [{ records } = { records: 1 }] = await database.query<{ records: number }>(
    sql`select count(*) as records from watched_address`,
  );
  const count = Math.round(ATTEMPTS / DAYS / (1 + 1 / FAILURE_EVERY));
  await database.query(sql`
    with records as materialized (
      select shard_id, id, lane_id, row_number() over (order by random()) - 1 as place from watched_address
    ), made as materialized (
      select nextval('notification_id_seq') as id, r.shard_id, r.id as record_id, r.lane_id, n,
        ${start}::timestamptz + n * ${DAY_MS / count}::double precision * interval '1 ms' as at
      from generate_series(0, ${count - 1}::int) as n join records r on r.place = n % ${records}::bigint
      order by n
    ), written as (
      insert into notification (shard_id, id, created_at, block_number, ordinal, kind, watched_address_id, tx_hash, sender,
        receiver, amount)
      select shard_id, id, at, n, 0, 'c', record_id, sha256(id::text::bytea), decode(repeat('11', 20), 'hex'),
        decode(repeat('22', 20), 'hex'), 1 + n
      from made order by id
    )
    insert into delivery_attempt (shard_id, notification_id, lane_id, started_at, duration_ms, outcome, status, failures)
    select shard_id, m.id, lane_id, at + try * interval '1 minute', 20 + (random() * random() * 900)::int,
      case when tries > try + 1 then 'http_5xx' else 'success' end, case when tries > try + 1 then 503 else 204 end,
      case when tries = try + 1 then try end
    from made m cross join lateral (select case when n % ${FAILURE_EVERY}::int = 0 then 2 else 1 end as tries) as t
    cross join lateral generate_series(0, tries - 1) as try
    order by m.id, try`);
}

async function measureCost(): Promise<Record<string, string | number>[]> {
  await using _server = await startDurableServer();
  await using sink = await startSink('http');
  const counting = chainbell(20);
  const without: Contestant = {
    name: 'without statistics',
    async prepare(run) {
      await run.client.query('select pg_advisory_lock($1)', [STATISTICS_LOCK]);
      return counting.prepare(run);
    },
  };
  const tasks = [{ ...counting, name: 'with statistics' }, without];
  const runs = new Map(tasks.map(({ name }) => [name, [] as { rate: number; microseconds: number }[]]));
  for (let repeat = 1; repeat <= REPEATS; repeat += 1) {
    for (const task of inTurn(tasks, repeat)) {
      const startedAt = performance.now();
      const { deliveriesPerSecond = Number.NaN, coresBusy = Number.NaN } = await throughput(
        task,
        sink,
        DELIVERIES,
      );
      const microseconds = Math.round((1e6 * coresBusy) / deliveriesPerSecond);
      runs.get(task.name)?.push({ rate: deliveriesPerSecond, microseconds });
      process.stderr.write(
        `${task.name}: ${deliveriesPerSecond} deliveries/s, ${microseconds} µs each, ${Math.round((performance.now() - startedAt) / 1_000)} s\n`,
      );
    }
  }
  const [one = [], other = []] = runs.values();
  const shares = (share: (index: number) => number) =>
    spreadOf(one.map((_, index) => Number((100 * share(index)).toFixed(1))));
  return [
    ...Array.from(runs, ([what, values]) => ({
      what,
      deliveriesPerSecond: spreadOf(values.map(({ rate }) => rate)),
      processorMicrosecondsEach: spreadOf(values.map(({ microseconds }) => microseconds)),
    })),
    {
      what: 'cost of statistics in deliveries per second, by pair of runs',
      percent: shares((index) => 1 - (one[index]?.rate ?? 0) / (other[index]?.rate ?? 0)),
    },
    {
      what: 'cost of statistics in processor time of the whole machine, by pair of runs',
      percent: shares((index) => (one[index]?.microseconds ?? 0) / (other[index]?.microseconds ?? 0) - 1),
    },
  ];
}
