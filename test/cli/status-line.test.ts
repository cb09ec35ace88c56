import assert from 'node:assert/strict';
import { test } from 'node:test';
import { barDisplay, createStatusLine } from '../../src/cli/status-line.ts';

/** What a terminal shows that was written to so: lines, of which the last may be unfinished. */
function screenOf(text: string): string[] {
  return text.split('\n').map((line) => line.split('\r\u001B[K').at(-1) ?? '');
}

test('log lines run above the line that is drawn anew, and neither mixes with the other', () => {
  const written: string[] = [];
  const statusLine = createStatusLine({ write: (text) => written.push(text), columns: 40 });
  statusLine.write('one\n');
  statusLine.draw('10 %');
  statusLine.write('two\n');
  statusLine.draw('20 %');
  assert.deepEqual(screenOf(written.join('')), ['one', 'two', '20 %']);
  statusLine.draw('');
  statusLine.write('three\n');
  assert.deepEqual(screenOf(written.join('')), ['one', 'two', 'three', '']);
});

test('a back-fill is a bar with place, time left and rates, no wider than the terminal', () => {
  const progress = {
    ...{ block: 12_345, head: 20_000, share: 0.5, secondsLeft: 3_725 },
    ...{ blocksPerSecond: 310.4, transfersPerSecond: 34_100 },
  };
  for (const columns of [200, 60, 1]) {
    const written: string[] = [];
    const display = barDisplay(createStatusLine({ write: (text) => written.push(text), columns }));
    display.show(progress);
    const whole =
      'back-fill ████████████░░░░░░░░░░░░ 50.0 %, block 12,345 of 20,000, 1 h 2 min left, 310 blocks/s, 34,100 transfers/s';
    assert.deepEqual(screenOf(written.join('')), [whole.slice(0, columns - 1)]);
    display.end();
    assert.deepEqual(screenOf(written.join('')), ['']);
  }
});
