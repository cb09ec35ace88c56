/**
 * One test file in a process of its own, and what came of it.
 */

import type { EventData } from 'node:test';
import { run } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';

export type Failure = {
  /** The names from the outermost suite to the test; empty when the file itself failed. */
  path: string[];
  problem: string;
};

export type FileResult = {
  file: string;
  durationMs: number;
  passed: number;
  skipped: number;
  failures: Failure[];
  /** The end of what the file printed. */
  output: string;
};

const OUTPUT_CHARACTERS_MAX = 8_000;
/** How long a process may take to die of SIGTERM before we go on without it. */
const DYING_MS_MAX = 5_000;

/**
 * Runs the file and counts its tests, suites not among them. A file that crashes, that has no test or that is still
 * running after `timeMsMax` has failed. Ends early when the signal aborts.
 */
export async function runFile(
  file: string,
  options: { timeMsMax: number; signal: AbortSignal },
): Promise<FileResult> {
  const startedAt = performance.now();
  const result: FileResult = { file, durationMs: 0, passed: 0, skipped: 0, failures: [], output: '' };
  const expired = AbortSignal.timeout(options.timeMsMax);
  const signal = AbortSignal.any([options.signal, expired]);
  const done = consume(file, signal, result);
  await Promise.race([done, overdue(signal)]);
  if (expired.aborted) {
    const problem = `still running after ${options.timeMsMax} ms: a test that hangs, or something left open`;
    result.failures.push({ path: [], problem });
  } else if (!signal.aborted && result.passed + result.skipped + result.failures.length === 0) {
    result.failures.push({ path: [], problem: 'there is no test in this file' });
  }
  result.durationMs = performance.now() - startedAt;
  return result;
}

async function overdue(signal: AbortSignal): Promise<void> {
  if (!signal.aborted)
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  await delay(DYING_MS_MAX, undefined, { ref: false });
}

async function consume(file: string, signal: AbortSignal, result: FileResult): Promise<void> {
  const names: string[] = [];
  for await (const { type, data } of run({ files: [file], isolation: 'process', concurrency: 1, signal })) {
    switch (type) {
      case 'test:start':
        names.splice(data.nesting, Infinity, data.name);
        break;
      case 'test:pass':
        // A file without tests reports itself.
        if (data.details.type === 'suite' || data.name === file) break;
        if (isSetAside(data)) result.skipped += 1;
        else result.passed += 1;
        break;
      case 'test:fail':
        if (isSetAside(data)) result.skipped += 1;
        else if (signal.aborted || isOnlyByChildren(data)) break;
        else
          result.failures.push({
            path: data.name === file ? [] : [...names.slice(0, data.nesting), data.name],
            problem: problemOf(data),
          });
        break;
      case 'test:stdout':
      case 'test:stderr':
        result.output = (result.output + data.message).slice(-OUTPUT_CHARACTERS_MAX);
        break;
      default:
    }
  }
}

function isSetAside(data: EventData.TestPass | EventData.TestFail): boolean {
  return (data.skip !== undefined && data.skip !== false) || (data.todo !== undefined && data.todo !== false);
}

/** A suite, or a test with tests inside, that failed for no reason of its own. */
function isOnlyByChildren(data: EventData.TestFail): boolean {
  const { error } = data.details;
  return 'failureType' in error && error.failureType === 'subtestsFailed';
}

/** The thrown value as text, with the lines of the stack that are the project's. */
function problemOf(data: EventData.TestFail): string {
  const { error } = data.details;
  // The process of the file, not a test in it.
  if ('exitCode' in error && 'signal' in error) {
    const how =
      typeof error.signal === 'string' ? `by ${error.signal}` : `with code ${String(error.exitCode)}`;
    return `its process ended ${how}`;
  }
  return describe(error.cause ?? error);
}

function describe(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const lines = (error.stack ?? String(error))
    .split('\n')
    .filter((line) => !/^\s+at (.*\()?node:/.test(line));
  const cause = error.cause === undefined ? '' : `\ncaused by ${describe(error.cause)}`;
  return lines.join('\n') + cause;
}
