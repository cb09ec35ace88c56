import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sampleOf } from './sample.ts';

const cases = ['a', 'b', 'c', 'd', 'e'];

test('three commits in a row can tell every case', () => {
  assert.deepEqual(['0', '1', '2'].flatMap((share) => sampleOf(cases, share)).sort(), cases);
});

test('a suite of one case always tells it', () => {
  for (const share of ['0', '1', '2']) assert.deepEqual(sampleOf(['a'], share), ['a']);
});

test('a run of chosen files tells everything', () => {
  assert.deepEqual(sampleOf(cases, ''), cases);
});
