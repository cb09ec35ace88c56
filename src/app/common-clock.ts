/**
 * The clock of this process: the database's time, which all processes share, advanced by a clock that never steps.
 * Setting this machine's clock changes nothing. When the database's clock is set, the schedule moves with it
 * (store/deployment/clock-steps.ts).
 */
import { type Clock, machineSteadyMs, systemClock, waitMs } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import type { Step } from '../core/loop.ts';
import { LEASE_MS } from '../delivery/deliver.ts';
import { readTime } from '../store/db/database-time.ts';
import type { Database, Db } from '../store/db/db.ts';
import { listLost } from '../store/db/lost-shards.ts';
import { type ClockState, followStep, readClockState } from '../store/deployment/clock-steps.ts';
import { repairSchedule } from '../store/deployment/schedule-repair.ts';

export type TimeSource = {
  /** The shared clock, which an administrator may set. */
  readWall(db: Db): Promise<Date>;
} & Pick<Clock, 'steadyMs' | 'wait'>;

export type CommonClock = {
  clock: Clock;
  /** Compares the clocks. Run it every CLOCK_MS. */
  step: Step;
  /** False for up to a day after a step of a minute or more, because a clock set by mistake must not delete rows. */
  mayPrune(): boolean;
  /** The last step, while pruning waits because of it. */
  recentStep(): { ms: number; at: Date; pruneFrom: Date } | undefined;
};

/** How often the clocks are compared. */
export const CLOCK_MS = 1_000;
/** A larger difference is a step. A retry may be one second early, so this plus the drift of an hour must be less. */
const STEP_MS_MIN = 500;
/** At the start and at a step, a measurement that may be wrong by more is repeated, at most this often: the next one would find a step. */
const [EXACT_MS_MAX, TRIES_MAX] = [50, 5];
/** A smaller difference is corrected by this much at each comparison: 100 ppm, the drift of quartz clocks. */
const DRIFT_MS_MAX = 0.1;
/**
 * A clock that chrony or ntpd slews differs by a little more each second: by 83 ms at chrony's highest rate. Such a difference is no step,
 * and is corrected as soon as it is this large. A share of the time between two comparisons, of which no more than the given one counts.
 */
const SLEW = { shareMax: 0.1, betweenMsMax: 2_000, msMin: 50 };
/** Statements in progress at a step may still write the old time: the longest time of a statement, with a margin. */
const LATE_WRITES_MS = 130_000;
/** How often the schedule is checked for them, if a check takes less than a tenth of that. It reads the whole queue. */
const REPAIR_MS = 10_000;
const REPAIR_PAUSES = 10;
/**
 * Long enough for an operator to notice the step and correct it. A smaller step prunes rows that much too early at most, and
 * pauses of a virtual machine, which look like steps, may come each night.
 */
const PRUNE_PAUSE = { prunePauseMs: 24 * 60 * 60_000, pausingStepMs: 60_000 };

/** The database's clock; this machine's clock for the embedded database. */
function timeSourceOf(database: Database): TimeSource {
  return {
    readWall: database.kind === 'embedded' ? async () => systemClock().now() : readTime,
    steadyMs: machineSteadyMs,
    wait: waitMs,
  };
}

