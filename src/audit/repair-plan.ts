/**
 * Repairs the differences that `verify` finds: makes a plan, and then applies exactly that plan, in small transactions while
 * the service runs.
 */
import { applyRepairs, type Repair } from '../store/audit/apply-repairs.ts';
import { readTime } from '../store/db/database-time.ts';
import type { Database } from '../store/db/db.ts';
import type { Difference } from './compare.ts';
import { type VerifyOptions, verifyStored } from './verify.ts';
import { isComplete, type VerifyReport } from './verify-report.ts';

export type RepairPlan = {
  report: VerifyReport;
  /** Differences that their `repairs` end. */
  repairable: Difference[];
  /** Differences that no repair can end, mostly because a receiver has seen the notification. */
  unrepairable: Difference[];
};

/** What was applied so far, which stays true after a failure. */
export type RepairProgress = {
  repaired: Set<Difference>;
  /** Differences, from the first one of the plan, that are repaired, or skipped because their block or notification changed. */
  triedCount: number;
  /** Differences after these that are repaired only if the last commit succeeded, because the database did not answer it. */
  unknownCount: number;
};

export const createRepairProgress = (): RepairProgress => ({
  repaired: new Set(),
  triedCount: 0,
  unknownCount: 0,
});

/** Limits the plan, which is in memory. The next run repairs the other differences. */
export const PLAN_MAX = 10_000;
/** Differences that one transaction repairs. Each takes several statements, and commits of blocks wait for them. */
const STEP_DIFFERENCES = 100;

/** Compares the range and plans the repair of each difference. Writes nothing. */
export async function planRepairs(
  options: Omit<VerifyOptions, 'onDifference'>,
  signal: AbortSignal,
): Promise<RepairPlan> {
  const repairable: Difference[] = [];
  const unrepairable: Difference[] = [];
  const report = await verifyStored(
    {
      ...options,
      onDifference(difference) {
        const list = difference.repairs === undefined ? unrepairable : repairable;
        if (list.length < PLAN_MAX) list.push(difference);
      },
    },
    signal,
  );
  return { report, repairable, unrepairable };
}

/** The outcome of a comparison once this many of its differences are repaired. A plan of PLAN_MAX leaves some out. */
export function outcomeAfter(report: VerifyReport, repairedCount: number): VerifyReport['outcome'] {
  if (report.outcome !== 'different') return report.outcome;
  if (report.differences > repairedCount) return 'different';
  return isComplete(report) ? 'equal' : 'not_compared';
}

/**
 * The repairs of a difference to apply. Without `mayCreditTwice`, a right notification that a receiver might credit again is
 * not sent, and an acknowledged wrong one is not marked as orphaned. A wrong one that is still being sent always stops.
 */
function repairsOf(
  { repairs = [], mayCreditTwice: isDoubtful = false, told }: Difference,
  { mayCreditTwice }: { mayCreditTwice: boolean },
): readonly Repair[] {
  if (!isDoubtful || mayCreditTwice) return repairs;
  return repairs.filter(({ action }) => action === 'orphan' && told?.state !== 'processed');
}

/**
 * Applies the plan and notes each transaction in `progress`. Skips differences whose block or notification changed after the
 * comparison. Stops between two transactions when the signal aborts. @throws Fault `unavailable` when the database does not answer
 */
export async function applyPlan(
  database: Database,
  { repairable }: RepairPlan,
  {
    confirmations,
    mayCreditTwice,
    progress,
  }: Pick<VerifyOptions, 'confirmations'> & { mayCreditTwice: boolean; progress: RepairProgress },
  signal: AbortSignal,
): Promise<void> {
  for (let start = 0; start < repairable.length && !signal.aborted; start += STEP_DIFFERENCES) {
    const step = repairable.slice(start, start + STEP_DIFFERENCES);
    const repairs = step.flatMap((difference) => repairsOf(difference, { mayCreditTwice }));
    const onCommit = () => {
      progress.unknownCount = step.length;
    };
    const applied = await applyRepairs(database, repairs, {
      confirmations,
      mayCreditTwice,
      readNow: readTime,
      onCommit,
    });
    for (const difference of step)
      if (difference.repairs?.every((repair) => applied.has(repair)) === true)
        progress.repaired.add(difference);
    progress.triedCount += step.length;
    progress.unknownCount = 0;
  }
}
