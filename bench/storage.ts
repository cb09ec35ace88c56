/**
 * Measures what one delivery costs the database: bytes of WAL and of disk, dead rows, and what retention costs later. The
 * test server runs without full_page_writes, so WAL has no page images.
 * Uses only functions that every state of the code has, so that two states can be compared.
 */
import { randomBytes } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { fromBytes } from '../src/core/hex.ts';
import type { Transfer } from '../src/domain/block.ts';
import { commitBlocks, findTip } from '../src/store/blocks/blocks.ts';
import type { Database } from '../src/store/db/db.ts';
import { sql } from '../src/store/db/sql.ts';
import { listDue } from '../src/store/delivery/due.ts';
import { leaseLanes } from '../src/store/delivery/lanes.ts';
import { settle } from '../src/store/delivery/settle.ts';
import { createPruner } from '../src/store/retention/retention.ts';
import { addressOf, headerOf, watchAddress } from '../test/kit/chain-story.ts';
import { createTestClock } from '../test/kit/clock.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import type { Figures } from './figures.ts';

const DELIVERIES = 200_000;
const RECORDS = 2_000;
const WATCHERS = 8;
const FIRST_ADDRESS = 0x1000_0000;
const BLOCK_TRANSFERS = 1_000;
const BACKLOG_BLOCKS = 10;
const READ = 125;
const DAY_MS = 86_400_000;
const KEEP_MS = 30 * DAY_MS;

export async function storage(): Promise<Figures> {
  return {
    conditions: {
      deliveries: DELIVERIES,
      records: RECORDS,
      watchers: WATCHERS,
      blockTransfers: BLOCK_TRANSFERS,
    },
    rows: [await measure()],
  };
}

async function measure(): Promise<Record<string, string | number>> {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  const clock = createTestClock();
  const prune = createPruner({
    ...{ database, clock, attemptsMs: KEEP_MS, notificationsMs: KEEP_MS, observationsMs: KEEP_MS },
  });
  const { signal } = new AbortController();
  await prune(signal);
  await watch(database);
  const delivered = await deliverAll(database, clock);
  const { rows: dead } = await readSize(database);
  await run(database, 'vacuum analyze');
  const { bytes: kept } = await readSize(database);
  const prunedFrom = await readWal(database);
  clock.advance(KEEP_MS + 2 * DAY_MS);
  const startedAt = performance.now();
  while ((await prune(signal)) === 'worked');
  const retentionMs = Math.round(performance.now() - startedAt);
  await run(database, 'vacuum');
  const pruned = (await readWal(database)) - prunedFrom;
  return {
    ...{
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
    await commitBlocks(database, {
      expectedTip: await findTip(database),
      blocks: [
        {
          header: headerOf(number),
          proved: true,
          transfers: Array.from({ length: BLOCK_TRANSFERS }, randomTransfer),
        },
      ],
      ...{ releasedNumber: number, releasedBefore: number - 1, finalizedNumber: number, now: clock.now() },
      deferral: { recordsMin: 1e6, rowsAtOnce: 1e6, rowsMax: 1 },
    });
    commitMs += performance.now() - startedAt;
    commitBytes += (await readWal(database)) - before;
    // A fresh partition has no statistics until autovacuum has analyzed it.
    if (number === BACKLOG_BLOCKS) await run(database, 'analyze');
    if (number <= BACKLOG_BLOCKS) continue;
    settleMs += await deliver(database, { clock, reads, count: BLOCK_TRANSFERS });
    clock.advance(1_000);
  }
  settleMs += await deliver(database, { clock, reads, count: Infinity });
  const sorted = reads.toSorted((one, other) => one - other);
  const read = (share: number) => Number((sorted[Math.floor(sorted.length * share)] ?? 0).toFixed(1));
  return {
    ...{ walBytes: each((await readWal(database)) - from), commitWalBytes: each(commitBytes) },
    ...{ readP50Ms: read(0.5), readP99Ms: read(0.99) },
    commitsPerSecond: Math.round((DELIVERIES * 1000) / commitMs),
    settlementsPerSecond: Math.round((DELIVERIES * 1000) / settleMs),
  };
}

async function watch(database: Database): Promise<void> {
  for (let index = 0; index < RECORDS; index += 1)
    await watchAddress(database, {
      watcherId: 1 + (index % WATCHERS),
      address: addressOf(FIRST_ADDRESS + index),
      url: `https://receiver${index % WATCHERS}.example/hook`,
    });
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

const randomTransfer = (_: unknown, index: number): Transfer => ({
  kind: index % 3 === 0 ? 'transaction' : 'token',
  txHash: fromBytes(randomBytes(32)),
  ordinal: index % 3,
  sender: fromBytes(randomBytes(20)),
  receiver: addressOf(FIRST_ADDRESS + Math.floor(Math.random() * RECORDS)),
  amount: BigInt(1 + Math.floor(Math.random() * 1e15)),
  token: index % 3 === 0 ? undefined : addressOf(0xc0141),
});

/** Settles about `count` due notifications successfully. Returns the time that it took to settle. */
async function deliver(
  database: Database,
  { clock, reads, count }: { clock: { now(): Date }; reads: number[]; count: number },
): Promise<number> {
  const now = clock.now();
  await database.query(sql`update lane set owner = null, next_due = ${now}`);
  await database.query(sql`update watcher_queue set next_due = ${now}`);
  const leaseUntil = new Date(now.getTime() + DAY_MS);
  const { leased } = await leaseLanes(database, { owner: 1, now, leaseUntil });
  let settleMs = 0;
  for (let done = 0; done < count; ) {
    const startedAt = performance.now();
    const due = [...(await listDue(database, leased, { now, exclude: [], limit: READ })).values()].flatMap(
      (one) => (one === 'lost' ? [] : one),
    );
    reads.push(performance.now() - startedAt);
    if (due.length === 0) return settleMs;
    const settledFrom = performance.now();
    await settle(
      database,
      due.flatMap((one) => {
        const lane = leased.find(({ id }) => id === one.laneId);
        if (lane === undefined) return [];
        return {
          ...{ lane, notificationId: one.id, revision: one.revision, mayHaveArrived: true },
          ...{
            retryCount: one.retryCount,
            redeliveryCount: one.redeliveryCount,
            startedAt: now,
            durationMs: 35,
          },
          ...{ outcome: 'success', status: 200, response: undefined, nextRetryAt: undefined, settledAt: now },
        };
      }),
    );
    settleMs += performance.now() - settledFrom;
    done += due.length;
  }
  return settleMs;
}

async function readWal(database: Database): Promise<number> {
  const [row] = await database.query<{ bytes: string }>(
    sql`select (pg_current_wal_insert_lsn() - '0/0')::text as bytes`,
  );
  return Number(row?.bytes);
}

const run = (database: Database, text: string) => database.query({ text, values: [] });
