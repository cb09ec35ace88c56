import assert from 'node:assert/strict';
import { test } from 'node:test';
import { barDisplay, createStatusLine } from '../../src/cli/status-line.ts';

/** The lines that a terminal shows after this text; the last one may be unfinished. */
function screenOf(text: string): string[] {
  return text.split('\n').map((line) => line.split('\r\u001B[K').at(-1) ?? '');
}

test('log lines appear above the status line, which is redrawn below them', () => {
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

const progress = {
  ...{ block: 12_345, head: 20_000, share: 0.5, secondsLeft: 3_725 },
  ...{ blocksPerSecond: 310.4, transfersPerSecond: 34_100 },
};

for (const [columns, shown] of [
  [
    200,
    'backfill [############------------] 50.0 %, 1 h 2 min left, 310 blocks/s, 34,100 transfers/s, block 12,345 of 20,000',
  ],
  [80, 'backfill [######-----] 50.0 %, 1 h 2 min left, 310 blocks/s, 34,100 transfers/s'],
  [60, 'backfill [######-----] 50.0 %, 1 h 2 min left, 310 blocks/s'],
  [20, 'backfill [####----]'],
  [1, ''],
] as const) {
  test(`on ${columns} columns, a backfill is a bar with as much of its share, time left, rates and block as fits`, () => {
    const written: string[] = [];
    const display = barDisplay(createStatusLine({ write: (text) => written.push(text), columns }));
    display.show(progress);
    assert.deepEqual(screenOf(written.join('')), [shown]);
    assert.ok(shown.length < columns);
    display.end();
    assert.deepEqual(screenOf(written.join('')), ['']);
  });
}

test('a terminal of unknown width, or of width 0, has 80 columns, and a changed width applies from the next line', () => {
  for (const columns of [undefined, 0]) {
    const written: string[] = [];
    const terminal = {
      write: (text: string) => written.push(text),
      ...(columns !== undefined && { columns }),
    };
    const statusLine = createStatusLine(terminal);
    statusLine.draw('x'.repeat(100));
    assert.deepEqual(screenOf(written.join('')), ['x'.repeat(79)]);
    Object.assign(terminal, { columns: 40 });
    statusLine.write('a log line\n');
    assert.deepEqual(screenOf(written.join('')), ['a log line', 'x'.repeat(39)]);
  }
});
