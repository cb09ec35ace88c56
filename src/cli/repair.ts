/**
 * `chainbell repair`: prints a plan that repairs the differences `verify` finds, and carries it out with --apply.
 */
import type { Command } from 'commander';
import type { Difference } from '../audit/compare.ts';
import type { RepairPlan, RepairProgress } from '../audit/repair-plan.ts';
import type { Config } from '../config/schema.ts';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { counted } from '../core/plural.ts';
import { exitCodes, withConfigOrDemo } from './exit.ts';
import { unlessInterrupted } from './interrupt.ts';
import { DOUBLE_CREDIT_FLAG, planLines } from './repair-steps.ts';
import {
  createDissentLines,
  createProgressLines,
  describe,
  parseNumber,
  reportJson,
  setExitCode,
} from './verify.ts';

type Flags = {
  config?: string;
  json?: boolean;
  from: number;
  to: number;
  dryRun?: boolean;
  apply?: boolean;
  allowDoubleCredit?: boolean;
};

export function addRepairCommand(program: Command): void {
  program
    .command('repair')
    .description(
      'compare stored blocks with the chain as verify does, and print a plan that repairs the differences or carry it out',
    )
    .requiredOption('--from <number>', 'first block', parseNumber)
    .requiredOption('--to <number>', 'last block', parseNumber)
    .option('--dry-run', 'print the plan and change nothing')
    .option('--apply', 'print the plan, then carry it out')
    .option(
      DOUBLE_CREDIT_FLAG,
      'with --apply: send a corrected notification even if its receiver may have credited the transfer under another id',
    )
    .option('--config <file>', 'configuration file (default: chainbell.yaml if it exists)')
    .option(
      '--json',
      'print JSON to standard output: one line for each step of the plan, then one with the summary',
    )
    .addHelpText(
      'after',
      '\nExample:\n  $ npm run --silent chainbell -- repair --from 17686110 --to 17686121 --dry-run',
    )
    .action(async (flags: Flags, command: Command) => {
      const { from, to, dryRun = false, apply = false, allowDoubleCredit = false } = flags;
      if (from > to) command.error(`error: --from ${from} is above --to ${to}`);
      if (dryRun === apply)
        command.error(
          'error: give either --dry-run or --apply. Start with --dry-run, which only prints the plan',
        );
      if (dryRun && allowDoubleCredit)
        command.error(
          `error: ${DOUBLE_CREDIT_FLAG} needs --apply. The plan that --dry-run prints is the same without it`,
        );
      await unlessInterrupted((signal) => withConfigOrDemo(flags, (config) => repair(flags, config, signal)));
    });
}

async function repair(flags: Flags, config: Config, signal: AbortSignal): Promise<void> {
  const { from, to, apply = false, json = false, allowDoubleCredit: mayCreditTwice = false } = flags;
  const [{ runRepair }, { createRepairProgress }] = await Promise.all([
    import('../app/verification.ts'),
    import('../audit/repair-plan.ts'),
  ]);
  const clock = systemClock();
  const progress = createRepairProgress();
  let plan: RepairPlan | undefined;
  try {
    await runRepair(config, {
      ...{ from, to, signal, clock, mayCreditTwice, progress },
      onDissent: createDissentLines(json),
      onProgress: createProgressLines(clock, process.stderr),
      onPlan(made) {
        printPlan(made, json);
        // The plan of an interrupted comparison is incomplete.
        if (signal.aborted) return false;
        plan = made;
        const { outcome } = made.report;
        return apply && (outcome === 'different' || outcome === 'equal');
      },
    });
  } catch (error) {
    if (!signal.aborted || !(error instanceof Fault)) throw error;
  } finally {
    if (plan !== undefined) await printSummary(plan, progress, { apply, json, mayCreditTwice });
  }
  if (!signal.aborted) return;
  process.stderr.write(
    `chainbell: interrupted, ${progress.repaired.size} repaired. To repair the rest, run the command again\n`,
  );
  process.exitCode = exitCodes.tryAgain;
}

function printPlan({ repairable, unrepairable }: RepairPlan, isJson: boolean): void {
  for (const difference of [...repairable, ...unrepairable])
    process.stdout.write(planLines(difference, isJson));
}

type Outcome = { apply: boolean; json: boolean; mayCreditTwice: boolean };

async function printSummary(
  { report, repairable, unrepairable }: RepairPlan,
  { repaired, triedCount, unknownCount }: RepairProgress,
  { apply, json, mayCreditTwice }: Outcome,
): Promise<void> {
  const { outcomeAfter, PLAN_MAX } = await import('../audit/repair-plan.ts');
  const isHeldBack = (one: Difference) => !mayCreditTwice && one.mayCreditTwice === true;
  const isOpen = (one: Difference) => !repaired.has(one) && !isHeldBack(one);
  const heldBack = repairable.filter((one) => !repaired.has(one) && isHeldBack(one)).length;
  const untried = repairable.slice(triedCount).filter(isOpen).length;
  const counts = {
    ...{ planned: repairable.length, repaired: repaired.size, cannot_repair: unrepairable.length },
    ...{ held_back: heldBack, skipped: repairable.slice(0, triedCount).filter(isOpen).length },
    unknown: unknownCount,
  };
  if (json)
    process.stdout.write(`${JSON.stringify({ summary: { ...counts, verify: reportJson(report) } })}\n`);
  const isPartial = Math.max(repairable.length, unrepairable.length) === PLAN_MAX;
  const planned = `${counted(counts.planned, 'repair')} planned, ${counts.repaired} done`;
  const lines = [
    `${planned}, ${counted(counts.cannot_repair, 'difference')} can't be repaired`,
    ...(counts.skipped > 0
      ? [`${counts.skipped} skipped, because a block or row changed meanwhile. Run the command again`]
      : []),
    ...(apply && untried > 0 ? [`${untried} not done. Run the command again`] : []),
    ...(unknownCount > 0
      ? [`the database may have done ${unknownCount} more, because it did not answer the last commit`]
      : []),
    ...(heldBack > 0 ? [doubtText(heldBack)] : []),
    ...(isPartial
      ? [`a plan has at most ${PLAN_MAX} differences. Run the command again for the others`]
      : []),
    ...(!apply && counts.planned > 0
      ? ['nothing was changed. To carry out the plan, give --apply instead of --dry-run']
      : []),
  ];
  process.stderr.write(describe(report) + lines.map((line) => `${line}\n`).join(''));
  setExitCode(outcomeAfter(report, repaired.size));
}

const doubtText = (count: number) =>
  `${counted(count, 'repair')} can credit a receiver twice and ${count === 1 ? 'needs' : 'need'} ${DOUBLE_CREDIT_FLAG}. First ask the receiver what it credited ` +
  'for each id under "told" (docs/how-to/verify-and-repair.md, Repairing)';
