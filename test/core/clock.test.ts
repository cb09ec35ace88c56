import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { machineSteadyMs, steadyFrom, systemClock } from '../../src/core/clock.ts';
import { createTestClock } from '../kit/clock.ts';

const HOUR_MS = 3_600_000;

test('a wait ends after its time and leaves no listener on the signal', async () => {
  const { signal } = new AbortController();
  const before = performance.now();
  await systemClock().wait(20, signal);
  assert.ok(performance.now() - before >= 19);
  assert.deepEqual(getEventListeners(signal, 'abort'), []);
});

test('a wait ends when the signal aborts, and at once if it has already aborted', async () => {
  const abort = new AbortController();
  const wait = systemClock().wait(HOUR_MS, abort.signal);
  abort.abort();
  await wait;
  assert.deepEqual(getEventListeners(abort.signal, 'abort'), []);
  await systemClock().wait(HOUR_MS, abort.signal);
});

test('setting the clock changes the current time, but not durations', () => {
  const clock = createTestClock();
  const steady = steadyFrom(clock);
  const before = { present: steady.now().getTime(), steadyMs: clock.steadyMs() };
  clock.step(-24 * HOUR_MS);
  clock.advance(1_000);
  assert.equal(steady.now().getTime() - before.present, 1_000);
  assert.equal(clock.steadyMs() - before.steadyMs, 1_000);
});

test("setting this machine's clock does not change the steady clock", (t) => {
  const before = machineSteadyMs();
  t.mock.timers.enable({ apis: ['Date'], now: Date.now() + HOUR_MS });
  assert.ok(machineSteadyMs() - before < 60_000);
});
