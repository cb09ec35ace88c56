/**
 * The seeds that `npm test` tells, in two files so that two processors can.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { BugName } from './bugs.ts';
import { reportOf } from './report.ts';
import { points } from './seat.ts';
import { type Story, simulate } from './simulate.ts';
import { openStage, type Stage } from './world.ts';

const SEEDS = 200;
const SEEDS_PER_TEST = 20;
/** What changes the database for others. */
const WRITING = points.filter((point) => point !== 'listDue');

/** Declares the tests of every second seed, the first of which is given. */
export function testSeeds(first: 1 | 2): void {
  let stage: Stage;
  const mishaps = new Set<string>();
  before(async () => {
    stage = await openStage();
  });
  after(() => stage[Symbol.asyncDispose]());

  for (let from = first; from <= SEEDS; from += SEEDS_PER_TEST) {
    const to = Math.min(from + SEEDS_PER_TEST - 2, SEEDS);
    test(`nothing is lost, doubled or made up in the stories of seeds ${from}, ${from + 2} … ${to}`, async () => {
      for (let seed = from; seed <= to; seed += 2) {
        const story = await simulate(stage, { seed });
        if (story.problem !== undefined) assert.fail(reportOf(story));
        for (const mishap of story.mishaps.keys()) mishaps.add(mishap);
      }
    });
  }

  test('every named point has failed or killed, before it and after it', () => {
    const all = WRITING.flatMap((point) => ['before', 'after'].map((when) => ({ point, when })));
    const missing = all.filter(
      ({ point, when }) => ![...mishaps].some((one) => one.startsWith(`${point}, `) && one.endsWith(when)),
    );
    assert.deepEqual(missing, []);
  });
}

/** The first of the seeds whose story breaks a promise with a planted bug. */
export async function findBroken(stage: Stage, bug: BugName): Promise<Story | undefined> {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const story = await simulate(stage, { seed, bug });
    if (story.problem !== undefined) return story;
  }
  return undefined;
}
