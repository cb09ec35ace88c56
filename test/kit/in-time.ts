/**
 * Work that ends by the clock of a test.
 */
import type { TestClock } from './clock.ts';
import { waitUntil } from './wait.ts';

/** Lets time pass until it has an outcome. */
export async function inTime<Outcome>(clock: TestClock, work: Promise<Outcome>): Promise<Outcome> {
  let isOver = false;
  void work.finally(() => {
    isOver = true;
  });
  await waitUntil(
    () => {
      clock.advance(4);
      return isOver;
    },
    { describe: 'an answer' },
  );
  return work;
}
