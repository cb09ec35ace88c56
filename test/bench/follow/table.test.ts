/**
 * The tables of `npm run bench -- follow --table`.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Outcome } from '../../../bench/follow/results.ts';
import { renderTables } from '../../../bench/follow/table.ts';

const machine = { processor: 'p', cores: 2, memoryGiB: 4, load: 1, node: 'v24', commit: 'c' };
const run = (repeat: number, figures: Record<string, number>, failure?: string): Outcome => {
  const outcome = { contestant: 'Peer 1', blocks: 200, repeat, figures };
  return failure === undefined ? outcome : { ...outcome, failure };
};
const tableOf = (runs: Outcome[]) =>
  renderTables({ live: { machine, conditions: { chain: 'anvil' }, runs } });

test('a row shows the median, the lowest and the highest run, and the sum of lost rows', () => {
  const times = (p50Ms: number) => ({ p50Ms, p90Ms: 7, p99Ms: 8, maxMs: 9, lost: 2, extra: 1 });
  const text = tableOf([run(1, times(30)), run(2, times(4)), run(3, times(10)), run(4, times(20))]);
  assert.match(text, /^\| Peer 1 \| 200 \| 4 \| 15 \(4–30\) \| 7 \| 8 \| 9 \| 8 \| 4 \|$/m);
});

test('a failed run is counted and shown with its reason', () => {
  const text = tableOf([run(1, { p50Ms: 5, lost: 0, extra: 0 }), run(2, {}, 'Error: at block 3 of 9')]);
  assert.match(text, /^\| Peer 1 \| 200 \| 2, 1 failed \| 5 \|/m);
  assert.match(text, /^Peer 1, run 2: Error: at block 3 of 9$/m);
  // A contestant without a good run shows dashes, not zero lost rows, because nothing is known about it.
  assert.match(tableOf([run(1, {}, 'Error')]), /^\| Peer 1 \| 200 \| 1, 1 failed \|( – \|){6}$/m);
});
