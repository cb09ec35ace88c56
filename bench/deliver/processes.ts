/**
 * Measures how much one delivery process more adds: deliveries per second of one and of two processes on one database, after the
 * second one has got its share of the delivery queues.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { createTestDatabase } from '../../test/kit/database.ts';
import { waitUntil } from '../../test/kit/wait.ts';
import { startProgram } from '../program.ts';
import { deliveryProgram, insertDue, makeWatchers } from './chainbell.ts';
import type { Figures } from './results.ts';
import type { Sink } from './stage.ts';

const WATCHERS = 20;
/** A worker shares out the queues that it has had for ten seconds; the others look twice a second. */
const SHARED_MS = 14_000;
const MEASURED_MS = 12_000;
/** More than a process delivers in the whole time. */
const ROWS_PER_SECOND = 12_000;

export async function processes(
  sink: Sink,
  { count, delayMs }: { count: number; delayMs: number },
): Promise<Figures> {
  await using parts = new AsyncDisposableStack();
  const database = parts.use(await createTestDatabase('postgres'));
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
  parts.defer(() => rm(folder, { recursive: true, force: true }));
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  parts.defer(() => client.end());
  const watchers = await makeWatchers(client, {
    ...{ databaseUrl: database.url, sink, count: WATCHERS, hosts: { first: 0, count: 1 } },
    path: delayMs === 0 ? '/hook' : `/after/${delayMs}`,
  });
  const seconds = (SHARED_MS + MEASURED_MS) / 1000;
  await insertDue(client, watchers, (count * ROWS_PER_SECOND * seconds) / WATCHERS);
  await sink.takeStats();
  const programs = await Promise.all(
    Array.from({ length: count }, () =>
      startProgram(deliveryProgram({ databaseUrl: database.url, sink, folder })),
    ),
  );
  for (const program of programs) parts.use(program);
  const [start, end] = [Date.now() + SHARED_MS, Date.now() + SHARED_MS + MEASURED_MS];
  await waitUntil(
    async () => {
      for (const program of programs) await program.assertAlive();
      return Date.now() > end;
    },
    { timeoutMs: 10 * (SHARED_MS + MEASURED_MS), pollMs: 100 },
  );
  const { times, ids } = await sink.takeStats();
  const measured = times.filter((time) => time >= start && time < end).length;
  return {
    deliveriesPerSecond: Math.round(measured / (MEASURED_MS / 1000)),
    doubled: times.length - ids,
  };
}
