/**
 * The seeds that `npm test -- sim` runs, in two files for two processors. A run of the whole suite takes a sample.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sampleOf } from '../kit/sample.ts';
import type { BugName } from './bugs.ts';
import { reportOf } from './report.ts';
import { points } from './seat.ts';
import { type Story, simulate } from './simulate.ts';
import { openStage, type Stage } from './world.ts';

const SEEDS = 200;
const SEEDS_PER_TEST = 10;
/** The points that change the database for other actors, without deletes of default partitions, which few stories reach. */
const WRITING = points.filter((point) => point !== 'listDue' && point !== 'prune');

/** Declares the tests of every second seed, beginning with the given one. */
export function testSeeds(first: 1 | 2): void {
  let stage: Stage;
  const mishaps = new Set<string>();
  before(async () => {
    stage = await openStage();
  });
  after(() => stage[Symbol.asyncDispose]());

  const all: number[] = [];
  for (let from: number = first; from <= SEEDS; from += SEEDS_PER_TEST) all.push(from);
  const chosen = sampleOf(all, { shares: 20 });
  for (const from of chosen) {
    const to = Math.min(from + SEEDS_PER_TEST - 2, SEEDS);
    test(`no notification is lost, duplicated or invented in the simulations of seeds ${from}, ${from + 2} … ${to}`, async () => {
      for (let seed = from; seed <= to; seed += 2) {
        const story = await simulate(stage, { seed });
        if (story.problem !== undefined) assert.fail(reportOf(story));
        for (const mishap of story.mishaps.keys()) mishaps.add(mishap);
      }
    });
  }

  // A sample may miss a rare point.
  if (chosen.length < all.length) return;
  test('the simulations fail and kill at every named point, before and after it', () => {
    const mustBefall = WRITING.flatMap((point) => ['before', 'after'].map((when) => ({ point, when })));
    const missing = mustBefall.filter(
      ({ point, when }) => ![...mishaps].some((one) => one.startsWith(`${point}, `) && one.endsWith(when)),
    );
    assert.deepEqual(missing, []);
  });
}

type PlantedBug = {
  name: string;
  bug: BugName;
  /** A seed that showed the bug before. It is tried first, because most stories don't show a bug. */
  likely?: number;
  /** The turns of its stories. More than usual where a bug shows rarely. */
  steps?: number;
  problem: RegExp;
};

/** Declares a test of each bug, or, in a run of the whole suite, of a sample. */
export function testBugs(bugs: readonly PlantedBug[]): void {
  let stage: Stage;
  before(async () => {
    stage = await openStage();
  });
  after(() => stage[Symbol.asyncDispose]());

  for (const planted of sampleOf(bugs))
    test(planted.name, async () => {
      assert.match((await findBroken(stage, planted))?.problem ?? '', planted.problem);
    });
}

/** The first story that breaks a promise with a planted bug. */
async function findBroken(
  stage: Stage,
  { bug, likely = 1, steps }: Pick<PlantedBug, 'bug' | 'likely' | 'steps'>,
): Promise<Story | undefined> {
  const others = Array.from({ length: SEEDS }, (_, index) => index + 1).filter((seed) => seed !== likely);
  for (const seed of [likely, ...others]) {
    const story = await simulate(stage, { seed, bug, ...(steps !== undefined && { steps }) });
    if (story.problem !== undefined) return story;
  }
  return undefined;
}
