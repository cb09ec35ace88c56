import { after, before, describe, test } from 'node:test';
import { sampleSize } from '../kit/sample.ts';
import { type KillStage, setKillStage } from './kills.ts';

/** `npm run kills -- --rounds N` runs more. A run of the whole suite takes a third of them. */
const ROUNDS = sampleSize(15);
const SEED = 1;

describe('processes, PostgreSQL and connections that are killed at any instant', () => {
  let stage: KillStage;
  before(async () => {
    stage = await setKillStage(SEED);
  });
  after(() => stage[Symbol.asyncDispose]());

  for (let round = 1; round <= ROUNDS; round += 1) {
    test(`lose nothing, make no second row, and repeat nothing that was not under way (round ${round})`, async () => {
      await stage.round();
    });
  }
});
