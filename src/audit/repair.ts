/**
 * Repairs of the differences that `verify` found: first a plan, then exactly that plan, in small transactions while the
 * service runs.
 */
import { applyRepairs, type Repair } from '../store/audit/repair.ts';
import type { Database } from '../store/db/db.ts';
import { readTime } from '../store/db/time.ts';
import type { Difference } from './compare.ts';
import { type VerifyOptions, verifyStored } from './verify.ts';
import type { VerifyReport } from './verify-report.ts';

export type RepairPlan = {
  report: VerifyReport;
  /** Differences that their `repairs` end. */
  repairable: Difference[];
  /** Differences that no repair can end, mostly because a receiver has seen the notification. */
  unrepairable: Difference[];
};

/** A plan is kept in memory; further differences are left for the next run. */
export const PLAN_MAX = 10_000;
/** Differences of one transaction, which holds up commits of blocks meanwhile: some tens of milliseconds. */
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

/**
 * The repairs of a difference to apply. Without `mayCreditTwice` a right notification that might be credited again is held
 * back, and so is the mark on a wrong one that was acknowledged. A wrong one that is still being sent stops all the same.
 */
function repairsOf(
  { repairs = [], mayCreditTwice: isDoubtful = false, told }: Difference,
  { mayCreditTwice }: { mayCreditTwice: boolean },
): readonly Repair[] {
  if (!isDoubtful || mayCreditTwice) return repairs;
  return repairs.filter(({ action }) => action === 'orphan' && told?.state !== 'processed');
}

/**
 * Applies the plan. Returns the repaired differences; the others met a block or a notification that changed since it was
 * compared. Ends between two transactions when it is interrupted.
 */
export async function applyPlan(
  database: Database,
  { repairable }: RepairPlan,
  { confirmations, mayCreditTwice }: Pick<VerifyOptions, 'confirmations'> & { mayCreditTwice: boolean },
  signal: AbortSignal,
): Promise<Set<Difference>> {
  const repaired = new Set<Difference>();
  for (let start = 0; start < repairable.length && !signal.aborted; start += STEP_DIFFERENCES) {
    const step = repairable.slice(start, start + STEP_DIFFERENCES);
    const repairs = step.flatMap((difference) => repairsOf(difference, { mayCreditTwice }));
    const now = await readTime(database);
    const applied = await applyRepairs(database, repairs, { confirmations, mayCreditTwice, now });
    for (const difference of step)
      if (difference.repairs?.every((repair) => applied.has(repair)) === true) repaired.add(difference);
  }
  return repaired;
}
