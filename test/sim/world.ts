/**
 * The surroundings of one story's actors: random choices, time, the chain, the database, and the oracle and the witness.
 */
import { type Log, silentLog } from '../../src/core/log.ts';
import { createMetrics, type Metrics } from '../../src/core/metrics.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { findForgottenLanes } from '../../src/store/delivery/lane-repair.ts';
import { addWatchers } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { emptyDatabase } from '../kit/empty-tables.ts';
import { createChain, FINALITY_BLOCKS } from './chain.ts';
import { createCommonTime } from './common-time.ts';
import { createHeaderLedger, createPlainLedger } from './ledger.ts';
import { openMemoryDatabase } from './memory.ts';
import { createOracle } from './oracle.ts';
import { createRandom } from './random.ts';
import type { Notification } from './rules.ts';
import { type Actor, createScheduler } from './scheduler.ts';
import { createSessions } from './seat.ts';
import { readState } from './state.ts';
import { createWitness } from './witness.ts';

/** Shared by all stories of a process, one after the other, because creating it takes longer than a story. */
export type Stage = {
  database: Database;
  log: Log;
  metrics: Metrics;
  [Symbol.asyncDispose](): Promise<void>;
};

export async function openStage(): Promise<Stage> {
  const database = await openMemoryDatabase();
  return {
    database,
    log: silentLog(),
    metrics: createMetrics('sim'),
    [Symbol.asyncDispose]: database.close,
  };
}

export type World = Awaited<ReturnType<typeof createWorld>>;

export const RETRY_MINUTES = [1, 3, 10, 15, 60];
/** More lanes than any story has. */
const LANES_MAX = 1_000;
export const WATCHERS = [1, 2];
export const HOUR_MS = 3_600_000;
export const DAY_MS = 24 * HOUR_MS;
/** Slices of each watcher. */
export const SLICES = 3;
export const ORIGINS = ['https://one.example', 'https://two.example', 'https://three.example'];

export async function createWorld(stage: Stage, seed: number) {
  await emptyDatabase(stage.database);
  await addWatchers(stage.database, ...WATCHERS);
  await stage.database.query(sql`update watcher set slices = ${SLICES}`);
  const random = createRandom(seed);
  const clock = createTestClock();
  const chain = createChain(random);
  const sessions = createSessions(stage.database);
  const lines: string[] = [];
  const settings = {
    confirmations: random.pick([0, 0, 0, 1, 1, 2, 2, FINALITY_BLOCKS]),
    hasFinalTag: random.chance(0.5),
    startBlock: random.pick(['latest', 1] as const),
    /** In every fifth story, followers keep an address filter, however few addresses are watched. */
    hasFilter: seed % 5 === 0,
    /** In every third story, most notifications are deferred and written two at a time, and held ones are released one at a time. */
    ...(seed % 3 === 0 && {
      deferral: {
        ...{ recordsMin: 0, ownRowsMax: 1_000_000, allRowsMax: 1_000_000, rowsAtOnce: 1, rowsMax: 2 },
        release: { atOnce: 1, shareMin: 1, shareMax: 1, groupsMax: 2 },
      },
    }),
    /** In every eleventh story, time leaps over days, and what is finished is deleted after half a day. */
    ...(seed % 11 === 4 && { retention: { notificationsMs: 12 * HOUR_MS, attemptsMs: 6 * HOUR_MS } }),
  };
  let lastAttempt = 0;
  let problem: string | undefined;
  const prunedAt = new Map<Actor, Date>();

  function tell(who: string, text: string): void {
    lines.push(`${clock.now().toISOString().slice(11, 23)}  ${who.padEnd(12)}  ${text}`);
  }

  function fail(what: string): void {
    if (problem !== undefined) return;
    problem = what;
    tell('oracle', what);
  }

  /** The times from which on everything must be kept by a retention step that began at this time. */
  function keptFrom(at: Date | undefined): { notificationsMs: number; attemptsMs: number } {
    if (at === undefined || retention === undefined)
      return { notificationsMs: -Infinity, attemptsMs: -Infinity };
    const { notificationsMs, attemptsMs } = retention;
    return { notificationsMs: at.getTime() - notificationsMs, attemptsMs: at.getTime() - attemptsMs };
  }

  const commonTime = createCommonTime(clock);
  const { confirmations, retention } = settings;
  const oracle = createOracle({
    chain,
    confirmations,
    areSharesReleased: settings.deferral !== undefined,
    fail,
  });
  const witness = createWitness({ oracle, clock, sessions, retryMinutes: RETRY_MINUTES, fail });
  return {
    ...{ stage, random, clock, chain, sessions, settings, oracle, witness, lines, tell, fail },
    scheduler: createScheduler(),
    ledgers: {
      headers: createHeaderLedger(),
      plain: createPlainLedger(),
      isConfirmed: confirmations >= FINALITY_BLOCKS,
    },
    commonTime,
    /** Origins whose receivers fail. */
    stopped: new Set<string>(),
    /** Processes that get no turns at the moment. */
    stalled: new Set<Actor>(),
    /** Notifications processed by a settlement whose answer was lost. Its worker will settle them again. */
    unheard: new Set<Notification>(),
    /** When the last retention step of each process began. */
    prunedAt,
    /** Whether the faults have stopped. */
    isCalm: false,
    /** The first promise that was broken. */
    problem: () => problem,
    /** Fails if a lane was forgotten. The program repairs such lanes, but a story must never need that repair. */
    async requireNoneForgotten(): Promise<void> {
      const { database } = stage;
      const [state] = await database.query<{ steps_ms: number }>(sql`select steps_ms from clock_state`);
      const { laneIds } = await findForgottenLanes(database, {
        ...{ now: commonTime.now(), stepsMs: state?.steps_ms ?? 0 },
        page: { after: 0, limit: LANES_MAX },
      });
      if (laneIds.length > 0) fail(`lane ${laneIds.join()} was forgotten`);
    },
    /** What retention should have deleted, and has not. Days are deleted as a whole. */
    async findKept(finalNumber: number): Promise<string | undefined> {
      const kept = keptFrom(new Date(commonTime.now().getTime() - DAY_MS));
      const [row] = await stage.database.query<{ id: number }>(sql`
        select id from ended e where not exists (
          select from notification n where n.shard_id = e.shard_id and n.id = e.id) limit 1`);
      if (row !== undefined) return `the state of notification ${row.id}`;
      return oracle.findKept(kept.notificationsMs, finalNumber) ?? witness.findKept(kept.attemptsMs);
    },
    /** Compares the database with the oracle after a turn of this actor. */
    async observe(actor?: Actor): Promise<void> {
      const state = await readState(stage.database, lastAttempt);
      const kept = keptFrom(actor && prunedAt.get(actor));
      lastAttempt = state.attempts.at(-1)?.id ?? lastAttempt;
      oracle.followBlocks(state);
      witness.followLanes(state.lanes, actor);
      witness.settle(state.attempts);
      witness.followLog(state, kept.attemptsMs);
      oracle.compare(state.notifications, kept.notificationsMs);
    },
  };
}
