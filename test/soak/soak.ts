/**
 * The soak: all kinds of processes beside a live chain with a market, for as long as asked. Rounds of blocks, changes of watched
 * addresses, reorgs, faults of receivers and strikes end with the oracle's judgement.
 */
import { rm } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { cpuSecondsOfTree } from '../../bench/program.ts';
import { messageOf } from '../../src/core/fault.ts';
import { sql } from '../../src/store/db/sql.ts';
import { waitUntil } from '../kit/wait.ts';
import { type Flatness, judgeFlatness } from './flat.ts';
import { createSoakOracle } from './oracle.ts';
import { areReady, type SoakStage, setSoakStage } from './stage.ts';
import { createStriker, type Striker } from './strikes.ts';

type SoakOptions = {
  minutes: number;
  seed: number;
  /** Called with a line about each round, strike and fault. */
  onLine(line: string): void;
};

type SoakResult = {
  minutes: number;
  rounds: number;
  blocks: number;
  reorgs: number;
  transactions: number;
  /** Webhooks that had to arrive, that arrived, and that came again after a 2xx because of a strike. */
  due: number;
  received: number;
  repeated: number;
  lost: number;
  doubled: number;
  invented: number;
  /** Changes of watched addresses that the API answered; a bulk call counts once. */
  changes: number;
  publicRequests: number;
  /** Requests that failed during a strike. */
  excusedFailures: number;
  /** Requests without an answer in time, or with 503, at other times: the machine was too busy. */
  slowFailures: number;
  /** Webhooks that came again because their attempt had failed for Chainbell, mostly after its 10 s, although the receiver took it. */
  late: number;
  strikes: Record<string, number>;
  /** From the end of the faults of a round until everything was delivered. */
  settledSeconds: { median: number; max: number };
  flatness: Flatness[];
  /** Processor time of everything that the soak runs, in cores. */
  coresBusy: number;
  problems: string[];
};

const BLOCK_MS = 2_000;
const BLOCKS_OF_ROUND = 15;
const STRIKES_OF_ROUND = 2;
const PAYMENTS_MAX = 3;
const REORG_CHANCE = 0.1;
const REORG_DEPTH_MAX = 4;
const RECEIVER_CHANGE_CHANCE = 0.2;
/** Everything is released after this many blocks. */
const CONFIRMATIONS_MAX = 3;
const SETTLED_MS_MAX = 600_000;
const PROBLEMS_MAX = 20;
const LOOK_MS = 500;
const MEMORY_EVERY_MS = 5_000;
const REQUEST_MS_MAX = 10_000;
/** The part of the run after which all processes are killed, and after which the primary is. */
const KILL_ALL_AFTER = 0.25;
const FAIL_OVER_AFTER = 0.5;
/** A process grows while it starts. */
const YOUNG_MS = 60_000;
const MEMORY_SLACK = { absolute: 20, part: 0.1 };

const PUBLIC_PATHS = [
  ...['/api/price/native', '/api/price/reward', '/api/price/usdt', '/api/swap/pairs', '/api/swap/volume/1'],
  ...['/api/swap/lp-value/2', '/api/native/supply-info', '/status', '/readyz'],
  `/api/points/leaderboard?month=${new Date().toISOString().slice(0, 'YYYY-MM'.length)}`,
];

/** Tables with a bounded number of rows that come and go, and by how many KiB they may grow in a third of the run. */
const hotTables: Record<string, { absolute: number; part: number }> = {
  // Vacuum starts at 50,000 dead rows.
  queue: { absolute: 8_192, part: 0.25 },
  ...Object.fromEntries(
    [
      ...['lane', 'process', 'watcher_queue', 'watcher_usage', 'origin_usage', 'receiver_failure', 'chain'],
      ...['watched_address', 'address_change', 'last_success', 'statistics_state'],
      ...['deferred_match', 'deferred_records', 'deferred_transfers'],
    ].map((table) => [table, { absolute: 512, part: 0.25 }]),
  ),
};

