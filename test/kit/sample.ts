/**
 * Samples of the heavy suites: a run of the whole suite takes one share of their cases, another share at each commit.
 * `npm test -- faults` and `npm run faults` take all of them.
 */
import { spawnSync } from 'node:child_process';
import { hash } from 'node:crypto';

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
  const share = (Number(chosen) + hash('sha256', of, 'buffer').readUInt8()) % shares;
  const sample = cases.filter((_, index) => index % shares === share);
  return sample.length > 0 ? sample : cases.slice(0, 1);
}

/** How many of `count` repetitions of the same thing to make: all, or, in a run of the whole suite, a third. */
export function sampleSize(count: number): number {
  return sampleOf(Array.from({ length: count })).length;
}
