/**
 * Runs test files in one process and collects the result of each.
 */
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { EventData } from 'node:test';
import { run } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

export type Failure = {
  /** The names from the outermost suite to the test. Empty when the file failed outside its tests. */
  path: string[];
  problem: string;
};

export type FileResult = {
  file: string;
  durationMs: number;
  passed: number;
  skipped: number;
  /** Why tests were skipped, one entry for each that gives a reason. */
  skipReasons: string[];
  failures: Failure[];
  /** The end of the process's output. */
  output: string;
};

const OUTPUT_CHARACTERS_MAX = 8_000;
/** The time that a process has to end after SIGTERM. After that, the run continues without it. */
const DYING_MS_MAX = 5_000;

/**
 * Runs the files one after the other in one process and counts their tests, without suites. A file fails if it crashes, has no
 * test or is still running after `timeMsMax`. The run ends early when the signal aborts.
 */
export async function runFiles(
  files: readonly string[],
  options: { timeMsMax: number; signal: AbortSignal },
): Promise<FileResult[]> {
  const startedAt = performance.now();
  const results = files.map(
    (file): FileResult => ({
      file,
      durationMs: 0,
      passed: 0,
      skipped: 0,
      skipReasons: [],
      failures: [],
      output: '',
    }),
  );
  const [first] = results;
  if (first === undefined) return [];
  const expired = AbortSignal.timeout(options.timeMsMax);
  const signal = AbortSignal.any([options.signal, expired]);
  const entry = files.length === 1 ? first.file : await writeEntry(files);
  const running: string[] = [];
  const done = consume(entry, { signal, results, running });
  await Promise.race([done, overdue(signal)]);
  const isEmpty = ({ passed, skipped, failures }: FileResult) => passed + skipped + failures.length === 0;
  if (expired.aborted) {
    const last = running.length === 0 ? '' : `; started last: ${running.join(' > ')}`;
    const problem = `still running after ${options.timeMsMax} ms: a test that hangs, or something left open${last}`;
    for (const result of results) result.failures.push({ path: [], problem });
  } else if (!signal.aborted) {
    const hasCrashed = results.some(({ failures }) => failures.some(({ path: names }) => names.length === 0));
    for (const result of results)
      if (!hasCrashed && isEmpty(result))
        result.failures.push({ path: [], problem: 'there is no test in this file' });
  }
  // Time outside of tests, such as loading. A test with subtests already includes theirs.
  const tested = results.reduce((sum, { durationMs }) => sum + durationMs, 0);
  const rest = Math.max(0, performance.now() - startedAt - tested) / results.length;
  for (const result of results) result.durationMs += rest;
  return results;
}

/** Writes a module that imports the files. */
async function writeEntry(files: readonly string[]): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-files-'));
  const entry = path.join(folder, 'files.test.mjs');
  await writeFile(
    entry,
    files.map((file) => `import ${JSON.stringify(pathToFileURL(file).href)};\n`).join(''),
  );
  return entry;
}

async function overdue(signal: AbortSignal): Promise<void> {
  if (!signal.aborted)
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  await delay(DYING_MS_MAX, undefined, { ref: false });
}

/** Counts the tests in `results`. `running` holds the names of the test that started last, from its outermost suite. */
async function consume(
  entry: string,
  { signal, results, running }: { signal: AbortSignal; results: readonly FileResult[]; running: string[] },
): Promise<void> {
  const names: string[] = [];
  const [first] = results;
  if (first === undefined) return;
  const resultOf = (file: string | undefined) => results.find((result) => result.file === file) ?? first;
  for await (const { type, data } of run({
    files: [entry],
    isolation: 'process',
    concurrency: 1,
    signal,
  })) {
    switch (type) {
      case 'test:dequeue':
        if (!signal.aborted) running.splice(data.nesting, Infinity, data.name);
        break;
      case 'test:start':
        names.splice(data.nesting, Infinity, data.name);
        break;
      case 'test:pass': {
        // node:test reports a file without tests as a test.
        if (data.details.type === 'suite' || data.name === entry) break;
        const result = resultOf(data.file);
        result.durationMs += data.details.duration_ms;
        if (isSetAside(data)) noteSkip(result, data.skip);
        else result.passed += 1;
        break;
      }
      case 'test:fail': {
        const result = resultOf(data.file);
        if (isSetAside(data)) noteSkip(result, data.skip);
        else if (signal.aborted || isOnlyByChildren(data)) break;
        else
          result.failures.push({
            path: data.name === entry ? [] : [...names.slice(0, data.nesting), data.name],
            problem: problemOf(data),
          });
        break;
      }
      case 'test:stdout':
      case 'test:stderr':
        for (const result of results)
          result.output = (result.output + data.message).slice(-OUTPUT_CHARACTERS_MAX);
        break;
      default:
    }
  }
}

function noteSkip(result: FileResult, reason: string | boolean | undefined): void {
  result.skipped += 1;
  if (typeof reason === 'string') result.skipReasons.push(reason);
}

function isSetAside(data: EventData.TestPass | EventData.TestFail): boolean {
  return (data.skip !== undefined && data.skip !== false) || (data.todo !== undefined && data.todo !== false);
}

/** Whether a suite, or a test with subtests, failed only because of its children. */
function isOnlyByChildren(data: EventData.TestFail): boolean {
  const { error } = data.details;
  return 'failureType' in error && error.failureType === 'subtestsFailed';
}

/** The thrown value as text, with only those stack lines that belong to the project. */
function problemOf(data: EventData.TestFail): string {
  const { error } = data.details;
  // The process of the file failed, not a test.
  if ('exitCode' in error && 'signal' in error) {
    const how =
      typeof error.signal === 'string' ? `by ${error.signal}` : `with code ${String(error.exitCode)}`;
    return `its process ended ${how}`;
  }
  return describe(error.cause ?? error);
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // What the test failed with comes first, then what failed while it was cleaned up.
  if ('suppressed' in error && 'error' in error)
    return `${describe(error.suppressed)}\nthen ${describe(error.error)}`;
  const lines = (error.stack ?? String(error))
    .split('\n')
    .filter((line) => !/^\s+at (.*\()?node:/.test(line));
  const cause = error.cause === undefined ? '' : `\ncaused by ${describe(error.cause)}`;
  return lines.join('\n') + cause;
}
