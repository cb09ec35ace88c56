/**
 * The past of a pair, from nodes whose blocks are larger than anybody expects.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Bundle } from '../../src/chain/bundle.ts';
import type { ChainNodes } from '../../src/chain/nodes.ts';
import { Fault } from '../../src/core/fault.ts';
import { toBytes } from '../../src/core/hex.ts';
import { silentLog } from '../../src/core/log.ts';
import type { ValuedPair } from '../../src/core/pair.ts';
import { REQUEST_BYTES_MAX } from '../../src/ingest/fetch-blocks.ts';
import { createPairBackfill } from '../../src/ingest/pair-backfill.ts';
import { sql } from '../../src/store/sql.ts';
import { addressOf, alice, bob, hashOf, headerOf } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onEachDatabase } from '../kit/each-database.ts';
import { swapLog } from '../kit/event-log.ts';

const { signal } = new AbortController();
const LAST = 12;
const pair: ValuedPair = {
  ...{ id: 1, name: 'A/B', address: addressOf(0x7a1), token0: alice, token1: bob, fee: 300, rewardPid: 0 },
  ...{ token0Decimals: 18, token1Decimals: 18, usdValueFrom: 0, value0: undefined, value1: undefined },
  areIndependent: false,
};

const bundleOf = (number: number): Bundle => {
  const own = {
    from: alice,
    to: bob,
    value: 0n,
    succeeded: true,
    logs: [swapLog(pair.address, [1n, 0n, 0n, 1n])],
    calls: [],
  };
  const transactions = [{ hash: hashOf(number), ...own }];
  return { header: headerOf(number), transactions, proved: true, traced: false };
};

onEachDatabase(({ database }) => {
  test('blocks that are too large together are read one by one, each once', async () => {
    await database().query(sql`
      insert into pair (id, address, token0, token1, token0_decimals, token1_decimals, usd_value_from,
        followed_from, backfill_number, backfill_hash, backfill_until)
      values (${pair.id}, ${toBytes(pair.address)}, ${toBytes(alice)}, ${toBytes(bob)}, 18, 18, 0,
        ${LAST + 1}, ${LAST}, ${toBytes(headerOf(LAST).hash)}, ${headerOf(0).minedAt})`);
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
    const options = {
      database: database(),
      nodes,
      clock: createTestClock(),
      log: silentLog(),
      pairs: [pair],
    };
    const step = createPairBackfill(options);
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
