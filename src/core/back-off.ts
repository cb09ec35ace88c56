/**
 * The wait between attempts, which doubles with each failure in a row.
 */

/** The wait after the first failure, and the longest one, in milliseconds. */
type Bounds = { min: number; max: number };

/** The wait after a failure that `earlierFailures` others came directly before. */
export function backOffMs({ min, max }: Bounds, earlierFailures: number): number {
  return Math.min(min * 2 ** earlierFailures, max);
}
