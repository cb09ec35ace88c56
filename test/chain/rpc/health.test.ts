import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createDurationWindow, createHealth } from '../../../src/chain/rpc/health.ts';
import { createTestClock } from '../../kit/clock.ts';

test('percentiles cover the newest 60 durations of the last ten minutes', () => {
  const clock = createTestClock();
  const window = createDurationWindow(clock);
  assert.equal(window.percentile(50), undefined);
  for (let ms = 100; ms >= 1; ms -= 1) window.add(ms);
  assert.deepEqual([window.count(), window.percentile(50), window.percentile(95)], [60, 30, 57]);
  clock.advance(600_000);
  window.add(7);
  assert.equal(window.count(), 60);
  clock.advance(1);
  assert.deepEqual([window.count(), window.percentile(50), window.percentile(95)], [1, 7, 7]);
  window.clear();
  assert.equal(window.percentile(95), undefined);
});

test('a method counts as lacking from the answer that says so until the next result', () => {
  const health = createHealth(createTestClock());
  const method = 'trace_block';
  const note = (kind: 'ok' | 'lacking' | 'error' | 'failed') => {
    health.note([{ method }], [kind === 'ok' ? { kind } : { kind, message: kind }], 1);
    return health.lacks(method);
  };
  assert.deepEqual(
    [note('error'), note('lacking'), note('failed'), note('error'), note('ok')],
    [false, true, true, true, false],
  );
  assert.ok(!health.lacks('eth_chainId'));
});
