/**
 * `chainbell points import FILE`: stores awards from another system. Importing a file twice adds nothing twice.
 */
import { open } from 'node:fs/promises';
import { addAbortSignal, type Readable } from 'node:stream';
import type { Command } from 'commander';
import { type Clock, systemClock } from '../core/clock.ts';
import { decimalText } from '../core/decimal.ts';
import { Fault } from '../core/fault.ts';
import { whyUnreadable } from '../core/file-fault.ts';
import { counted } from '../core/plural.ts';
import { printableLines } from '../core/terminal-text.ts';
import type { Award } from '../domain/award.ts';
import { createBatchStore, dryRun, type StoreBatch } from '../store/points/award-import.ts';
import type { ReadLine } from './award-file.ts';
import { exitCodes } from './exit.ts';
import { unlessInterrupted } from './interrupt.ts';
import { addStoreCommand, type Flags, withStore, writeJson } from './secret-store.ts';

/** One transaction, which takes a few hundred milliseconds. Blocks wait for it. */
const BATCH_AWARDS = 2_000;
/** More problems usually have one common cause. */
const PROBLEMS_MAX = 20;
const PROGRESS_MS = 10_000;

export function addPointsImportCommand(points: Command): void {
  addStoreCommand(
    points,
    'import',
    'store awards from another system; awards that are already stored are skipped',
  )
    .argument('<file>', 'NDJSON, or CSV with a header row; - for standard input')
    .option('--dry-run', 'check every line and store nothing')
    .addHelpText(
      'after',
      `
Fields: user, category, points, hash, and created_at or month; also id and ordinal if a transaction has several awards.
The import stores batches of ${BATCH_AWARDS} awards. A wrong line ends it before the batch that has the line, with exit code 64. Correct the line and import the file again: awards that are already stored are skipped.

Example:
  $ npm run --silent chainbell -- points import awards.ndjson --dry-run`,
    )
    .action((file: string, flags: ImportFlags) =>
      unlessInterrupted((signal) =>
        withStore(flags, async ({ database }) => {
          const { readAwards } = await import('./award-file.ts');
          const lines = readAwards(addAbortSignal(signal, await openFile(file)));
          const read = (store: StoreBatch) => importLines(lines, store, { clock: systemClock(), signal });
          const report =
            flags.dryRun === true ? await dryRun(database, read) : await read(createBatchStore(database));
          printReport(flags, report);
        }),
      ),
    );
}

type ImportFlags = Flags & { dryRun?: boolean };

async function openFile(file: string): Promise<Readable> {
  if (file === '-') return process.stdin;
  const refuse = (reason: string) =>
    new Fault('not_found', `cannot read ${file}: ${reason}. Name a readable file, or - for standard input`);
  const handle = await open(file).catch((error: unknown) => {
    throw refuse(whyUnreadable(error));
  });
  if ((await handle.stat()).isDirectory()) throw refuse('it is a folder');
  return handle.createReadStream();
}

type Report = {
  lineCount: number;
  /** Lines that are awards. */
  fineCount: number;
  addedCount: number;
  /** Lines whose awards are stored now, including those that were stored before. */
  storedCount: number;
  problems: { line: number; message: string }[];
  end: 'end of file' | 'too many problems' | 'interrupted';
};

type Numbered = { line: number; award: Award };

