/**
 * Log lines of the follower.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog } from '../../src/core/log.ts';
import { headerOf } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { followMadeUp } from '../kit/follower.ts';

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the log has the true duration of a commit even if the clock is set back by an hour', async () => {
    const clock = createTestClock();
    let text = '';
    const log = createLog({ level: 'info', format: 'pretty' }, { write: (line) => (text += line) });
    const head = () => {
      clock.step(-3_600_000);
      clock.advance(40);
      return headerOf(1);
    };
    const follower = followMadeUp(database(), { head, at: headerOf }, { clock, finalityDepth: 9, log });
    await follower.step(new AbortController().signal);
    const [, durationMs] = /blocks\.committed.*"durationMs":(-?\d+)/.exec(text) ?? [];
    assert.equal(durationMs, '40', text);
  });
});
