import assert from 'node:assert/strict';
import { test } from 'node:test';
import { beginningOf, listPast } from '../../devnet/history.ts';

const HOUR_MS = 3_600_000;
/** After this many further blocks, anvil can no longer trace the oldest ones (devnet/anvil.ts). */
const STATES_MAX = 64;

test('the past has the last day in steps of two hours, the same days of the month before, and few blocks', () => {
  for (const now of ['2026-03-31T23:59:59Z', '2026-03-01T00:00:00Z', '2028-02-29T12:00:00Z'].map(
    (text) => new Date(text),
  )) {
    const past = listPast(now);
    assert.deepEqual(past.at(-1), now);
    assert.ok(past.every((time, place) => place === 0 || time > (past[place - 1] ?? time)));
    assert.ok(beginningOf(now) < (past[0] ?? now));
    const lastDay = past.filter((time) => now.getTime() - time.getTime() <= 24 * HOUR_MS);
    assert.ok(lastDay.length >= 13);
    const monthBefore = new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 0)).getUTCMonth();
    assert.ok(past.some((time) => time.getUTCMonth() === monthBefore));
    // The scene adds blocks to these.
    assert.ok(past.length < STATES_MAX / 2);
  }
});
