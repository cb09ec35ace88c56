import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLog } from '../../src/core/log.ts';
import { type BackfillProgress, createBackfill, logDisplay } from '../../src/ingest/backfill.ts';
import { createTestClock } from '../kit/clock.ts';

/** A backfill that records its display and its log lines. */
function open() {
  const clock = createTestClock();
  const lines: { event: string; fields: Record<string, unknown> }[] = [];
  const log = silentLog();
  log.info = (fields: object, event?: string) => {
    lines.push({ event: event ?? '', fields: { ...fields } });
  };
  const shown: (BackfillProgress | 'end')[] = [];
  const display = {
    show: (progress: BackfillProgress) => shown.push(progress),
    end: () => shown.push('end'),
  };
  return { clock, log, lines, shown, backfill: createBackfill({ clock, log, display }) };
}

test('a follower near the head shows no progress', () => {
  const { backfill, shown, lines } = open();
  for (let block = 1; block < 100; block += 1) {
    assert.equal(backfill.advance({ block, head: block, blocks: 1, transfers: 5 }), false);
  }
  assert.deepEqual([shown, lines], [[], []]);
});

test('a follower twenty blocks behind starts a backfill, at first without an estimate; nineteen blocks are no backfill', () => {
  const { backfill, shown } = open();
  assert.equal(backfill.advance({ block: 81, head: 100, blocks: 1, transfers: 0 }), false);
  assert.equal(backfill.advance({ block: 80, head: 100, blocks: 1, transfers: 0 }), true);
  backfill.advance({ block: 81, head: 100, blocks: 1, transfers: 0 });
  const [first] = shown;
  assert.ok(first !== undefined && first !== 'end');
  assert.deepEqual([first.blocksPerSecond, first.secondsLeft], [0, undefined]);
});

test('a backfill shows its share, its rates over the last half minute and the time left until it reaches the head', () => {
  const { backfill, shown, lines, clock } = open();
  assert.equal(backfill.advance({ block: 1_000, head: 3_000, blocks: 1, transfers: 0 }), true);
  // Slow at first; that is forgotten after half a minute.
  clock.advance(60_000);
  backfill.advance({ block: 1_100, head: 3_000, blocks: 100, transfers: 100 });
  for (let block = 1_200; block <= 2_000; block += 25) {
    clock.advance(1_000);
    backfill.advance({ block, head: 3_000, blocks: 25, transfers: 500 });
  }
  const last = shown.at(-1);
  assert.ok(last !== undefined && last !== 'end');
  assert.deepEqual(
    { ...last, blocksPerSecond: Math.round(last.blocksPerSecond) },
    { block: 2_000, head: 3_000, share: 0.5, blocksPerSecond: 25, transfersPerSecond: 500, secondsLeft: 40 },
  );
  backfill.advance({ block: 3_000, head: 3_000, blocks: 1_000, transfers: 0 });
  assert.equal(shown.at(-1), 'end');
  assert.deepEqual(
    lines.map(({ event }) => event),
    ['backfill.started', 'backfill.done'],
  );
  assert.deepEqual(lines[1]?.fields, { blocks: 2_000, transfers: 16_600, seconds: 93, head: 3_000 });
  assert.equal(backfill.advance({ block: 3_001, head: 3_001, blocks: 1, transfers: 1 }), false);
});

test('the log gets a line of progress every ten seconds', () => {
  const { clock, log, lines } = open();
  const display = logDisplay(clock, log);
  const rates = { blocksPerSecond: 12.4, transfersPerSecond: 99.6 };
  for (let second = 1; second <= 35; second += 1) {
    clock.advance(1_000);
    const secondsLeft = second < 20 ? undefined : 100.4 - second;
    display.show({ block: second, head: 100, share: second / 100, ...rates, secondsLeft });
  }
  assert.deepEqual(
    lines.map(({ fields }) => fields),
    [10, 20, 30].map((block) => ({
      ...{ block, head: 100, percent: block },
      ...{ blocksPerSecond: 12, transfersPerSecond: 100 },
      ...(block >= 20 && { secondsLeft: 100 - block }),
    })),
  );
});