/** Measures the offset, and repairs due times that a step left too far ahead while no process ran. */
export async function openCommonClock({
  database,
  log,
  retryMinutes,
  source = timeSourceOf(database),
}: {
  database: Database;
  log: Log;
  retryMinutes: readonly number[];
  source?: TimeSource;
}): Promise<CommonClock> {
  // Read the stored steps before measuring, so that this process still follows a step that happens in between.
  let comparedMs = source.steadyMs();
  let state: ClockState = await readClockState(database);
  let { offsetMs, errorMs: startErrorMs } = await measureExactly(source, database);
  const differences = createDifferences(startErrorMs);
  const clock: Clock = {
    now: () => new Date(source.steadyMs() + offsetMs),
    steadyMs: source.steadyMs,
    stepsMs: () => state.stepsMs,
    wait: source.wait,
  };
  const schedule = createScheduleRepair(database, { clock, retryMinutes });
  await schedule.repair();

  function adopt(newState: ClockState, newOffsetMs: number): void {
    if (newState.stepsMs !== state.stepsMs) schedule.noteStep();
    state = newState;
    offsetMs = newOffsetMs;
  }

  /** Called on the first process that sees a step. Measures once more under the lock. */
  async function follow(): Promise<void> {
    let [newMs, errorMs] = [offsetMs, 0];
    const followed = await followStep(database, {
      ...{ stepsMs: state.stepsMs, leaseMs: LEASE_MS, ...PRUNE_PAUSE },
      async measure(tx) {
        const measured = await measureExactly(source, tx);
        newMs = measured.offsetMs;
        const movedMs = newMs - offsetMs;
        // The first measurement was wrong, or the clock has been set back.
        if (!differences.isStep(movedMs, measured.errorMs)) return undefined;
        errorMs = measured.errorMs;
        return { movedMs, now: () => new Date(source.steadyMs() + newMs) };
      },
    });
    if (followed === undefined) return;
    const jumpedMs = Math.round(newMs - offsetMs);
    const isPausing = Math.abs(jumpedMs) >= PRUNE_PAUSE.pausingStepMs;
    const meaning = `the common clock was set; retries keep their intervals${isPausing ? ', and nothing is pruned for up to a day' : ''}`;
    log.warn({ jumpedMs, meaning }, 'clock.jumped');
    adopt(followed, newMs);
    differences.adopted(errorMs);
  }

  const step: Step = async () => {
    const [lastMs, presentMs] = [comparedMs, source.steadyMs()];
    const stored = await readClockState(database);
    const { offsetMs: newMs, errorMs } = await measure(source, database);
    const before = { state, offsetMs, comparedMs: lastMs };
    // Until a new step is followed below, this process uses the time before it, like the schedule and all other processes.
    adopt(stored, offsetMs + movedBefore(stored, before, { offsetMs: newMs, steadyMs: source.steadyMs() }));
    comparedMs = presentMs;
    const leftMs = newMs - offsetMs;
    if (differences.isStep(leftMs, errorMs)) await follow();
    else offsetMs += differences.correct(leftMs, errorMs, presentMs - lastMs);
    differences.note(newMs - offsetMs, errorMs);
    await schedule.repair();
    return 'idle';
  };

  function recentStep() {
    const { pausing } = state;
    return pausing === undefined || pausing.pruneFrom <= clock.now() ? undefined : pausing;
  }

  return { ...{ clock, step, recentStep }, mayPrune: () => recentStep() === undefined };
}

/**
 * Differences between the shared clock and this process's time. Tells one that has grown by a little at each comparison from one that came
 * at once, which is a step, however small. `ownErrorMs`: how wrong the time of this process may be.
 */
function createDifferences(ownErrorMs: number) {
  let [before, isSudden] = [{ leftMs: 0, errorMs: 0 }, false];
  const isStep = (ms: number, errorMs: number): boolean =>
    Math.abs(ms) > Math.max(errorMs + ownErrorMs, STEP_MS_MIN);
  /** The time of this process is now that of a reading which may be wrong by `errorMs`. */
  function adopted(errorMs: number): void {
    [ownErrorMs, isSudden] = [errorMs, false];
  }
  return {
    isStep,
    /** How much of a difference that is no step to correct now. `betweenMs`: since the comparison before. */
    correct(leftMs: number, errorMs: number, betweenMs: number): number {
      const slewedMs = SLEW.shareMax * Math.min(betweenMs, SLEW.betweenMsMax);
      isSudden ||= Math.abs(leftMs - before.leftMs) > slewedMs + errorMs + before.errorMs;
      const isSlewed = !isSudden && Math.abs(leftMs) > SLEW.msMin + errorMs;
      const wasInexact = errorMs < ownErrorMs && Math.abs(leftMs) <= errorMs + ownErrorMs;
      if (!isSlewed && !wasInexact) return Math.max(-DRIFT_MS_MAX, Math.min(leftMs, DRIFT_MS_MAX));
      adopted(errorMs);
      return leftMs;
    },
    adopted,
    /** The difference that remains after the comparison, and how wrong it may be. */
    note(leftMs: number, errorMs: number): void {
      before = { leftMs, errorMs };
      isSudden &&= Math.abs(leftMs) > SLEW.msMin;
    },
  };
}

