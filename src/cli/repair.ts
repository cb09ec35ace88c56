/**
 * `chainbell repair`: says how each difference that `verify` finds can be repaired, and repairs it.
 */
import type { Command } from 'commander';
import type { Config } from '../config/schema.ts';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Difference } from '../ingest/compare.ts';
import { PLAN_MAX, type RepairPlan } from '../ingest/repair.ts';
import type { Repair } from '../store/repair.ts';
import { runRepair } from '../verification.ts';
import { exitCodes, withConfig } from './exit.ts';
import { untilInterrupted } from './interrupt.ts';
import { createDissentLines, createProgressLines, describe, parseNumber, reportJson } from './verify.ts';

type Flags = {
  config?: string;
  json?: boolean;
  from: number;
  to: number;
  dryRun?: boolean;
  apply?: boolean;
};

export function addRepairCommand(program: Command): void {
  program
    .command('repair')
    .description(
      'compare stored blocks with the chain as verify does, print what would repair the differences, and repair them',
    )
    .requiredOption('--from <number>', 'first block', parseNumber)
    .requiredOption('--to <number>', 'last block', parseNumber)
    .option('--dry-run', 'print the plan and change nothing')
    .option('--apply', 'print the plan, then do exactly that')
    .option('--config <file>', 'configuration file (default: chainbell.yaml when there is one)')
    .option(
      '--json',
      'JSON on standard output: one line for each step of the plan, then one with the summary',
    )
    .addHelpText(
      'after',
      '\nExample:\n  $ npm run --silent chainbell -- repair --from 17686110 --to 17686121 --dry-run',
    )
    .action(async (flags: Flags, command: Command) => {
      const { from, to, dryRun = false, apply = false } = flags;
      if (from > to) command.error(`error: --from ${from} is above --to ${to}`);
      if (dryRun === apply)
        command.error('error: begin with --dry-run, which prints the plan; then give --apply instead of it');
      await untilInterrupted((signal) => withConfig(flags, (config) => repair(flags, config, signal)));
    });
}

async function repair(flags: Flags, config: Config, signal: AbortSignal): Promise<void> {
  const { from, to, apply = false, json = false } = flags;
  const clock = systemClock();
  let plan: RepairPlan | undefined;
  const repaired = await runRepair(config, {
    ...{ from, to, signal, clock },
    onDissent: createDissentLines(json),
    onProgress: createProgressLines(clock, process.stderr),
    onPlan(made) {
      plan = made;
      printPlan(made, json);
      const { outcome } = made.report;
      return apply && (outcome === 'different' || outcome === 'equal');
    },
  }).catch((error: unknown) => {
    if (signal.aborted && error instanceof Fault) return new Set<Difference>();
    throw error;
  });
  if (plan === undefined || signal.aborted) {
    process.stderr.write(`chainbell: interrupted; ${repaired.size} repaired\n`);
    process.exitCode = exitCodes.tryAgain;
    return;
  }
  printSummary(plan, repaired, { apply, json });
}

function printPlan({ repairable, unrepairable }: RepairPlan, isJson: boolean): void {
  for (const difference of repairable) {
    const steps = difference.repairs ?? [];
    print(difference, steps.map(nameOf).join(', then '), isJson);
  }
  for (const difference of unrepairable) print(difference, 'cannot repair', isJson);
}

function print({ what, block, message, notification }: Difference, step: string, isJson: boolean): void {
  if (!isJson) {
    const id = notification?.id === undefined ? '' : ` (notification ${notification.id})`;
    process.stdout.write(`${step}${id}: ${message}\n`);
    return;
  }
  const fields = notification && { id: notification.id, watched_addresses_id: notification.watchedAddressId };
  process.stdout.write(`${JSON.stringify({ repair: step, difference: what, block, ...fields, message })}\n`);
}

function nameOf(repair: Repair): string {
  switch (repair.action) {
    case 'create':
      return 'create and deliver';
    case 'withdraw':
      return 'withdraw';
    case 'update':
      return repair.isRescheduled ? 'reschedule' : 'correct block';
    case 'recompute_volume':
    case 'recompute_day':
    case 'recompute_month':
      return 'recompute';
  }
}

function printSummary(
  { report, repairable, unrepairable }: RepairPlan,
  repaired: ReadonlySet<Difference>,
  { apply, json }: { apply: boolean; json: boolean },
): void {
  const counts = {
    ...{ planned: repairable.length, repaired: repaired.size, cannot_repair: unrepairable.length },
    skipped: apply ? repairable.length - repaired.size : 0,
  };
  if (json)
    process.stdout.write(`${JSON.stringify({ summary: { ...counts, verify: reportJson(report) } })}\n`);
  const isPartial = Math.max(repairable.length, unrepairable.length) === PLAN_MAX;
  const lines = [
    `${counts.planned} repairs planned, ${counts.repaired} done, ${counts.cannot_repair} differences cannot be repaired`,
    ...(counts.skipped > 0
      ? [`${counts.skipped} skipped: a block or row changed meanwhile; run it again`]
      : []),
    ...(isPartial ? [`a plan has ${PLAN_MAX} differences at most; run it again for the others`] : []),
    ...(!apply && counts.planned > 0 ? ['nothing was changed; to do this give --apply'] : []),
  ];
  process.stderr.write(describe(report) + lines.map((line) => `${line}\n`).join(''));
  const left = repairable.length - repaired.size + unrepairable.length;
  if (left > 0) process.exitCode = 1;
  if (report.outcome === 'not_compared') process.exitCode = exitCodes.unavailable;
  if (report.outcome === 'reorganised') process.exitCode = exitCodes.tryAgain;
}
