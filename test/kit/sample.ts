/**
 * Samples of the heavy suites: a run of the whole suite takes one share of their cases, another share at each commit.
 * `npm test -- faults` and `npm run faults` take all of them.
 */
import { spawnSync } from 'node:child_process';
import { hash } from 'node:crypto';
import path from 'node:path';
import { type TestContext, type TestOptions, test } from 'node:test';

/** Set by the test runner for a run of the whole suite: a number that chooses among the shares of each suite. */
export const SAMPLE_VARIABLE = 'CHAINBELL_TEST_SAMPLE';
const SHARES = 3;
/** A multiple of all numbers of shares. */
const SAMPLES = 60;

/** The number for this commit: the same for each run of it. Outside a repository 0. */
export function sampleOfCommit(): string {
  const { stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { encoding: 'utf8' });
  const start = Number.parseInt((stdout ?? '').slice(0, 8), 16);
  return String(Number.isNaN(start) ? 0 : start % SAMPLES);
}

/** All cases, or, in a run of the whole suite, one share of them: never none. `of`: suites that need not take the same share. */
export function sampleOf<Case>(
  cases: readonly Case[],
  {
    shares = SHARES,
    of = '',
    chosen = process.env[SAMPLE_VARIABLE],
  }: { shares?: number; of?: string; chosen?: string | undefined } = {},
): readonly Case[] {
  if (chosen === undefined || chosen === '') return cases;
  const share = shareOf(chosen, of, shares);
  const sample = cases.filter((_, index) => index % shares === share);
  return sample.length > 0 ? sample : cases.slice(0, 1);
}

function shareOf(chosen: string, of: string, shares: number): number {
  return (Number(chosen) + hash('sha256', of, 'buffer').readUInt8()) % shares;
}

type Work = (t: TestContext) => void | Promise<void>;
type DeclareTest = {
  (name: string, work: Work): void;
  (name: string, options: TestOptions, work: Work): void;
};

/**
 * `test` for a slow file with at least as many tests as there are shares: a run of the whole suite declares one share of them.
 * `url`: import.meta.url.
 */
export function sampledTest(
  url: string,
  {
    shares = SHARES,
    chosen = process.env[SAMPLE_VARIABLE],
  }: { shares?: number; chosen?: string | undefined } = {},
): DeclareTest {
  const share =
    chosen === undefined || chosen === '' ? undefined : shareOf(chosen, path.basename(url), shares);
  let declared = 0;
  return (name: string, ...rest: [Work] | [TestOptions, Work]) => {
    const isTaken = share === undefined || declared % shares === share;
    declared += 1;
    if (!isTaken) return;
    if (rest.length === 1) void test(name, rest[0]);
    else void test(name, rest[0], rest[1]);
  };
}

/** How many of `count` repetitions of the same thing to make: all, or, in a run of the whole suite, a third. */
export function sampleSize(count: number): number {
  return sampleOf(Array.from({ length: count })).length;
}
