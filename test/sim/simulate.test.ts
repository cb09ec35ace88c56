import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sampleOf } from '../kit/sample.ts';
import { simulate } from './simulate.ts';
import { openStage, type Stage } from './world.ts';

let stage: Stage;
before(async () => {
  stage = await openStage();
});
after(() => stage[Symbol.asyncDispose]());

test('a seed gives the same simulation again, whatever ran before it', async () => {
  for (const seed of sampleOf([3, 4], { shares: 2 })) {
    const { lines } = await simulate(stage, { seed });
    await simulate(stage, { seed: seed + 100 });
    assert.deepEqual((await simulate(stage, { seed })).lines, lines);
    assert.notDeepEqual((await simulate(stage, { seed: seed + 1 })).lines, lines);
  }
});
