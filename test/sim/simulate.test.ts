import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { BugName } from './bugs.ts';
import { SEEDS } from './seeds.ts';
import { type Story, simulate } from './simulate.ts';
import { openStage, type Stage } from './world.ts';

let stage: Stage;
before(async () => {
  stage = await openStage();
});
after(() => stage[Symbol.asyncDispose]());

async function findBroken(bug: BugName): Promise<Story | undefined> {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const story = await simulate(stage, { seed, bug });
    if (story.problem !== undefined) return story;
  }
  return undefined;
}

test('a worker that settles without its lease is found', async () => {
  assert.match((await findBroken('no fence'))?.problem ?? '', /settled .* although it had lost lane/);
});

test('a follower that commits upon another tip than the one there is is found', async () => {
  assert.match(
    (await findBroken('no compare-and-set'))?.problem ?? '',
    /duplicate key .*block_pkey|is stored on another than its parent/,
  );
});

test('an outcome that is settled for a later delivery than its own is found', async () => {
  assert.match(
    (await findBroken('no redelivery fence'))?.problem ?? '',
    /^notification \d+ is \["(waiting|processed)",.*should be \["waiting",/,
  );
});

test('a reorg that forgets attempts without an outcome is found', async () => {
  assert.match(
    (await findBroken('forgotten attempts'))?.problem ?? '',
    /was sent, and does not count as seen/,
  );
});

test('a crash between moving a notification and waking its lane is found, if they are no transaction', async () => {
  assert.match((await findBroken('move before wake'))?.problem ?? '', /^lane \d+ was forgotten$/);
});

test('retries that go on for transfers that a reorg orphaned are found', async () => {
  assert.match(
    (await findBroken('retries of orphans'))?.problem ?? '',
    /^notification \d+ is \["waiting",.*should be \["withdrawn",/,
  );
});

test('a follower that believes a single node is found', async () => {
  assert.match(
    (await findBroken('no quorum'))?.problem ?? '',
    /is stored, which only the liar has|calm rounds block \d+ is not stored/,
  );
});

test('a seed tells the same story again, whatever was told before it', async () => {
  for (const seed of [3, 4]) {
    const { lines } = await simulate(stage, { seed });
    await simulate(stage, { seed: seed + 100 });
    assert.deepEqual((await simulate(stage, { seed })).lines, lines);
    assert.notDeepEqual((await simulate(stage, { seed: seed + 1 })).lines, lines);
  }
});
