/**
 * Notifications for benchmarks of the store: random transfers of many watched addresses, committed and delivered by the
 * functions of the store without a service. Uses only functions that every state of the code has, so that two states can be
 * compared.
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

export const RECORDS = 2_000;
export const WATCHERS = 8;
const FIRST_ADDRESS = 0x1000_0000;
const READ = 125;
export const DAY_MS = 86_400_000;
const LEASE_MS = DAY_MS;

/** Creates the partitions and the watched addresses. `prune` is one step of retention, which keeps everything for `keepMs`. */
export async function startStore(database: Database, keepMs: number) {
  const clock = createTestClock();
  const step = createPruner({
    ...{ database, clock, attemptsMs: keepMs, notificationsMs: keepMs, observationsMs: keepMs },
  });
  const { signal } = new AbortController();
  const prune = () => step(signal);
  await prune();
  await watchAll(database);
  return {
    clock,
    prune,
    /** Lets everything get older than the retention. Returns how long it takes to delete it, in milliseconds. */
    async pruneAll(): Promise<number> {
      clock.advance(keepMs * 1.1 + 2 * DAY_MS);
      const startedAt = performance.now();
      while ((await prune()) === 'worked');
      return Math.round(performance.now() - startedAt);
    },
  };
}

/** The sorted times of `count` runs, in milliseconds. */
export async function timesOf(count: number, work: (index: number) => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  for (let index = 0; index < count; index += 1) {
    const startedAt = performance.now();
    await work(index);
    times.push(performance.now() - startedAt);
  }
  return times.sort((one, other) => one - other);
}

async function watchAll(database: Database): Promise<void> {
  for (let index = 0; index < RECORDS; index += 1)
    await watchAddress(database, {
      watcherId: 1 + (index % WATCHERS),
      address: addressOf(FIRST_ADDRESS + index),
      url: `https://receiver${index % WATCHERS}.example/hook`,
    });
}

/** Commits a proved, final block with this number of transfers. */
export async function commitBlock(
  database: Database,
  { number, count, now }: { number: number; count: number; now: Date },
): Promise<void> {
  await commitBlocks(database, {
    expectedTip: await findTip(database),
    blocks: [
      { header: headerOf(number), proved: true, transfers: Array.from({ length: count }, randomTransfer) },
    ],
    ...{ confirmations: 0, releasedBefore: number - 1, finalizedNumber: number, now },
    deferral: {
      recordsMin: 1e6,
      ownRowsMax: Number.MAX_SAFE_INTEGER,
      allRowsMax: Number.MAX_SAFE_INTEGER,
      rowsAtOnce: 1e6,
      rowsMax: 1,
    },
  });
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
export async function deliver(
  database: Database,
  { clock, reads, count }: { clock: { now(): Date }; reads: number[]; count: number },
): Promise<number> {
  const now = clock.now();
  await database.query(sql`update lane set owner = null, next_due = ${now}`);
  await database.query(sql`update watcher_queue set next_due = ${now}`);
  const leaseUntil = new Date(now.getTime() + LEASE_MS);
  const { leased } = await leaseLanes(database, { owner: 1, now, leaseUntil });
  let settleMs = 0;
  for (let done = 0; done < count; ) {
    const startedAt = performance.now();
    const due = [...(await listDue(database, leased, { now, exclude: [], limit: READ })).values()].flatMap(
      (one) => (Array.isArray(one) ? one : []),
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
