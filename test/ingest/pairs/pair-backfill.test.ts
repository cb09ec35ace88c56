/**
 * The backfill of a pair from nodes with blocks of unexpected size.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Bundle } from '../../../src/chain/blocks/bundle.ts';
import type { ChainNodes } from '../../../src/chain/nodes/nodes.ts';
import { Fault } from '../../../src/core/fault.ts';
import { silentLog } from '../../../src/core/log.ts';
import { REQUEST_BYTES_MAX } from '../../../src/ingest/fetch-blocks.ts';
import { createPairBackfill } from '../../../src/ingest/pairs/pair-backfill.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { followPairs } from '../../../src/store/market/pairs.ts';
import { headerOf, noon } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { pair, swapTransaction } from '../../kit/pair-story.ts';

const { signal } = new AbortController();
const LAST = 12;
const bundleOf = (number: number): Bundle => {
  const transactions = [swapTransaction(number)];
  return { header: headerOf(number), transactions, proved: true, traced: false };
};

onSampledDatabase(import.meta.url, ({ database }) => {
  test('blocks that are too large together are read one by one, each once', async () => {
    await database().transaction((tx) => followPairs(tx, [pair], { header: headerOf(LAST + 1), now: noon }));
    const asked: number[][] = [];
    const nodes: Pick<ChainNodes, 'bundles'> = {
      async bundles(references, abort, { onBytes } = {}) {
        const numbers = references.map(Number);
        asked.push(numbers);
        const isLarge = numbers.some((number) => number < 7);
        if (numbers.length > 1 && isLarge) onBytes?.(REQUEST_BYTES_MAX + 1);
        if (abort.aborted) throw new Fault('unavailable', 'broken off');
        return numbers.map(bundleOf);
      },
    };
    const own = { clock: createTestClock(), log: silentLog(), pairs: [pair] };
    const step = createPairBackfill({ database: database(), nodes, ...own });
    while ((await step(signal)) === 'worked');
    assert.deepEqual(asked, [
      [12],
      [10, 11],
      [6, 7, 8, 9],
      [9],
      [7, 8],
      [3, 4, 5, 6],
      [6],
      [4, 5],
      [5],
      [3, 4],
      [4],
      [2, 3],
      [3],
      [1, 2],
      [2],
      [1],
    ]);
    const stored = await database().query(sql`select block_number as number from swap order by block_number`);
    assert.deepEqual(
      stored,
      Array.from({ length: LAST }, (_, index) => ({ number: index + 1 })),
    );
  });
});