/** Runs the soak. Ends early, with `problems`, when a promise is broken. */
export async function runSoak(options: SoakOptions): Promise<SoakResult> {
  await using parts = new AsyncDisposableStack();
  const stage = await setSoakStage(parts, options);
  const { chain, receivers, records, processes, failures, apiUrls, node, random } = stage;
  const { onLine, minutes } = options;
  const striker = createStriker(stage, (line) => onLine(`  ${line}`));
  const oracle = createSoakOracle();
  const samples = createSamples();
  const [startedAt, cpuBefore] = [performance.now(), cpuSecondsOfTree(process.pid)];
  const partDone = () => (performance.now() - startedAt) / (minutes * 60_000);
  const result: SoakResult = {
    ...{ minutes, rounds: 0, blocks: 0, reorgs: 0, transactions: 0, due: 0, received: 0, repeated: 0 },
    ...{ lost: 0, doubled: 0, invented: 0, changes: 0, publicRequests: 0, excusedFailures: 0 },
    ...{ slowFailures: 0, late: 0 },
    ...{ strikes: striker.counts, settledSeconds: { median: 0, max: 0 }, flatness: [], coresBusy: 0 },
    problems: [],
  };
  const settledSeconds: number[] = [];

  const over = new AbortController();
  const watching = Promise.all([
    repeat(LOOK_MS, over.signal, () => noteStored(stage)),
    repeat(MEMORY_EVERY_MS, over.signal, async () => samples.readMemory(stage)),
    repeat(BLOCK_MS, over.signal, async () => {
      for (const apiUrl of apiUrls) await ask(stage, `${apiUrl}${pick(PUBLIC_PATHS, random)}`);
      result.publicRequests += apiUrls.length;
    }),
  ]);
  try {
    let [isKilled, isFailedOver] = [false, false];
    while (partDone() < 1 && result.problems.length === 0) {
      result.rounds += 1;
      const first = [
        ...(!isKilled && partDone() >= KILL_ALL_AFTER ? [striker.killAll] : []),
        ...(!isFailedOver && partDone() >= FAIL_OVER_AFTER ? [striker.failOver] : []),
      ];
      isKilled ||= first.includes(striker.killAll);
      isFailedOver ||= first.includes(striker.failOver);
      result.reorgs += await playRound(stage, [...first, ...repeatOf(striker)], onLine);

      receivers.mend();
      node.mend();
      const faultsEndedAt = performance.now();
      await chain.mineEmpty(CONFIRMATIONS_MAX);
      await settle(stage);
      settledSeconds.push((performance.now() - faultsEndedAt) / 1_000);
      const verdict = oracle.judge({
        ...{ blocks: chain.blocks, canonical: new Set<string>(chain.canonical.values()) },
        ...{ records: records.list(), arrivals: receivers.arrivals, strikes: striker.repeating },
      });
      const { lost, doubled, invented } = verdict;
      const failed = await listFailed(stage, verdict.unexplained);
      const unexplained = verdict.unexplained.flatMap(({ id, text }) => (failed.has(id) ? [] : text));
      result.late += verdict.unexplained.length - unexplained.length;
      result.blocks += verdict.blocks;
      result.due += verdict.transfers;
      result.repeated += verdict.repeated;
      result.lost += lost.length;
      result.doubled += doubled.length + unexplained.length;
      result.invented += invented.length;
      for (const [what, found] of Object.entries({ lost, doubled, invented, unexplained }))
        result.problems.push(...found.map((one) => `${what}: ${one}`));
      result.problems.push(
        ...(await findWrongBlocks(stage)),
        ...processes.flatMap((one) => one.findProblem() ?? []),
        ...failures.flatMap(({ what }) => (/ answered 50[0-2]/.test(what) ? what : [])),
      );
      result.excusedFailures += failures.filter(({ at }) => striker.isExcused(at)).length;
      const slow = failures.filter(({ at }) => !striker.isExcused(at));
      result.slowFailures += slow.length;
      for (const { what } of slow) onLine(`  without a strike: ${what}`);
      await samples.readTables(stage);
      onLine(
        `round ${result.rounds}, ${Math.round(partDone() * 100)} %: ${result.blocks} blocks, ${result.due} due, ${result.repeated} repeated, ${result.lost} lost, ${result.doubled} doubled, ${result.invented} invented; settled after ${settledSeconds.at(-1)?.toFixed(1)} s; ${samples.line()}`,
      );
      failures.length = 0;
      chain.forget();
      records.forget();
      receivers.forget();
    }
    if (result.problems.length === 0) result.problems.push(...(await findFinalProblems(stage)));
  } catch (error) {
    result.problems.push(messageOf(error), ...processes.flatMap((one) => one.findProblem() ?? []));
  }
  over.abort();
  await watching;
  const seconds = (performance.now() - startedAt) / 1_000;
  const sorted = settledSeconds.toSorted((one, other) => one - other);
  result.minutes = Number((seconds / 60).toFixed(1));
  result.transactions = chain.transactions();
  result.received = receivers.received();
  result.changes = records.changes();
  result.settledSeconds = {
    median: Number((sorted[Math.floor(sorted.length / 2)] ?? 0).toFixed(1)),
    max: Number((sorted.at(-1) ?? 0).toFixed(1)),
  };
  result.flatness = samples.judge();
  for (const { what, middle, last, unit, isFlat } of result.flatness)
    if (isFlat === false) result.problems.push(`${what} grew from ${middle} to ${last} ${unit}`);
  result.coresBusy = Number(((cpuSecondsOfTree(process.pid) - cpuBefore) / seconds).toFixed(2));
  result.problems.splice(PROBLEMS_MAX);
  // Logs of a run with problems stay.
  if (result.problems.length === 0) await rm(stage.folder, { recursive: true, force: true });
  return result;
}

