import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { CALM_MS, createWorkWatch, LASTING_MS } from '../../src/app/work-watch.ts';
import { createTestClock } from '../kit/clock.ts';

describe('work that fails', () => {
  test('a bug with every second item counts as one, until a minute after the last', () => {
    const clock = createTestClock();
    const watch = createWorkWatch(clock);
    const since = clock.now();
    watch.success('sums');
    for (let count = 0; count < 5; count += 1) {
      watch.bug('sums');
      watch.success('sums');
      assert.deepEqual(watch.failing(), [{ work: 'sums', since, isBug: true }]);
      clock.advance(CALM_MS - 1);
    }
    clock.advance(1);
    assert.deepEqual(watch.failing(), []);
    watch.bug('sums');
    assert.deepEqual(watch.failing(), [{ work: 'sums', since: clock.now(), isBug: true }]);
    clock.advance(CALM_MS);
    assert.equal(watch.failing().length, 1);
    watch.success('sums');
    assert.deepEqual(watch.failing(), []);
  });

  test('work without a success counts once that has lasted since a step began, and until the next success', () => {
    const clock = createTestClock();
    const watch = createWorkWatch(clock);
    const since = clock.now();
    watch.begin('sums');
    watch.begin('other');
    watch.success('other');
    clock.advance(LASTING_MS - 1);
    watch.begin('sums');
    assert.deepEqual(watch.failing(), []);
    clock.advance(1);
    assert.deepEqual(watch.failing(), [{ work: 'sums', since, isBug: false }]);
    watch.bug('sums');
    assert.deepEqual(watch.failing(), [{ work: 'sums', since: clock.now(), isBug: true }]);
    watch.success('sums');
    clock.advance(CALM_MS);
    watch.begin('sums');
    assert.deepEqual(watch.failing(), []);
  });
});
