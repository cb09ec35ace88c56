/**
 * Measures what distributed tables cost: the statements of each block and delivery on the Citus cluster at TEST_CITUS_URL, and on its
 * coordinator without distribution, in turns. A ratio is of one repeat, so a load on the machine is on both sides of it.
 */
import { performance } from 'node:perf_hooks';
import type { Database } from '../src/store/db/db.ts';
import { sql } from '../src/store/db/sql.ts';
import type { DueNotification } from '../src/store/delivery/due.ts';
import { type Lane, releaseLanes } from '../src/store/delivery/lanes.ts';
import { queueStatistics } from '../src/store/delivery/pending.ts';
import { type Settlement, settle } from '../src/store/delivery/settle.ts';
import { leaseDue, readDue } from '../test/kit/attempts.ts';
import { hashOf, headerOf, later, mine, transferOf, watchAddress } from '../test/kit/chain-story.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import type { Figures } from './figures.ts';
import { inTurn } from './repeats.ts';
import { medianOf, spreadOf } from './spread.ts';

const REPEATS = 5;
const BLOCKS = 30;
const WATCHERS = 8;
const TRANSFERS = 100;
/** In the first blocks, connections open and statements are planned. */
const WARM_UP_BLOCKS = 5;

const sides = ['PostgreSQL', 'Citus'] as const;
const parts = {
  commit: `commit of a block with ${TRANSFERS} transfers for ${WATCHERS} watchers`,
  read: `reading ${TRANSFERS} due webhooks of a queue`,
  settle: `recording ${TRANSFERS / 2} outcomes of a queue`,
  settleAll: `recording ${(TRANSFERS / 2) * WATCHERS} outcomes of ${WATCHERS} queues together`,
  release: 'giving the queues back',
  statistics: 'queue statistics of /status',
};
type Part = keyof typeof parts;

/** Undefined without a cluster. */
export async function cluster(): Promise<Figures | undefined> {
  const coordinator = process.env.TEST_CITUS_URL ?? '';
  if (coordinator === '') {
    process.stderr.write(
      'SKIPPED: cluster, because TEST_CITUS_URL (the coordinator of a cluster with workers) is not set\n',
    );
    return undefined;
  }
  process.env.TEST_DATABASE_URL = coordinator;
  const measured: Record<Part, Record<(typeof sides)[number], number[]>> = {
    commit: { PostgreSQL: [], Citus: [] },
    read: { PostgreSQL: [], Citus: [] },
    settle: { PostgreSQL: [], Citus: [] },
    settleAll: { PostgreSQL: [], Citus: [] },
    release: { PostgreSQL: [], Citus: [] },
    statistics: { PostgreSQL: [], Citus: [] },
  };
  let conditions = {};
  for (let repeat = 1; repeat <= REPEATS; repeat += 1)
    for (const side of inTurn(sides, repeat)) {
      process.env.TEST_ON_CITUS = side === 'Citus' ? '1' : '';
      await using place = await createTestDatabase('postgres');
      const database = await place.open();
      if ((database.isDistributed === true) !== (side === 'Citus')) throw new Error(`not on ${side}`);
      if (side === 'Citus') conditions = await readConditions(database);
      for (const [part, times] of Object.entries(await measure(database)))
        measured[part as Part][side].push(medianOf(times));
    }
  const rows = Object.entries(measured).map(([part, { PostgreSQL, Citus }]) => ({
    what: parts[part as Part],
    postgresMs: spreadOf(PostgreSQL.map(rounded)),
    citusMs: spreadOf(Citus.map(rounded)),
    ratio: spreadOf(Citus.map((ms, index) => rounded(ms / (PostgreSQL[index] ?? Number.NaN)))),
  }));
  return { conditions: { ...conditions, repeats: REPEATS, blocks: BLOCKS - WARM_UP_BLOCKS }, rows };
}

const rounded = (value: number): number => Number(value.toFixed(2));

async function readConditions(database: Database): Promise<Figures['conditions']> {
  const [row] = await database.query<{ citus: string; workers: number; shards: number }>(sql`
    select (select extversion from pg_extension where extname = 'citus') as citus,
      (select count(*) from citus_get_active_worker_nodes()) as workers,
      (select count(*) from pg_dist_shard where logicalrelid = 'watched_address'::regclass) as shards`);
  return { citus: row?.citus ?? '', workers: row?.workers ?? 0, shards: row?.shards ?? 0 };
}

/** The times of each part, in milliseconds. */
async function measure(database: Database): Promise<Record<Part, number[]>> {
  for (let id = 1; id <= WATCHERS; id += 1) await watchAddress(database, { watcherId: id });
  const times: Record<Part, number[]> = {
    ...{ commit: [], read: [], settle: [], settleAll: [], release: [], statistics: [] },
  };
  for (let block = 1; block <= BLOCKS; block += 1) {
    const timed = async <T>(part: Part, work: () => Promise<T>): Promise<T> => {
      const startedMs = performance.now();
      const result = await work();
      if (block > WARM_UP_BLOCKS) times[part].push(performance.now() - startedMs);
      return result;
    };
    const now = later(block * 1_000);
    const transfers = Array.from({ length: TRANSFERS }, (_, index) =>
      transferOf({ txHash: hashOf(block * 1_000 + index) }),
    );
    await timed('commit', () => mine(database, headerOf(block), transfers));
    const lanes = await leaseDue(database, { now, owner: block });
    const outcomes: Settlement[][] = [];
    for (const lane of lanes) {
      const due = await timed('read', () => readDue(database, lane, now));
      outcomes.push(due.map((one) => succeeded(lane, one, now)));
    }
    await timed('statistics', () => queueStatistics(database, now));
    const half = TRANSFERS / 2;
    await timed('settleAll', () =>
      settle(
        database,
        outcomes.flatMap((own) => own.slice(half)),
      ),
    );
    for (const own of outcomes) await timed('settle', () => settle(database, own.slice(0, half)));
    await timed('release', () => releaseLanes(database, lanes, now));
  }
  return times;
}

const succeeded = (
  lane: Lane,
  { id, revision, retryCount, redeliveryCount }: DueNotification,
  now: Date,
): Settlement => ({
  ...{ lane, notificationId: id, revision, retryCount, redeliveryCount, startedAt: now, settledAt: now },
  ...{ mayHaveArrived: true, durationMs: 5, response: undefined, outcome: 'success', status: 200 },
  nextRetryAt: undefined,
});