/** Repairs the schedule at the start, after each step, and then again and again while late writes may still arrive. */
function createScheduleRepair(
  database: Database,
  { clock, retryMinutes }: { clock: Clock; retryMinutes: readonly number[] },
) {
  let mustRepair = true;
  let repairedMs = clock.steadyMs();
  let repairsUntilMs = clock.steadyMs();
  let pauseMs = REPAIR_MS;
  /** Lost shards (Citus) are repaired when they are back. */
  let isPartial = false;
  return {
    noteStep(): void {
      mustRepair = true;
      repairsUntilMs = clock.steadyMs() + LATE_WRITES_MS;
    },
    async repair(): Promise<void> {
      const isAgain = repairedMs < repairsUntilMs && clock.steadyMs() - repairedMs >= pauseMs;
      const isComplete = isPartial && (await listLost(database)).length === 0;
      if (!mustRepair && !isAgain && !isComplete) return;
      repairedMs = clock.steadyMs();
      try {
        const outcome = await repairSchedule(database, { clock, retryMinutes, leaseMs: LEASE_MS });
        mustRepair = outcome === 'unchanged';
        isPartial = outcome === 'partly';
        pauseMs = Math.max(REPAIR_MS, REPAIR_PAUSES * (clock.steadyMs() - repairedMs));
      } catch (error) {
        if (!(error instanceof Fault) || database.isDistributed !== true) throw error;
        // A worker doesn't answer. The follower declares its shards lost, and the next repair leaves them out.
        mustRepair = true;
      }
    },
  };
}

/**
 * How far other processes moved the common clock since this process last compared: by the steps that they measured, if this
 * process's own clocks confirm them. If a fail-over lost steps, the schedule has gone back by them, and so does the clock: this
 * process then follows what is left as a new step. Otherwise one of two processes was paused and mistook the pause for a step, and
 * only movement after that counts.
 */
function movedBefore(
  stored: ClockState,
  before: { state: ClockState; offsetMs: number; comparedMs: number },
  present: { offsetMs: number; steadyMs: number },
): number {
  const { last, stepsMs } = stored;
  const followedMs = stepsMs - before.state.stepsMs;
  const movedMs = present.offsetMs - before.offsetMs;
  if (last === undefined || followedMs === 0 || Math.abs(movedMs - followedMs) <= STEP_MS_MIN)
    return followedMs;
  // A short pause of another machine, which it mistook for a step. If this process followed that back, both would go on for ever.
  if (Math.abs(movedMs) <= STEP_MS_MIN && Math.abs(followedMs) <= CLOCK_MS + STEP_MS_MIN) return movedMs;
  // The other process followed the step between the two comparisons, when its clock read `last.at`.
  const latestMs = last.at.getTime() - before.comparedMs - before.offsetMs;
  const earliestMs = last.at.getTime() - present.steadyMs - before.offsetMs;
  if (earliestMs - STEP_MS_MIN <= followedMs && followedMs <= latestMs + STEP_MS_MIN) return followedMs;
  const betweenMs = present.steadyMs - before.comparedMs;
  const sinceMs = present.steadyMs + present.offsetMs - last.at.getTime();
  const hasMoved = sinceMs < -STEP_MS_MIN || sinceMs > betweenMs + STEP_MS_MIN;
  if (!hasMoved) return movedMs;
  // A fail-over lost the newest step that this process knew.
  if (unsteppedMs(stored) <= unsteppedMs(before.state)) return followedMs;
  // When in doubt a webhook goes out late rather than early: as if the step had been followed just now.
  return movedMs - sinceMs;
}

/** When the last step was, by a clock that no step has set. */
const unsteppedMs = ({ last, stepsMs }: ClockState): number =>
  last === undefined ? Number.NEGATIVE_INFINITY : last.at.getTime() - stepsMs;

/** The most exact of a few measurements. */
async function measureExactly(source: TimeSource, db: Db): Promise<{ offsetMs: number; errorMs: number }> {
  let best = await measure(source, db);
  for (let tries = 1; best.errorMs > EXACT_MS_MAX && tries < TRIES_MAX; tries += 1) {
    const next = await measure(source, db);
    if (next.errorMs < best.errorMs) best = next;
  }
  return best;
}

/** The shared clock minus the steady one, and how wrong that may be. */
async function measure(
  { readWall, steadyMs }: TimeSource,
  db: Db,
): Promise<{ offsetMs: number; errorMs: number }> {
  const beforeMs = steadyMs();
  const wallMs = (await readWall(db)).getTime();
  const afterMs = steadyMs();
  return { offsetMs: wallMs - (beforeMs + afterMs) / 2, errorMs: (afterMs - beforeMs) / 2 };
}
