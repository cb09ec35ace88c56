/**
 * Measures how long delivery queues stand still after their process is killed, while a second process is running.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { createTestDatabase } from '../../test/kit/database.ts';
import { waitUntil } from '../../test/kit/wait.ts';
import { startProgram } from '../program.ts';
import { deliveryProgram, insertDue, makeWatchers } from './chainbell.ts';
import type { Figures } from './results.ts';
import type { Sink } from './stage.ts';

const LANES = 40;
/** More rows than a delivery queue can send during the measurement: 16 to 64 at a time, 200 ms each. */
const ROWS_PER_LANE = 8_000;
const SETTLED_MS = 5_000;
const START_MS_MAX = 30_000;
const TAKEOVER_MS_MAX = 30_000;

export async function takeover(sink: Sink): Promise<Figures> {
  await using parts = new AsyncDisposableStack();
  const database = parts.use(await createTestDatabase('postgres'));
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
  parts.defer(() => rm(folder, { recursive: true, force: true }));
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  parts.defer(() => client.end());
  const hosts = { first: 0, count: LANES };
  const watchers = await makeWatchers(client, {
    databaseUrl: database.url,
    sink,
    count: LANES,
    hosts,
    path: '/after/200',
  });
  await insertDue(client, watchers, ROWS_PER_LANE);
  const killed = parts.use(await startProgram(deliveryProgram({ databaseUrl: database.url, sink, folder })));
  const owners = async () =>
    (await client.query<{ owner: number }>('select owner from lane where owner is not null')).rows;
  await waitUntil(async () => (await owners()).length === LANES, { timeoutMs: START_MS_MAX });
  parts.use(await startProgram(deliveryProgram({ databaseUrl: database.url, sink, folder })));
  await waitUntil(async () => (await listWorkers(client)) === 2, { timeoutMs: START_MS_MAX });
  // A worker that has just started frees lanes by other rules (src/delivery/worker.ts).
  await delay(SETTLED_MS);
  const killedAt = Date.now();
  killed.kill();
  await sink.takeStats();
  const firstAt = new Map<string, number>();
  await waitUntil(
    async () => {
      const { firstAtByHost } = await sink.takeStats();
      for (const [host, at] of Object.entries(firstAtByHost)) if (!firstAt.has(host)) firstAt.set(host, at);
      return firstAt.size === LANES;
    },
    { timeoutMs: TAKEOVER_MS_MAX, pollMs: 50 },
  );
  const waits = [...firstAt.values()].map((at) => at - killedAt).sort((one, other) => one - other);
  return { lanes: LANES, firstMs: waits[0] ?? Number.NaN, lastMs: waits.at(-1) ?? Number.NaN };
}

/** Delivery processes that hold their worker lock (src/store/delivery/workers.ts). */
async function listWorkers(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ count: number }>(
    `select count(*)::integer as count from pg_locks
     where locktype = 'advisory' and classid = ${0x6362_0003} and granted
       and database = (select oid from pg_database where datname = current_database())`,
  );
  return rows[0]?.count ?? 0;
}
