/**
 * `npm test`: the static checks, then every test file, short ones several to a process, against one PostgreSQL server. The last
 * line is `N passed, N failed`, after `N skipped` where there are any; the exit code is 1 when anything failed.
 *
 *   npm test                          everything; with a sample of the longest suites, another one at each commit
 *   npm test -- --all                 everything in full
 *   npm test -- store/blocks sim      the files whose path contains one of these words, without the static checks
 *   npm test -- --no-checks           all files, without the static checks
 *   npm test -- --only-checks         the static checks alone
 *   npm run citus                     the tests of store and system on a Citus cluster, whose coordinator is at TEST_CITUS_URL
 *   npm run citus -- store/delivery   the files whose path contains one of these words, on the cluster
 *   npm run citus -- --part 2/3       the second of three parts of the files
 */
import { globSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs, styleText } from 'node:util';
import { messageOf } from '../src/core/fault.ts';
import { prepareTemplates } from './kit/database.ts';
import { keepDurations, longestFirst } from './kit/durations.ts';
import { type PostgresServer, startPostgresServer } from './kit/postgres-server.ts';
import { type FileResult, runFiles } from './kit/run-file.ts';
import { SAMPLE_VARIABLE, sampleOfCommit } from './kit/sample.ts';
import { groupFiles } from './kit/share-process.ts';
import { runStaticChecks, type StaticCheckResult } from './kit/static-checks.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** A file that runs for longer hangs. The slowest ones take a minute on an idle machine with two cores, and several on a busy one or on Citus. */
const [FILE_MS_MAX, CITUS_FILE_MS_MAX] = [600_000, 1_200_000];
/** The additional time for each further file of the same process. */
const FURTHER_FILE_MS_MAX = 60_000;
const SLOW_MS = 5_000;
const SLOW_FILES_MAX = 25;
/**
 * More files at once than processors, because many files wait for processes, timeouts and answers. On Citus half as many, because each file
 * keeps the servers busy, whose statements have a time limit.
 */
const [FILES, CITUS_FILES] = [availableParallelism() + 1, Math.ceil(availableParallelism() / 2)];

type Outcome = { passed: number; skipped: number; skipReasons?: string[]; failed: string[] };

const CITUS_SUITES = ['test/store/', 'test/system/'];

const { values: flags, positionals: words } = parseArgs({
  options: {
    ...{ all: { type: 'boolean' }, 'no-checks': { type: 'boolean' }, 'only-checks': { type: 'boolean' } },
    ...{ citus: { type: 'boolean' }, part: { type: 'string' } },
  },
  allowPositionals: true,
});
if (flags.citus === true) {
  if ((process.env.TEST_CITUS_URL ?? '') === '') {
    say(
      'SKIPPED: the tests on Citus, because TEST_CITUS_URL (the coordinator of a cluster with workers) is not set',
    );
    process.exit(0);
  }
  process.env.TEST_ON_CITUS = '1';
  if (words.length === 0) words.push(...CITUS_SUITES);
}
const part = parsePart(flags.part ?? '1/1');
if (words.length === 0 && flags.all !== true) process.env[SAMPLE_VARIABLE] ??= sampleOfCommit();
const interrupt = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.on(signal, () => interrupt.abort(new Error(`interrupted by ${signal}`)));

const outcome = await main().catch((error: unknown): Outcome => {
  say(indent(messageOf(error)));
  return { passed: 0, skipped: 0, failed: ['the run itself'] };
});
say('');
for (const [reason, tests] of Map.groupBy(outcome.skipReasons ?? [], (reason) => reason))
  say(styleText('yellow', `skipped ${tests.length}: ${reason}`));
for (const name of outcome.failed) say(styleText('red', `✖ ${name}`));
if (interrupt.signal.aborted) say(messageOf(interrupt.signal.reason));
if (outcome.skipped > 0) say(`${outcome.skipped} skipped`);
say(`${outcome.passed} passed, ${outcome.failed.length} failed`);
// Not process.exitCode: a test process that could not be ended must not keep this one.
process.exit(outcome.failed.length > 0 || interrupt.signal.aborted ? 1 : 0);

function parsePart(text: string): { number: number; count: number } {
  const [, number, count] = (/^(\d+)\/(\d+)$/.exec(text) ?? []).map(Number);
  if (number === undefined || count === undefined || number < 1 || number > count)
    throw new Error(`--part ${text}: write for example --part 2/3`);
  return { number, count };
}

