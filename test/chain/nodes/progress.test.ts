import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createProgress, LASTING_MS } from '../../../src/chain/nodes/progress.ts';
import { createTestClock } from '../../kit/clock.ts';

test('a head is below a height since it fell, not since an earlier outage', () => {
  const clock = createTestClock();
  const progress = createProgress(clock);
  progress.noteHead(100);
  clock.advance(10 * LASTING_MS);
  progress.noteHead(95);
  const fell = clock.now();
  assert.equal(progress.belowSince(100), undefined);
  clock.advance(LASTING_MS - 1);
  progress.noteHead(97);
  assert.equal(progress.belowSince(100), undefined);
  clock.advance(1);
  assert.deepEqual(progress.belowSince(100), fell);
  assert.equal(progress.belowSince(97), undefined);
  progress.noteHead(100);
  assert.equal(progress.belowSince(100), undefined);
  clock.advance(LASTING_MS);
  assert.equal(progress.belowSince(100), undefined);
});

test('if no head has been as high, heads are below since the height was first asked for', () => {
  const clock = createTestClock();
  const progress = createProgress(clock);
  assert.equal(progress.belowSince(100), undefined);
  const start = clock.now();
  for (const number of [90, 91, 92]) {
    progress.noteHead(number);
    assert.equal(progress.belowSince(100), undefined);
    clock.advance(LASTING_MS / 3);
  }
  assert.deepEqual(progress.belowSince(101), start);
});

test('a stored tip that is one block ahead of the heads again and again is not a lasting state', () => {
  const clock = createTestClock();
  const progress = createProgress(clock);
  for (let number = 100; number < 200; number += 1) {
    progress.noteHead(number);
    assert.equal(progress.belowSince(number + 1), undefined);
    clock.advance(1_000);
  }
});

test('a step of the wall clock neither hides nor invents a lasting state', () => {
  const clock = createTestClock();
  const progress = createProgress(clock);
  progress.noteHead(100);
  progress.noteHead(95);
  clock.step(3_600_000);
  assert.equal(progress.belowSince(100), undefined);
  clock.step(-7_200_000);
  clock.advance(LASTING_MS);
  assert.ok(progress.belowSince(100) !== undefined);
});

test('a head is behind if the chain passed it half a minute ago, by its current distance in blocks', () => {
  const clock = createTestClock();
  const progress = createProgress(clock);
  for (let second = 0; second <= 60; second += 1) {
    progress.noteReach(100 + second);
    if (second < 60) clock.advance(1_000);
  }
  assert.equal(progress.blocksBehind(130), undefined);
  assert.equal(progress.blocksBehind(129), 31);
  // The chain went back.
  progress.noteReach(120);
  assert.equal(progress.blocksBehind(120), undefined);
  assert.equal(progress.blocksBehind(119), 1);
});

test('memory stays small however often heads fall and rise', () => {
  const clock = createTestClock();
  const progress = createProgress(clock);
  for (let number = 10_000; number > 0; number -= 1) progress.noteHead(number);
  clock.advance(LASTING_MS);
  assert.ok(progress.belowSince(10_000) !== undefined);
  assert.ok(progress.belowSince(5_000) !== undefined);
  assert.equal(progress.belowSince(1), undefined);
});
