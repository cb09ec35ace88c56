/**
 * An abuse: something that receivers, clocks, networks or machines do to delivery, and what was seen of it. The same
 * abuses are tests and rows of a table.
 */
import { describe, test } from 'node:test';
import { sampleOf } from '../kit/sample.ts';

export type Abuse = {
  /** The promise that holds all the same. */
  name: string;
  /** Takes longer than a test run should: committed by name only (`npm run abuse -- --long`). */
  isLong?: boolean;
  /** Commits it, and asserts that the promise holds; resolves with what was seen, for the table. */
  commit(): Promise<string>;
};

/** Declares a test for each abuse that is not long; a run of the whole suite takes one of `shares`. */
export function testAbuses(abuses: readonly Abuse[], { shares }: { shares: number }): void {
  describe('abused', { concurrency: 1 }, () => {
    const short = abuses.filter(({ isLong }) => isLong !== true);
    for (const { name, commit } of sampleOf(short, { shares })) test(name, async () => void (await commit()));
  });
}
