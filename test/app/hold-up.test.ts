import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHoldUp, HELD_UP_MS } from '../../src/app/hold-up.ts';
import { createTestClock } from '../kit/clock.ts';

test('the follower is held up since its oldest statement began, once that has lasted, and no longer when it ends', async () => {
  const clock = createTestClock();
  const holdUp = createHoldUp(clock);
  const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const since = clock.now();
  const one = holdUp.during(() => first.promise);
  clock.advance(HELD_UP_MS - 1);
  const other = holdUp.during(() => second.promise);
  assert.equal(holdUp.since(), undefined);
  clock.advance(1);
  assert.deepEqual(holdUp.since(), since);
  first.reject(new Error('given up'));
  await assert.rejects(one);
  assert.equal(holdUp.since(), undefined);
  clock.advance(HELD_UP_MS);
  assert.deepEqual(holdUp.since(), new Date(since.getTime() + HELD_UP_MS - 1));
  second.resolve();
  await other;
  assert.equal(holdUp.since(), undefined);
});
