import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { findBroken } from './seeds.ts';
import { simulate } from './simulate.ts';
import { openStage, type Stage } from './world.ts';

let stage: Stage;
before(async () => {
  stage = await openStage();
});
after(() => stage[Symbol.asyncDispose]());

test('retries that go on for transfers that a reorg orphaned are found', async () => {
  assert.match(
    (await findBroken(stage, 'retries of orphans', 101))?.problem ?? '',
    /^notification \d+ is \["waiting",.*should be \["withdrawn",/,
  );
});

test('a follower that believes a single node is found', async () => {
  assert.match(
    (await findBroken(stage, 'no quorum'))?.problem ?? '',
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
