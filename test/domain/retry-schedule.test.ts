import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nextRetryAt, retryDelayMinutes } from '../../src/domain/retry-schedule.ts';

const SPECIFIED = [1, 3, 10, 15, 60];

test('failures wait 1, 3, 10, 15 and 60 minutes, and every later one 60 minutes', () => {
  assert.deepEqual(
    [1, 2, 3, 4, 5, 6, 7, 200, 2_000_000].map((failureCount) => retryDelayMinutes(failureCount, SPECIFIED)),
    [1, 3, 10, 15, 60, 60, 60, 60, 60],
  );
});

test('the next attempt is exactly the interval after the failure, to the millisecond', () => {
  const now = new Date('2026-02-28T23:59:59.999Z');
  assert.equal(nextRetryAt(now, 1, SPECIFIED).toISOString(), '2026-03-01T00:00:59.999Z');
  assert.equal(nextRetryAt(now, 6, SPECIFIED).toISOString(), '2026-03-01T00:59:59.999Z');
});

test('a schedule without entries, or a failure number below 1, throws', () => {
  assert.throws(() => retryDelayMinutes(1, []), /at least one entry/);
  assert.throws(() => retryDelayMinutes(0, SPECIFIED), /counted from 1/);
});