const repeatOf = ({ strike }: Striker) => Array.from({ length: STRIKES_OF_ROUND }, () => strike);

/** Blocks with payments, reorgs, changes and faults, and the strikes one after the other meanwhile. Returns how many reorgs. */
async function playRound(
  { chain, records, receivers, random }: SoakStage,
  strikes: readonly (() => Promise<void>)[],
  onLine: (line: string) => void,
): Promise<number> {
  let reorgs = 0;
  let isOver = false;
  const striking = async () => {
    for (const strike of strikes) await strike();
  };
  const changing = async () => {
    while (!isOver) {
      await records.change();
      await delay(BLOCK_MS / 2);
    }
  };
  const mining = async () => {
    let nextAt = performance.now();
    for (let block = 0; block < BLOCKS_OF_ROUND; block += 1) {
      if (random() < RECEIVER_CHANGE_CHANCE) onLine(`  ${receivers.change()}`);
      const payable = records.payable();
      const count = payable.length === 0 ? 0 : Math.floor(random() * (PAYMENTS_MAX + 1));
      await chain.mineBlock(Array.from({ length: count }, () => pick(payable, random)));
      if (random() < REORG_CHANCE) {
        await chain.reorg(1 + Math.floor(random() * Math.min(REORG_DEPTH_MAX, block + 1)));
        reorgs += 1;
      }
      nextAt += BLOCK_MS;
      await delay(Math.max(0, nextAt - performance.now()));
    }
    isOver = true;
  };
  await Promise.all([striking(), changing(), mining().finally(() => (isOver = true))]);
  return reorgs;
}

/** Resolves when the chain is stored, and nothing waits to be sent. */
async function settle({ chain, database, apiUrls }: SoakStage): Promise<void> {
  const { hash } = await chain.chain.head();
  const isSettled = async () => {
    const rows = await database
      .query(sql`
        select from block where '0x' || encode(hash, 'hex') = ${hash}
          and number = (select max(number) from block) and not exists (select from queue)`)
      .catch(() => []);
    return rows.length === 1 && (await areReady(apiUrls));
  };
  await waitUntil(isSettled, { describe: 'everything to be delivered', timeoutMs: SETTLED_MS_MAX });
}

/** Those of the webhooks that came again which have a failed attempt. */
async function listFailed(
  { database }: SoakStage,
  again: readonly { id: number }[],
): Promise<ReadonlySet<number>> {
  if (again.length === 0) return new Set();
  const rows = await database.query<{ id: number }>(sql`
    select distinct notification_id as id from delivery_attempt
    where notification_id = any(${again.map(({ id }) => id)}::bigint[]) and outcome <> 'success' order by 1 limit 10000`);
  return new Set(rows.map(({ id }) => id));
}

/** Notes which blocks are stored. Sometimes the database is down. */
async function noteStored({ chain, database }: SoakStage): Promise<void> {
  const rows = await database
    .query<{ hash: string }>(
      sql`select '0x' || encode(hash, 'hex') as hash from block order by number desc limit 32`,
    )
    .catch(() => []);
  const at = performance.now();
  const stored = new Set(rows.map(({ hash }) => hash));
  for (const block of chain.blocks) if (stored.has(block.hash)) block.storedAt ??= at;
}

