/**
 * The time of this process: the database's clock, which all processes share, carried on by a clock that never steps.
 * Setting this machine's clock changes nothing. When the database's clock is set, the schedule follows
 * (store/deployment/clock-steps.ts).
 */
import { type Clock, machineSteadyMs, systemClock, waitMs } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Step } from '../core/loop.ts';
import { LEASE_MS } from '../delivery/deliver.ts';
import { readTime } from '../store/db/database-time.ts';
import type { Database, Db } from '../store/db/db.ts';
import {
  type ClockState,
  followStep,
  readClockState,
  repairSchedule,
} from '../store/deployment/clock-steps.ts';

export type TimeSource = {
  /** The shared clock, which anybody may set. */
  readWall(db: Db): Promise<Date>;
} & Pick<Clock, 'steadyMs' | 'wait'>;

export type CommonClock = {
  clock: Clock;
  /** Compares the clocks; to be run every CLOCK_MS. */
  step: Step;
  /** Whether old rows may be pruned: not for a day after a step, in case it was a mistake. */
  mayPrune(): boolean;
  /** The last step while pruning waits; undefined without one. */
  recentStep(): { ms: number; at: Date; pruneFrom: Date } | undefined;
};

/** How often the clocks are compared. */
export const CLOCK_MS = 1_000;
/** From when on a difference is a step. A retry may be a second early, so this and the drift of an hour must be less. */
const STEP_MS_MIN = 500;
/** How far a smaller difference is followed each time: 100 millionths, which is what quartz clocks differ by. */
const DRIFT_MS_MAX = 0.1;
/** Statements in progress at a step may still write by the old time: as long as a statement may take, with a margin. */
const LATE_WRITES_MS = 130_000;
const REPAIR_MS = 10_000;
/** Long enough for an operator to notice the step and correct it. */
const PRUNE_PAUSE_MS = 24 * 60 * 60_000;

/** The database's clock; with the embedded database this machine's. */
function timeSourceOf(database: Database): TimeSource {
  return {
    readWall: database.kind === 'embedded' ? async () => systemClock().now() : readTime,
    steadyMs: machineSteadyMs,
    wait: waitMs,
  };
}

/** Measures the offset and brings back what an unseen step has left too far ahead. */
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
  // The sum before the measurement: a step in between is then one that the process has still to follow.
  let comparedMs = source.steadyMs();
  let state: ClockState = await readClockState(database);
  let { offsetMs } = await measure(source, database);
  let mustRepair = true;
  let repairedMs = source.steadyMs();
  let repairsUntilMs = source.steadyMs();
  const clock: Clock = {
    now: () => new Date(source.steadyMs() + offsetMs),
    steadyMs: source.steadyMs,
    stepsMs: () => state.stepsMs,
    wait: source.wait,
  };
  await repair();

  async function repair(): Promise<void> {
    const isAgain = repairedMs < repairsUntilMs && source.steadyMs() - repairedMs >= REPAIR_MS;
    if (!mustRepair && !isAgain) return;
    repairedMs = source.steadyMs();
    mustRepair = !(await repairSchedule(database, { clock, retryMinutes, leaseMs: LEASE_MS }));
  }

  function adopt(newState: ClockState, newOffsetMs: number): void {
    if (newState.stepsMs !== state.stepsMs) {
      mustRepair = true;
      repairsUntilMs = source.steadyMs() + LATE_WRITES_MS;
    }
    state = newState;
    offsetMs = newOffsetMs;
  }

  /** This process is the first to see a step. Measures once more under the lock. */
  async function follow(): Promise<void> {
    let newMs = offsetMs;
    const followed = await followStep(database, {
      ...{ stepsMs: state.stepsMs, leaseMs: LEASE_MS, prunePauseMs: PRUNE_PAUSE_MS },
      async measure(tx) {
        newMs = (await measure(source, tx)).offsetMs;
        return { movedMs: newMs - offsetMs, now: () => new Date(source.steadyMs() + newMs) };
      },
    });
    if (followed === undefined) return;
    const meaning = 'the common clock was set; retries keep their intervals, and nothing is pruned for a day';
    log.warn({ jumpedMs: Math.round(newMs - offsetMs), meaning }, 'clock.jumped');
    adopt(followed, newMs);
  }

  /**
   * How far the clock was set when another process followed it: the step that the other one measured, if this process's
   * steady clock confirms it. Otherwise one of the two was paused and mistook that for a step; only movement since counts.
   */
  function movedBefore({ last, stepsMs }: ClockState, since: { newMs: number; comparedMs: number }): number {
    const followedMs = stepsMs - state.stepsMs;
    if (last === undefined || followedMs === 0) return followedMs;
    // It followed between the two comparisons, when its clock read `last.at`.
    const latestMs = last.at.getTime() - since.comparedMs - offsetMs;
    const earliestMs = last.at.getTime() - source.steadyMs() - offsetMs;
    if (earliestMs - STEP_MS_MIN <= followedMs && followedMs <= latestMs + STEP_MS_MIN) return followedMs;
    const betweenMs = source.steadyMs() - since.comparedMs;
    const sinceMs = source.steadyMs() + since.newMs - last.at.getTime();
    const hasMoved = sinceMs < -STEP_MS_MIN || sinceMs > betweenMs + STEP_MS_MIN;
    // Rather late than early: as if it had followed just now.
    return since.newMs - offsetMs - (hasMoved ? sinceMs : 0);
  }

  const step: Step = async () => {
    const [lastMs, presentMs] = [comparedMs, source.steadyMs()];
    const stored = await readClockState(database);
    const { offsetMs: newMs, errorMs } = await measure(source, database);
    // From here on as every process that has not yet seen a step: by the time before it, as the schedule.
    adopt(stored, offsetMs + movedBefore(stored, { newMs, comparedMs: lastMs }));
    comparedMs = presentMs;
    const leftMs = newMs - offsetMs;
    if (Math.abs(leftMs) > Math.max(errorMs, STEP_MS_MIN)) await follow();
    else offsetMs += Math.max(-DRIFT_MS_MAX, Math.min(leftMs, DRIFT_MS_MAX));
    await repair();
    return 'idle';
  };

  return {
    clock,
    step,
    mayPrune: () => state.pruneFrom === undefined || state.pruneFrom <= clock.now(),
    recentStep() {
      const { last, pruneFrom } = state;
      if (last === undefined || pruneFrom === undefined || pruneFrom <= clock.now()) return undefined;
      return { ...last, pruneFrom };
    },
  };
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
