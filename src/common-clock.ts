/**
 * The time of this process: the database's clock, which all processes share, carried on by a clock that never steps.
 * Setting this machine's clock changes nothing. When the database's clock is set, the schedule follows (store/clock-steps.ts).
 */
import { type Clock, machineSteadyMs, systemClock, waitMs } from './core/clock.ts';
import type { Log } from './core/log.ts';
import type { Step } from './core/loop.ts';
import { LEASE_MS } from './delivery/deliver.ts';
import { type ClockState, followStep, readClockState, repairSchedule } from './store/clock-steps.ts';
import type { Database } from './store/db.ts';
import { readTime } from './store/time.ts';

export type TimeSource = {
  /** The shared clock, which anybody may set. */
  readWall(): Promise<Date>;
  steadyMs(): number;
};

export type CommonClock = {
  clock: Clock;
  /** Compares the clocks; to be run every CLOCK_MS. */
  step: Step;
  /** Whether what is old may be deleted: not for a day after a step, in case that it was a mistake. */
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
/** Long enough for somebody to see the step and correct it. */
const PRUNE_PAUSE_MS = 24 * 60 * 60_000;

/** The database's clock; with the embedded database this machine's. */
export function timeSourceOf(database: Database): TimeSource {
  return {
    readWall: database.kind === 'embedded' ? async () => systemClock().now() : () => readTime(database),
    steadyMs: machineSteadyMs,
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
  let { offsetMs } = await measure(source);
  let state: ClockState = await readClockState(database);
  let mustRepair = true;
  const clock: Clock = {
    now: () => new Date(source.steadyMs() + offsetMs),
    steadyMs: source.steadyMs,
    stepsMs: () => state.stepsMs,
    wait: waitMs,
  };
  await repair();

  async function repair(): Promise<void> {
    if (!mustRepair) return;
    const now = clock.now();
    await repairSchedule(database, { now, retryMinutes, leaseUntil: later(now, LEASE_MS) });
    mustRepair = false;
  }

  const step: Step = async () => {
    const measured = await measure(source);
    const movedMs = measured.offsetMs - offsetMs;
    const isStep = Math.abs(movedMs) > Math.max(measured.errorMs, STEP_MS_MIN);
    if (isStep) {
      const now = new Date(source.steadyMs() + measured.offsetMs);
      const steppedMs = await followStep(database, {
        ...{ movedMs, stepsMs: state.stepsMs, stepMsMin: STEP_MS_MIN, now },
        leaseUntil: later(now, LEASE_MS),
        pruneFrom: later(now, PRUNE_PAUSE_MS),
      });
      const meaning =
        'the common clock was set; retries keep their intervals, and nothing is pruned for a day';
      log.warn(
        {
          jumpedMs: Math.round(movedMs),
          schedule: steppedMs === 0 ? 'moved by another process' : 'moved',
          meaning,
        },
        'clock.jumped',
      );
    }
    const stored = await readClockState(database);
    // Time and sum change together: what is written in between by the old ones is translated, or brought back below.
    mustRepair ||= isStep || stored.stepsMs !== state.stepsMs;
    state = stored;
    if (isStep) offsetMs = measured.offsetMs;
    else offsetMs += Math.max(-DRIFT_MS_MAX, Math.min(movedMs, DRIFT_MS_MAX));
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
async function measure({ readWall, steadyMs }: TimeSource): Promise<{ offsetMs: number; errorMs: number }> {
  const beforeMs = steadyMs();
  const wallMs = (await readWall()).getTime();
  const afterMs = steadyMs();
  return { offsetMs: wallMs - (beforeMs + afterMs) / 2, errorMs: (afterMs - beforeMs) / 2 };
}

const later = (time: Date, ms: number) => new Date(time.getTime() + ms);
