/**
 * The wait between attempts.
 */
import assert from 'node:assert/strict';
import test from 'node:test';
import { backOffMs } from '../../src/core/back-off.ts';

test('the wait doubles with each failure, up to its maximum, however many there are', () => {
  const waits = [0, 1, 2, 3, 10_000].map((count) => backOffMs({ min: 50, max: 300 }, count));
  assert.deepEqual(waits, [50, 100, 200, 300, 300]);
});
