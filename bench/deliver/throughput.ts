/**
 * Measures durable deliveries per second for Chainbell and for job queues that do the same work. The rows exist before the
 * process starts. The time is from the first request until the last outcome is recorded.
 */
import { execFile, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { findFreePort } from '../../devnet/free-port.ts';
import { createTestDatabase } from '../../test/kit/database.ts';
import { waitUntil } from '../../test/kit/wait.ts';
import { readBusySeconds } from '../machine.ts';
import { installPeer } from '../peer.ts';
import { type Program, startProgram } from '../program.ts';
import { deliveryProgram, insertDue, makeWatchers } from './chainbell.ts';
import type { Figures } from './results.ts';
import { hostOf, type Sink } from './stage.ts';

export type Contestant = {
  name: string;
  /** Fills the database. Returns the program to start, and SQL that shows whether a row is still open. */
  prepare(run: Preparing): Promise<{ program: Program; openSql: string }>;
};

type Preparing = {
  client: pg.Client;
  databaseUrl: string;
  sink: Sink;
  rows: number;
  folder: string;
  parts: AsyncDisposableStack;
};

const PEERS = fileURLToPath(new URL('./peers/', import.meta.url));
const RUN_MS_MAX = 180_000;
/** Concurrent jobs in each peer. Chainbell sends at most 128 requests to one receiver at a time. */
const CONCURRENCY = 128;
const REDIS_START_MS_MAX = 10_000;

/** Chainbell with rows in the delivery queues of several watchers that share one receiver; `flags` are Node's. */
export function chainbell(watcherCount: number, flags: readonly string[] = []): Contestant {
  return {
    name: `Chainbell, ${watcherCount === 1 ? '1 lane' : `${watcherCount} lanes`}`,
    async prepare({ client, databaseUrl, sink, rows, folder }) {
      const hosts = { first: 0, count: 1 };
      const watchers = await makeWatchers(client, { databaseUrl, sink, count: watcherCount, hosts });
      await insertDue(client, watchers, rows / watcherCount);
      return {
        program: deliveryProgram({ databaseUrl, sink, folder, flags }),
        openSql: "select exists (select from queue where state = 'waiting') as open",
      };
    },
  };
}

/** A job queue with one job for each row of a table, or undici without a queue. The rows hold the rendered bodies. */
export function peer(name: 'graphile-worker' | 'pg-boss' | 'bullmq' | 'undici'): Contestant {
  return {
    name: name === 'undici' ? 'undici alone' : name,
    async prepare({ client, databaseUrl, sink, rows, parts }) {
      const folder = await installPeer('queues', PEERS, 'package.json');
      const environment: Record<string, string> = {
        DATABASE_URL: databaseUrl,
        CONCURRENCY: String(CONCURRENCY),
        CA_FILE: sink.caFile ?? '',
        ...(name === 'bullmq' && { REDIS_PORT: String(await startRedis(parts)) }),
      };
      await fillOutbox(client, `${sink.protocol}://${hostOf(0)}:${sink.port}/hook`, rows);
      const options = { cwd: folder, env: { ...process.env, ...environment } };
      await promisify(execFile)(
        process.execPath,
        [path.join(folder, 'enqueue.js'), name, String(rows)],
        options,
      );
      await client.query('vacuum analyze');
      return {
        program: { command: [process.execPath, path.join(folder, `${name}.js`)], folder, environment },
        openSql:
          name === 'undici'
            ? "select to_regclass('posted') is null as open"
            : 'select exists (select from outbox where processed_at is null) as open',
      };
    },
  };
}

/** Inserts bodies as long as Chainbell's, each with an id. */
async function fillOutbox(client: pg.Client, url: string, rows: number): Promise<void> {
  await client.query(`
    create table outbox (id bigint primary key, url text not null, body text not null, processed_at timestamptz);
    create index outbox_open on outbox (id) where processed_at is null;
    create table attempt (id bigint generated always as identity primary key, outbox_id bigint not null,
      started_at timestamptz not null, duration_ms integer not null, status integer)`);
  await client.query(
    `insert into outbox (id, url, body)
     select n, $1, json_build_object('id', n, 'hash', encode(sha256(n::text::bytea), 'hex'), 'filler', repeat('x', 460))::text
     from generate_series(1, $2::integer) as n`,
    [url, rows],
  );
}

/** Starts Redis without persistence, which is its faster mode. */
async function startRedis(parts: AsyncDisposableStack): Promise<number> {
  const port = await findFreePort(0);
  const words = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no'];
  const child = spawn('redis-server', words, { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  parts.defer(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  await waitUntil(() => output.includes('Ready to accept connections'), { timeoutMs: REDIS_START_MS_MAX });
  return port;
}

/** Makes one run. @throws Error when the contestant ends or does not finish in time. */
export async function throughput(contestant: Contestant, sink: Sink, rows: number): Promise<Figures> {
  await using parts = new AsyncDisposableStack();
  const database = parts.use(await createTestDatabase('postgres'));
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
  parts.defer(() => rm(folder, { recursive: true, force: true }));
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  parts.defer(() => client.end());
  const { program, openSql } = await contestant.prepare({
    client,
    databaseUrl: database.url,
    sink,
    rows,
    folder,
    parts,
  });
  await sink.takeStats();
  const running = parts.use(await startProgram(program));
  const samples: { at: number; busySeconds: number }[] = [];
  const sample = () => {
    const taken = { at: Date.now(), busySeconds: readBusySeconds() };
    samples.push(taken);
    return taken;
  };
  sample();
  await waitUntil(
    async () => {
      await running.assertAlive();
      running.usage();
      sample();
      const { rows: counts } = await client.query<{ open: boolean }>(openSql);
      return counts[0]?.open === false;
    },
    { timeoutMs: RUN_MS_MAX, describe: `${contestant.name} to be done`, pollMs: 50 },
  );
  const done = sample();
  const { times, ids } = await sink.takeStats();
  const startedAt = times[0] ?? done.at;
  const seconds = (done.at - startedAt) / 1000;
  const before = samples.findLast(({ at }) => at <= startedAt) ?? done;
  const coresBusy = (done.busySeconds - before.busySeconds) / ((done.at - before.at) / 1000);
  const { cpuSeconds, peakMiB } = running.usage();
  return {
    seconds: Number(seconds.toFixed(2)),
    deliveriesPerSecond: Math.round(rows / seconds),
    cpuSeconds: Number(cpuSeconds.toFixed(2)),
    coresBusy: Number(coresBusy.toFixed(2)),
    peakMiB,
    lost: rows - ids,
    doubled: times.length - ids,
  };
}
