import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sampleOf } from './sample.ts';

const cases = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];

test('three commits in a row can take every case, five where a suite has five shares', () => {
  assert.deepEqual(['6', '7', '8'].flatMap((chosen) => sampleOf(cases, { chosen })).sort(), cases);
  const fifths = ['57', '58', '59', '0', '1'].map((chosen) => sampleOf(cases, { chosen, shares: 5 }));
  assert.deepEqual(fifths.flat().sort(), cases);
  assert.ok(fifths.every(({ length }) => length <= 2));
});

test('a suite of one case always takes it', () => {
  for (const chosen of ['0', '1', '2']) assert.deepEqual(sampleOf(['a'], { chosen }), ['a']);
});

test('a run of chosen files takes everything', () => {
  assert.deepEqual(sampleOf(cases, { chosen: '' }), cases);
});
