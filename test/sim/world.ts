/**
 * The world of one story, in which its actors are set: chance, time, the chain, the database, and the oracle and the witness that watch.
 */
import { type Log, silentLog } from '../../src/core/log.ts';
import { createMetrics, type Metrics } from '../../src/core/metrics.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { findForgottenLanes } from '../../src/store/delivery/lane-repair.ts';
import { addWatchers } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { emptyDatabase } from '../kit/each-database.ts';
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

/** What the stories of a process share, one after the other: making it takes longer than a story. */
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
/** More than any story has. */
const LANES_MAX = 1_000;
export const WATCHERS = [1, 2];
export const ORIGINS = ['https://one.example', 'https://two.example', 'https://three.example'];

export async function createWorld(stage: Stage, seed: number) {
  await emptyDatabase(stage.database);
  await addWatchers(stage.database, ...WATCHERS);
  const random = createRandom(seed);
  const clock = createTestClock();
  const chain = createChain(random);
  const sessions = createSessions(stage.database);
  const lines: string[] = [];
  const settings = {
    confirmations: random.pick([0, 0, 0, 1, 1, 2, 2, FINALITY_BLOCKS]),
    hasFinalTag: random.chance(0.5),
    startBlock: random.pick(['latest', 1] as const),
    /** In every third story most notifications are deferred, and written two at a time. */
    ...(seed % 3 === 0 && { deferral: { recordsMin: 0, rowsAtOnce: 1, rowsMax: 2 } }),
  };
  let lastAttempt = 0;
  let problem: string | undefined;

  function tell(who: string, text: string): void {
    lines.push(`${clock.now().toISOString().slice(11, 23)}  ${who.padEnd(12)}  ${text}`);
  }

  function fail(what: string): void {
    if (problem !== undefined) return;
    problem = what;
    tell('oracle', what);
  }

  const commonTime = createCommonTime(clock);
  const { confirmations } = settings;
  const oracle = createOracle({ chain, confirmations, fail });
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
    /** Origins that do not answer as they should. */
    stopped: new Set<string>(),
    /** Processes that get no turns for a while. */
    stalled: new Set<Actor>(),
    /** Notifications that were processed by a settlement whose answer was lost: its worker will settle them again. */
    unheard: new Set<Notification>(),
    /** The faults have stopped. */
    isCalm: false,
    /** The first promise that was broken. */
    problem: () => problem,
    /** Healing is for bugs that no story has shown: in a story there must be nothing to heal. */
    async requireNoneForgotten(): Promise<void> {
      const { database } = stage;
      const [state] = await database.query<{ steps_ms: number }>(sql`select steps_ms from clock_state`);
      const { laneIds } = await findForgottenLanes(database, {
        ...{ now: commonTime.now(), stepsMs: state?.steps_ms ?? 0 },
        page: { after: 0, limit: LANES_MAX },
      });
      if (laneIds.length > 0) fail(`lane ${laneIds.join()} was forgotten`);
    },
    /** Compares what the database holds after a turn of this actor with what must be. */
    async observe(actor?: Actor): Promise<void> {
      const state = await readState(stage.database, lastAttempt);
      lastAttempt = state.attempts.at(-1)?.id ?? lastAttempt;
      oracle.followBlocks(state);
      witness.followLanes(state.lanes, actor);
      witness.settle(state.attempts);
      oracle.compare(state.notifications);
    },
  };
}
