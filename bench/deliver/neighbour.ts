/**
 * Measures what a hanging receiver costs the others. Many healthy receivers get notifications at a steady rate, first alone
 * and then beside due rows of a receiver that never answers. The time is from a notification's creation to its receipt.
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

const SECONDS = 20;
const EVERY_MS = 50;
/** Each round adds one row for this many receivers, in turn. */
const ROWS_EACH = 10;
const WARM_UP_MS = 3_000;
const DRAIN_MS_MAX = 60_000;

export async function neighbour(
  sink: Sink,
  { receivers, hangingRows }: { receivers: number; hangingRows: number },
): Promise<Figures> {
  await using parts = new AsyncDisposableStack();
  const database = parts.use(await createTestDatabase('postgres'));
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
  parts.defer(() => rm(folder, { recursive: true, force: true }));
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  parts.defer(() => client.end());
  const make = (count: number, hosts: { first: number; count: number }, hookPath: string) =>
    makeWatchers(client, { databaseUrl: database.url, sink, count, hosts, path: hookPath });
  const healthy = await make(receivers, { first: 1, count: receivers }, '/hook');
  const hanging = await make(1, { first: 0, count: 1 }, '/hang');
  if (hangingRows > 0) await insertDue(client, hanging, hangingRows);
  await client.query('vacuum analyze');
  const program = parts.use(await startProgram(deliveryProgram({ databaseUrl: database.url, sink, folder })));
  let sent = 0;
  const sendFor = async (ms: number) => {
    for (const startedAt = performance.now(); performance.now() - startedAt < ms; ) {
      const first = sent % receivers;
      await insertDue(client, healthy.slice(first, first + ROWS_EACH), 1);
      sent += ROWS_EACH;
      await delay(EVERY_MS);
    }
  };
  let received = 0;
  const drained = async () => {
    await program.assertAlive();
    const stats = await sink.takeStats();
    received += stats.ids;
    return received >= sent && stats;
  };
  await sendFor(WARM_UP_MS);
  await waitUntil(drained, { timeoutMs: DRAIN_MS_MAX });
  received = sent;
  await sendFor(SECONDS * 1000);
  // Read the statistics once, after everything has arrived, because reading resets them.
  await delay(2_000);
  const stats = await sink.takeStats();
  return { ...stats.waits, sent: sent - received, lost: sent - received - stats.ids };
}
