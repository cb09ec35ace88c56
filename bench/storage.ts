/**
 * Measures what one delivery costs the database: bytes of WAL, with and without page images, and of disk, dead rows, and what
 * retention costs later. Without images, the server runs with full_page_writes off.
 */
import { performance } from 'node:perf_hooks';
import type { Database } from '../src/store/db/db.ts';
import { sql } from '../src/store/db/sql.ts';
import type { createTestClock } from '../test/kit/clock.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import { startPostgresServer } from '../test/kit/postgres-server.ts';
import type { Figures } from './figures.ts';
import { percentile } from './stage.ts';
import { commitBlock, DAY_MS, deliver, RECORDS, startStore, WATCHERS } from './stored-deliveries.ts';

const DELIVERIES = 200_000;
const BLOCK_TRANSFERS = 1_000;
const BACKLOG_BLOCKS = 10;
const CHECKPOINT_BLOCKS = 100;
const KEEP_MS = 30 * DAY_MS;

export async function storage(): Promise<Figures> {
  return {
    conditions: {
      deliveries: DELIVERIES,
      records: RECORDS,
      watchers: WATCHERS,
      blockTransfers: BLOCK_TRANSFERS,
    },
    rows: [await measure('without'), await measureWithImages()],
  };
}

/** A page gets an image at its first change after a checkpoint. */
async function measureWithImages(): Promise<Record<string, string | number>> {
  const server = await startPostgresServer({ isDurable: true, settings: ['fsync=off'] });
  const given = process.env.TEST_DATABASE_URL;
  process.env.TEST_DATABASE_URL = server.url;
  try {
    return await measure(`a checkpoint every ${CHECKPOINT_BLOCKS * BLOCK_TRANSFERS}`);
  } finally {
    if (given === undefined) delete process.env.TEST_DATABASE_URL;
    else process.env.TEST_DATABASE_URL = given;
    await server.stop();
  }
}

async function measure(pageImages: string): Promise<Record<string, string | number>> {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  const { clock, pruneAll } = await startStore(database, KEEP_MS);
  const delivered = await deliverAll(database, clock);
  const { rows: dead } = await readSize(database);
  await run(database, 'vacuum analyze');
  const { bytes: kept } = await readSize(database);
  const prunedFrom = await readWal(database);
  const retentionMs = await pruneAll();
  await run(database, 'vacuum');
  const pruned = (await readWal(database)) - prunedFrom;
  return {
    ...{
      pageImages,
      ...delivered,
      keptBytes: each(kept),
      deadRowsPerDelivery: (dead / DELIVERIES).toFixed(2),
    },
    ...{ retentionMs, retentionWalBytes: each(pruned) },
  };
}

/** Commits all blocks, and delivers each ten blocks later. */
async function deliverAll(database: Database, clock: ReturnType<typeof createTestClock>) {
  await run(database, 'vacuum analyze');
  await run(database, 'checkpoint');
  const from = await readWal(database);
  let [commitBytes, commitMs, settleMs] = [0, 0, 0];
  const reads: number[] = [];
  for (let number = 1; number <= DELIVERIES / BLOCK_TRANSFERS; number += 1) {
    const [before, startedAt] = [await readWal(database), performance.now()];
    await commitBlock(database, { number, count: BLOCK_TRANSFERS, now: clock.now() });
    commitMs += performance.now() - startedAt;
    commitBytes += (await readWal(database)) - before;
    // A fresh partition has no statistics until autovacuum has analyzed it.
    if (number === BACKLOG_BLOCKS) await run(database, 'analyze');
    if (number % CHECKPOINT_BLOCKS === 0) await run(database, 'checkpoint');
    if (number <= BACKLOG_BLOCKS) continue;
    settleMs += await deliver(database, { clock, reads, count: BLOCK_TRANSFERS });
    clock.advance(1_000);
  }
  settleMs += await deliver(database, { clock, reads, count: Infinity });
  const sorted = reads.toSorted((one, other) => one - other);
  return {
    ...{ walBytes: each((await readWal(database)) - from), commitWalBytes: each(commitBytes) },
    ...{ readP50Ms: percentile(sorted, 0.5), readP99Ms: percentile(sorted, 0.99) },
    commitsPerSecond: Math.round((DELIVERIES * 1000) / commitMs),
    settlementsPerSecond: Math.round((DELIVERIES * 1000) / settleMs),
  };
}

const each = (bytes: number) => Math.round(bytes / DELIVERIES);

/** Bytes of the tables of finished deliveries with their indexes, and dead rows in those that are never meant to change. */
async function readSize(database: Database): Promise<{ rows: number; bytes: number }> {
  await run(database, 'select pg_stat_force_next_flush()');
  const [size] = await database.query<{ rows: number; bytes: number }>(sql`
    select coalesce(sum(n_dead_tup) filter (where relname ~ '^(notification|delivery_attempt)'), 0)::bigint as rows,
      sum(pg_total_relation_size(relid))::bigint as bytes
    from pg_stat_user_tables where relname ~ '^(notification|delivery_attempt|ended)'`);
  return size ?? { rows: 0, bytes: 0 };
}

async function readWal(database: Database): Promise<number> {
  const [row] = await database.query<{ bytes: string }>(
    sql`select (pg_current_wal_insert_lsn() - '0/0')::text as bytes`,
  );
  return Number(row?.bytes);
}

const run = (database: Database, text: string) => database.query({ text, values: [] });
