import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLog } from '../../src/core/log.ts';
import { createWaitLog } from '../../src/delivery/wait-log.ts';
import { createTestClock } from '../kit/clock.ts';

test('waits of all queues are one line in ten seconds, and the next line counts them', () => {
  const clock = createTestClock();
  let text = '';
  const log = createLog({ level: 'warn', format: 'pretty' }, { write: (line) => (text += line) });
  const noteWait = createWaitLog({ clock, log });
  const lines = () =>
    Array.from(text.matchAll(/delivery\.queue_waits (\{.*\})/g), ([, fields = '']) => JSON.parse(fields));
  for (const lane of [1, 2, 3]) noteWait(lane, new Error('away'));
  clock.advance(9_999);
  noteWait(4, new Error('away'));
  assert.deepEqual(lines(), [{ lane: 1, others: 0 }], text);
  clock.advance(1);
  noteWait(5, new Error('gone'));
  assert.deepEqual(lines().slice(1), [{ lane: 5, others: 3 }], text);
});