async function main(): Promise<Outcome> {
  const all = globSync('test/**/*.test.ts', { cwd: ROOT }).sort();
  const files =
    flags['only-checks'] === true
      ? []
      : all.filter((file) => words.length === 0 || words.some((word) => file.includes(word)));
  const isChecking = flags['only-checks'] === true || (flags['no-checks'] !== true && words.length === 0);
  if (files.length === 0 && !isChecking)
    return { passed: 0, skipped: 0, failed: [`no test file contains ${words.join(' or ')}`] };

  // Not at the same time as the checks, which use every processor, because the database's connections have a time limit.
  const server = await startServer(files);
  const checks = isChecking ? await runStaticChecks(ROOT) : [];
  for (const check of checks) showCheck(check);
  // Crashed tests leave folders behind; all of them are in this one. Its files may be another user's (PostgreSQL as root).
  const temporary = await mkdtemp(path.join(tmpdir(), 'chainbell-run-'));
  await chmod(temporary, 0o755);
  process.env.TMPDIR = temporary;
  try {
    const groups = groupFiles(ROOT, files).filter((_, index) => index % part.count === part.number - 1);
    const results = await runAll(longestFirst(groups));
    keepDurations(results);
    showSlow(results);
    return sum(checks, results);
  } finally {
    await server?.stop();
    await rm(temporary, { recursive: true, force: true });
  }
}

/** One server for all files, with the templates made. A single file starts what it needs by itself. */
async function startServer(files: string[]): Promise<PostgresServer | undefined> {
  if (files.length < 2 || flags.citus === true) return undefined;
  const given = process.env.TEST_DATABASE_URL;
  const server = given === undefined || given === '' ? await startPostgresServer() : undefined;
  if (server !== undefined) process.env.TEST_DATABASE_URL = server.url;
  await prepareTemplates();
  return server;
}

async function runAll(groups: string[][]): Promise<FileResult[]> {
  const fileMsMax = flags.citus === true ? CITUS_FILE_MS_MAX : FILE_MS_MAX;
  const results: FileResult[] = [];
  const waiting = [...groups];
  const work = async () => {
    for (
      let group = waiting.shift();
      group !== undefined && !interrupt.signal.aborted;
      group = waiting.shift()
    ) {
      const ran = await runFiles(
        group.map((file) => path.join(ROOT, file)),
        { timeMsMax: fileMsMax + (group.length - 1) * FURTHER_FILE_MS_MAX, signal: interrupt.signal },
      );
      if (interrupt.signal.aborted) return;
      for (const result of ran) {
        const named = { ...result, file: path.relative(ROOT, result.file) };
        results.push(named);
        showFile(named);
      }
    }
  };
  await Promise.all(Array.from({ length: flags.citus === true ? CITUS_FILES : FILES }, work));
  return results;
}

function sum(checks: StaticCheckResult[], results: FileResult[]): Outcome {
  const failed = checks.filter((check) => check.problem !== undefined).map((check) => check.name);
  let passed = checks.length - failed.length;
  let skippedTests = 0;
  for (const result of results) {
    passed += result.passed;
    skippedTests += result.skipped;
    for (const failure of result.failures) failed.push([result.file, ...failure.path].join(' › '));
  }
  return { passed, skipped: skippedTests, skipReasons: results.flatMap((one) => one.skipReasons), failed };
}

function showCheck(check: StaticCheckResult): void {
  say(`${mark(check.problem === undefined)} ${check.name}  ${seconds(check.durationMs)}`);
  if (check.problem !== undefined) say(indent(check.problem));
}

function showFile(result: FileResult): void {
  const counts = [`${result.passed} passed`];
  if (result.failures.length > 0) counts.push(`${result.failures.length} failed`);
  if (result.skipped > 0) counts.push(`${result.skipped} skipped`);
  say(
    `${mark(result.failures.length === 0)} ${result.file}  ${counts.join(', ')}  ${seconds(result.durationMs)}`,
  );
  for (const failure of result.failures) {
    if (failure.path.length > 0) say(styleText('red', `    ✖ ${failure.path.join(' › ')}`));
    say(indent(failure.problem));
  }
  if (result.failures.length > 0 && result.output !== '')
    say(indent(`It printed:\n${result.output.trimEnd()}`));
}

function showSlow(results: FileResult[]): void {
  const slow = results
    .filter((result) => result.durationMs > SLOW_MS)
    .sort((a, b) => b.durationMs - a.durationMs);
  if (slow.length > 0) say('\nSlowest files:');
  for (const result of slow.slice(0, SLOW_FILES_MAX)) say(`  ${seconds(result.durationMs)}  ${result.file}`);
}

function mark(isGood: boolean): string {
  return isGood ? styleText('green', '✔') : styleText('red', '✖');
}

function seconds(durationMs: number): string {
  return styleText('dim', `${(durationMs / 1000).toFixed(1)} s`);
}

function indent(text: string): string {
  return text.replaceAll(/^/gm, '      ');
}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}
