import assert from 'node:assert/strict';
import { test } from 'node:test';
import { longestFirst } from './durations.ts';

test('the slowest files start first; a new file in a folder of slow files starts before fast ones', () => {
  const known = { 'test/api/a.test.ts': 15_000, 'test/api/b.test.ts': 10_000, 'test/sim/c.test.ts': 24_000 };
  const groups = [
    ['test/core/new.test.ts'],
    ['test/system/new.test.ts'],
    ['test/sim/c.test.ts'],
    ['test/api/a.test.ts', 'test/api/b.test.ts'],
  ];
  assert.deepEqual(longestFirst(groups, known), groups.toReversed());
});