/** Stores batch by batch up to the first problem; from then on lines are only checked. */
async function importLines(
  lines: AsyncIterable<ReadLine>,
  store: StoreBatch,
  { clock, signal }: { clock: Clock; signal: AbortSignal },
): Promise<Report> {
  const report: Report = {
    ...{ lineCount: 0, fineCount: 0, addedCount: 0, storedCount: 0 },
    problems: [],
    end: 'end of file',
  };
  const showProgress = createProgress(clock);
  let batch: Numbered[] = [];

  async function storeBatch(): Promise<void> {
    const taken = batch;
    batch = [];
    const { unique, problems } = findDoubles(taken);
    if (problems.length === 0) {
      const { addedCount, conflicts } = await store(unique.map(({ award }) => award));
      report.addedCount += addedCount;
      for (const index of conflicts)
        problems.push({ line: unique[index]?.line ?? 0, message: conflictWith('is already stored') });
    }
    if (problems.length === 0) report.storedCount += taken.length;
    report.fineCount -= problems.length;
    report.problems.push(...problems);
  }

  async function checkLine({ line, award }: ReadLine): Promise<void> {
    report.lineCount += 1;
    if (award instanceof Fault) report.problems.push({ line, message: describe(award) });
    else {
      report.fineCount += 1;
      if (report.problems.length === 0) batch.push({ line, award });
    }
    if (batch.length === BATCH_AWARDS && report.problems.length === 0) await storeBatch();
    showProgress(report);
  }

  try {
    for await (const line of lines) {
      await checkLine(line);
      if (report.problems.length >= PROBLEMS_MAX) return { ...report, end: 'too many problems' };
    }
  } catch (error) {
    // The signal closes the file, so reading it fails.
    if (signal.aborted) return { ...report, end: 'interrupted' };
    throw error;
  }
  if (report.problems.length === 0 && batch.length > 0) await storeBatch();
  return report;
}

/** Drops lines that repeat an earlier one of the batch. Reports those that repeat its identity with other contents. */
function findDoubles(batch: readonly Numbered[]): { unique: Numbered[]; problems: Report['problems'] } {
  const unique = new Map<string, Numbered>();
  const problems: Report['problems'] = [];
  for (const one of batch) {
    const { rule, txHash, ordinal } = one.award;
    const key = `${rule} ${txHash} ${ordinal}`;
    const first = unique.get(key);
    if (first === undefined) unique.set(key, one);
    else if (contentsOf(first.award) !== contentsOf(one.award))
      problems.push({ line: one.line, message: conflictWith(`is on line ${first.line}`) });
  }
  return { unique: [...unique.values()], problems };
}

const contentsOf = ({ user, category, points, awardedAt }: Award) =>
  JSON.stringify([user, category, decimalText(points), awardedAt]);

const conflictWith = (where: string) =>
  `an award with this hash, id and ordinal ${where} with other contents. Give each award of a transaction a different ordinal. To correct an award, add another one`;

function describe(fault: Fault): string {
  if (fault.problems.length === 0) return fault.message;
  return fault.problems.map(({ path, message }) => `${path} ${message}`).join('; ');
}

function createProgress(clock: Clock): (report: Report) => void {
  let shownMs = clock.now().getTime();
  return ({ lineCount, addedCount }) => {
    const nowMs = clock.now().getTime();
    if (nowMs - shownMs < PROGRESS_MS) return;
    shownMs = nowMs;
    process.stderr.write(`${lineCount} lines, ${addedCount} awards added\n`);
  };
}

function printReport(flags: ImportFlags, report: Report): void {
  const { lineCount, fineCount, addedCount, storedCount, problems, end } = report;
  const isDryRun = flags.dryRun === true;
  process.stderr.write(printableLines(problems.map(({ line, message }) => `line ${line}: ${message}`)));
  if (flags.json === true)
    writeJson({
      lines: lineCount,
      fine: fineCount,
      added: addedCount,
      known: storedCount - addedCount,
      dry_run: isDryRun,
      problems,
    });
  const sentences = [
    `${counted(lineCount, 'line')}: ${fineCount} fine, ${problems.length} wrong`,
    `${counted(addedCount, 'award')} ${isDryRun ? 'would be added' : 'added'}, ${storedCount - addedCount} already stored`,
    ...(end === 'too many problems' ? ['too many problems: the rest of the file was not read'] : []),
    ...(problems.length > 0
      ? ['correct the file and import it again: awards that are already stored are skipped']
      : []),
    ...(end === 'interrupted' ? ['interrupted: to continue, import the file again'] : []),
  ];
  process.stderr.write(sentences.map((sentence) => `${sentence}\n`).join(''));
  if (problems.length > 0) process.exitCode = exitCodes.usage;
  else if (end === 'interrupted') process.exitCode = exitCodes.tryAgain;
}
