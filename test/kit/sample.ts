/**
 * Samples of the slow suites. A run of the whole suite takes one share of their cases, and a different share for each commit.
 * `npm test -- faults` and `npm run faults` take all cases.
 */
import { spawnSync } from 'node:child_process';
import { hash } from 'node:crypto';
import path from 'node:path';
import { type TestContext, type TestOptions, test } from 'node:test';

/** The test runner sets this in a run of the whole suite: a number that selects the share of each suite. */
export const SAMPLE_VARIABLE = 'CHAINBELL_TEST_SAMPLE';
const SHARES = 3;
/** A multiple of every number of shares. */
const SAMPLES = 60;

/** The number for this commit, the same in each run of it. 0 outside a repository. */
export function sampleOfCommit(): string {
  const { stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { encoding: 'utf8' });
  const start = Number.parseInt((stdout ?? '').slice(0, 8), 16);
  return String(Number.isNaN(start) ? 0 : start % SAMPLES);
}

/** All cases. In a run of the whole suite, one non-empty share of them. `of` gives suites different shares. */
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
 * `test` for a slow file that has at least as many tests as shares. A run of the whole suite declares one share of them.
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

/** The number of repetitions: `count`, or a third of it in a run of the whole suite. */
export function sampleSize(count: number): number {
  return sampleOf(Array.from({ length: count })).length;
}
