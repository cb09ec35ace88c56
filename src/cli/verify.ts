/**
 * `chainbell verify`: re-derives stored blocks from the chain and reports differences.
 */
import { type Command, InvalidArgumentError } from 'commander';
import type { Difference } from '../audit/compare.ts';
import type { VerifyOptions } from '../audit/verify.ts';
import type { VerifyReport } from '../audit/verify-report.ts';
import type { Config } from '../config/schema.ts';
import { type Clock, systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { counted } from '../core/plural.ts';
import { printableLines } from '../core/terminal-text.ts';
import { exitCodes, withConfigOrDemo } from './exit.ts';
import { unlessInterrupted } from './interrupt.ts';

type Flags = { config?: string; json?: boolean; from?: number; to?: number };

/** Thousands of differences usually have one cause. The summary counts all of them. */
const DIFFERENCES_SHOWN_MAX = 1_000;
const PROGRESS_MS = 10_000;

export function addVerifyCommand(program: Command): void {
  program
    .command('verify')
    .description(
      're-derive stored blocks from the chain and report differences; exit code 1 if there are differences, 69 if the comparison is incomplete',
    )
    .option('--from <number>', 'first block (default: the first stored one)', parseNumber)
    .option('--to <number>', 'last block (default: the newest stored one)', parseNumber)
    .option('--config <file>', 'configuration file (default: chainbell.yaml if it exists)')
    .option(
      '--json',
      'print JSON to standard output: one line for each difference, then one with the summary',
    )
    .addHelpText(
      'after',
      '\nExample:\n  $ npm run --silent chainbell -- verify --from 17686110 --to 17686121',
    )
    .action(async (flags: Flags, command: Command) => {
      const { from, to } = flags;
      if (from !== undefined && to !== undefined && from > to)
        command.error(`error: --from ${from} is above --to ${to}`);
      await unlessInterrupted((signal) => withConfigOrDemo(flags, (config) => verify(flags, config, signal)));
    });
}

async function verify({ from, to, json = false }: Flags, config: Config, signal: AbortSignal): Promise<void> {
  const { runVerification } = await import('../app/verification.ts');
  const clock = systemClock();
  const report = await runVerification(config, {
    ...{ from, to, signal, clock },
    onDifference: createDifferenceLines(json),
    onDissent: createDissentLines(json),
    onProgress: createProgressLines(clock, process.stderr),
  }).catch((error: unknown) => {
    // An interrupted comparison can fail with any Fault.
    if (signal.aborted && error instanceof Fault) return undefined;
    throw error;
  });
  // An interrupted comparison may also end without a Fault, with the part that it had compared.
  if (report === undefined || signal.aborted) {
    process.stderr.write('chainbell: interrupted\n');
    process.exitCode = exitCodes.tryAgain;
    return;
  }
  if (json) process.stdout.write(`${JSON.stringify({ summary: reportJson(report) })}\n`);
  process.stderr.write(describe(report));
  if (report.outcome === 'different')
    process.stderr.write('what to do: docs/how-to/verify-and-repair.md, "When something differs"\n');
  setExitCode(report.outcome);
}

export function setExitCode(outcome: VerifyReport['outcome']): void {
  if (outcome === 'different') process.exitCode = 1;
  if (outcome === 'not_compared') process.exitCode = exitCodes.unavailable;
  if (outcome === 'reorganised') process.exitCode = exitCodes.tryAgain;
}

function createDifferenceLines(isJson: boolean): (difference: Difference) => void {
  let shown = 0;
  return ({ kind, block, message, notification }) => {
    shown += 1;
    if (shown > DIFFERENCES_SHOWN_MAX) return;
    if (!isJson) {
      process.stdout.write(printableLines([message]));
      return;
    }
    const fields = notification && {
      watched_addresses_id: notification.watchedAddressId,
      hash: notification.txHash,
      kind: notification.kind,
      ordinal: notification.ordinal,
      id: notification.id,
    };
    process.stdout.write(`${JSON.stringify({ difference: kind, block, ...fields, message })}\n`);
  };
}

/** Prints a line for each difference about which a node contradicts the others. */
export function createDissentLines(isJson: boolean): VerifyOptions['onDissent'] {
  let shown = 0;
  return ({ node, block, message }) => {
    shown += 1;
    if (shown > DIFFERENCES_SHOWN_MAX) return;
    process.stdout.write(
      isJson ? `${JSON.stringify({ node, block, message })}\n` : printableLines([`node ${node}: ${message}`]),
    );
  };
}

/** Prints a line every ten seconds. */
export function createProgressLines(
  clock: Clock,
  output: { write(text: string): unknown },
): VerifyOptions['onProgress'] {
  let shownMs = clock.now().getTime();
  return ({ done, total, uncompared, differences }) => {
    const nowMs = clock.now().getTime();
    if (nowMs - shownMs < PROGRESS_MS) return;
    shownMs = nowMs;
    const left = uncompared === 0 ? '' : `${uncompared} not compared, `;
    output.write(`${done} of ${total} blocks, ${left}${counted(differences, 'difference')}\n`);
  };
}

/** The report as it is printed. */
export function reportJson({ range, undecided, uncompared, notCompared, ...counts }: VerifyReport) {
  const { from = null, to = null } = range ?? {};
  return {
    ...{ from, to, ...counts, not_comparable: undecided },
    ...{ blocks_not_compared: uncompared, not_compared: notCompared },
  };
}

/** Says what was left out and why, then the outcome. */
export function describe(report: VerifyReport): string {
  const { range, differences, dissents, undecided, uncompared, notCompared, quorum, unanswered } = report;
  if (range === undefined) return 'no block is stored, so there is nothing to compare\n';
  const lines = [
    ...Object.entries(undecided).flatMap(([reason, count]) =>
      count > 0 ? [`not comparable, ${reason.replaceAll('_', ' ')}: ${count}`] : [],
    ),
    ...uncompared.map(({ from, to, reason }) => `not compared, ${spanText(from, to)}: ${reason}`),
    ...notCompared.map(
      ({ figure, count, reason }) =>
        `not compared, ${figure}${count === undefined ? '' : ` (${count})`}: ${reason}`,
    ),
    ...(differences > DIFFERENCES_SHOWN_MAX
      ? [`only the first ${DIFFERENCES_SHOWN_MAX} differences are shown`]
      : []),
    ...unanswered.map(({ node, message }) => `node ${node} did not answer: ${message}`),
    ...(dissents > 0
      ? [`the nodes disagree about ${counted(dissents, 'difference')}. Compare the nodes named above`]
      : []),
    ...(report.reads === undefined ? [] : [readsText(report.reads)]),
    ...(undecided.unconfirmed > 0
      ? [
          `${quorum.needed} of ${quorum.nodes} nodes must confirm a difference. Repair or replace the nodes named above, then run the command again`,
        ]
      : []),
    outcomeText(report, range),
  ];
  return printableLines(lines);
}

function outcomeText(report: VerifyReport, { from, to }: { from: number; to: number }): string {
  const { outcome, blocks, differences } = report;
  const compared = `${counted(blocks, 'block')} of ${from} to ${to} compared, ${factsOf(report)} equal`;
  const leftCount = report.undecided.not_served + report.undecided.too_many;
  const left = `${counted(leftCount, 'block')} could not be compared`;
  switch (outcome) {
    case 'equal':
      return `equal: ${compared}, no differences`;
    case 'different':
      return `different: ${compared}, ${counted(differences, 'difference')}${leftCount === 0 ? '' : `, ${left}`}`;
    case 'not_compared':
      if (report.undecided.before_start + report.undecided.after_tip === to - from + 1)
        return `not compared: no block of ${from} to ${to} is stored. Choose other blocks: chainbell status shows the newest one`;
      if (blocks === 0) return `not compared: no block of ${from} to ${to} could be compared`;
      return leftCount > 0
        ? `incomplete: ${compared}, no differences, but ${left}`
        : `not confirmed: ${compared}. The rest is neither confirmed as equal nor as different`;
    case 'reorganised':
      return 'a reorg changed these blocks during the comparison. Run the command again';
  }
}

const readsText = ({ replica, primary, problem }: NonNullable<VerifyReport['reads']>): string =>
  replica === 0
    ? `read from the primary, because the replica ${problem ?? 'is too far behind'}`
    : `read from the replica: ${replica} of ${counted(replica + primary, 'statement')}`;

const spanText = (from: number, to: number): string =>
  from === to ? `block ${from}` : `blocks ${from} to ${to}`;

function factsOf({ notifications, swaps, awards }: VerifyReport): string {
  const facts = [
    counted(notifications, 'notification'),
    ...(swaps > 0 ? [counted(swaps, 'swap')] : []),
    ...(awards > 0 ? [counted(awards, 'award')] : []),
  ];
  return facts.join(' and ');
}

/** Parses the block number of an option. */
export function parseNumber(text: string): number {
  const number = Number(text);
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(number))
    throw new InvalidArgumentError('It must be a block number.');
  return number;
}
