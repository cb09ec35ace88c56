import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { systemClock } from '../../src/core/clock.ts';

const HOUR_MS = 3_600_000;

test('a wait ends after its time and leaves nothing at the signal', async () => {
  const { signal } = new AbortController();
  const before = performance.now();
  await systemClock().wait(20, signal);
  assert.ok(performance.now() - before >= 19);
  assert.deepEqual(getEventListeners(signal, 'abort'), []);
});

test('a wait ends when the signal aborts, and at once when it has', async () => {
  const abort = new AbortController();
  const wait = systemClock().wait(HOUR_MS, abort.signal);
  abort.abort();
  await wait;
  assert.deepEqual(getEventListeners(abort.signal, 'abort'), []);
  await systemClock().wait(HOUR_MS, abort.signal);
});

test('a shifted clock is ahead by its offset', () => {
  const ahead =
    systemClock(() => HOUR_MS)
      .now()
      .getTime() - systemClock().now().getTime();
  assert.ok(Math.abs(ahead - HOUR_MS) < 60_000);
});