async function findWrongBlocks({ chain, database }: SoakStage): Promise<string[]> {
  const rows = await database.query<{ number: number; hash: string }>(sql`
    select number, '0x' || encode(hash, 'hex') as hash from block where number >= ${chain.startBlock}::bigint order by number limit 1000000`);
  const wrong = rows.filter(({ number, hash }) => chain.canonical.get(number) !== hash);
  return [
    ...wrong.map(({ number }) => `block ${number} is not the chain's`),
    ...(rows.length === chain.canonical.size
      ? []
      : [`${rows.length} blocks are stored of ${chain.canonical.size}`]),
  ];
}

/** What the commands and the public API say at the end. */
async function findFinalProblems({ command, apiUrls, processes }: SoakStage): Promise<string[]> {
  await command('verify', '--json');
  const problems: string[] = [];
  for (const apiUrl of apiUrls)
    for (const publicPath of PUBLIC_PATHS) {
      const { status } = await fetch(`${apiUrl}${publicPath}`);
      if (status !== 200) problems.push(`${publicPath} answers ${status}`);
    }
  await Promise.all(processes.map((one) => one.end('SIGTERM')));
  return problems;
}

async function ask({ onFailure }: SoakStage, url: string): Promise<void> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(REQUEST_MS_MAX) });
    const text = await response.text();
    if (response.status >= 500) onFailure(`GET ${url} answered ${response.status}: ${text.slice(0, 200)}`);
  } catch (error) {
    onFailure(`GET ${url}: ${messageOf(error)}`);
  }
}

async function repeat(everyMs: number, signal: AbortSignal, work: () => Promise<void>): Promise<void> {
  while (!signal.aborted) {
    await work();
    await delay(everyMs, undefined, { signal }).catch(() => {});
  }
}

/** Memory of the long-lived processes, sizes of hot tables and connections, over the run. */
function createSamples() {
  const memory = new Map<string, number[]>();
  const tables = new Map<string, number[]>(Object.keys(hotTables).map((name) => [name, []]));
  const connections: number[] = [];
  const sockets: number[] = [];
  let lives = new Map<string, number>();
  return {
    readMemory({ processes }: SoakStage) {
      for (const { name, isLongLived, residentMiB, startedAt } of processes) {
        if (!isLongLived || performance.now() - startedAt() < YOUNG_MS) continue;
        // After a restart, the new process is judged alone.
        if (lives.get(name) !== startedAt()) memory.set(name, []);
        lives = lives.set(name, startedAt());
        memory.get(name)?.push(residentMiB());
      }
    },
    async readTables({ database, receivers }: SoakStage) {
      for (const [name, sizes] of tables) {
        const [row] = await database.query<{ kib: number }>(
          sql`select (pg_total_relation_size(${name}::regclass) / 1024)::int as kib`,
        );
        sizes.push(row?.kib ?? 0);
      }
      const [row] = await database.query<{ count: number }>(
        sql`select count(*)::int as count from pg_stat_activity where application_name = 'chainbell'`,
      );
      connections.push(row?.count ?? 0);
      sockets.push(receivers.connections());
    },
    line() {
      const mib = Array.from(memory, ([name, all]) => `${name} ${Math.round(all.at(-1) ?? 0)}`);
      return `${mib.join(', ')} MiB; queue ${tables.get('queue')?.at(-1)} KiB; ${connections.at(-1)} connections`;
    },
    judge: (): Flatness[] => [
      ...Array.from(memory, ([what, all]) =>
        judgeFlatness({ what: `memory of ${what}`, unit: 'MiB' }, all, MEMORY_SLACK),
      ),
      ...Array.from(tables, ([what, all]) =>
        judgeFlatness(
          { what: `table ${what}`, unit: 'KiB' },
          all,
          hotTables[what] ?? { absolute: 0, part: 0 },
        ),
      ),
      judgeFlatness({ what: 'database connections', unit: 'connections' }, connections, {
        absolute: 10,
        part: 0.2,
      }),
      judgeFlatness({ what: 'connections to receivers', unit: 'connections' }, sockets, {
        absolute: 10,
        part: 0.2,
      }),
    ],
  };
}

function pick<T>(list: readonly T[], random: () => number): T {
  const one = list[Math.floor(random() * list.length)];
  if (one === undefined) throw new Error('a choice from nothing');
  return one;
}
