/**
 * An abuse is an attack or a failure of receivers, clocks, networks or machines, with the promise that holds despite it. The
 * same abuses are tests and rows of a table.
 */
import { describe, test } from 'node:test';
import { sampleOf } from '../kit/sample.ts';

export type Abuse = {
  /** The promise that holds despite the abuse. */
  name: string;
  /** Takes too long for a test run. Runs only by name (`npm run abuse -- --long`). */
  isLong?: boolean;
  /** Commits the abuse and asserts that the promise holds. Resolves with the observation for the table. */
  commit(): Promise<string>;
};

/** Declares a test for each abuse that is not long. A run of the whole suite takes one of `shares` shares. */
export function testAbuses(abuses: readonly Abuse[], { shares }: { shares: number }): void {
  describe('abused', { concurrency: 1 }, () => {
    const short = abuses.filter(({ isLong }) => isLong !== true);
    for (const { name, commit } of sampleOf(short, { shares })) test(name, async () => void (await commit()));
  });
}
