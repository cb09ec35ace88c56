/**
 * Samples of the heavy suites: a run of the whole suite tells one in three of their cases, another third at each commit.
 * `npm test -- faults` and `npm run faults` tell all of them.
 */
import { spawnSync } from 'node:child_process';

/** Set by the test runner for a run of the whole suite: which third. */
export const SAMPLE_VARIABLE = 'CHAINBELL_TEST_SAMPLE';
const SHARES = 3;

/** The third for this commit: the same for each run of it. Outside a repository the first. */
export function sampleOfCommit(): string {
  const { stdout } = spawnSync('git', ['rev-parse', 'HEAD'], { encoding: 'utf8' });
  const start = Number.parseInt((stdout ?? '').slice(0, 8), 16);
  return String(Number.isNaN(start) ? 0 : start % SHARES);
}

/** All cases, or, in a run of the whole suite, those of its third: never none. */
export function sampleOf<Case>(
  cases: readonly Case[],
  share = process.env[SAMPLE_VARIABLE],
): readonly Case[] {
  if (share === undefined || share === '') return cases;
  const sample = cases.filter((_, index) => index % SHARES === Number(share));
  return sample.length > 0 ? sample : cases.slice(0, 1);
}
