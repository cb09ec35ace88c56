/**
 * Stored swaps against those of the chain.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Swap } from '../../src/core/pair.ts';
import { compareSwaps } from '../../src/ingest/compare-swaps.ts';
import { hashOf, headerOf } from '../kit/chain-story.ts';

const PAIR = 1;
const coverage = [{ pairId: PAIR, followedFrom: 5, readFrom: 3, readAfter: headerOf(3).minedAt }] as const;
const keptSince = headerOf(1).minedAt;

const swapOf = (number: number): Swap => ({
  ...{ txHash: hashOf(number), ordinal: 4 },
  ...{ amount0In: 1n, amount1In: 2n, amount0Out: 3n, amount1Out: 4n },
});
const storedOf = (number: number) => ({
  ...swapOf(number),
  ...{ pairId: PAIR, blockNumber: number, minedAt: headerOf(number).minedAt },
});
const blocks = [1, 2, 3, 4, 5, 6].map((number) => ({
  ...{ header: headerOf(number), proved: true, traced: false, transfers: [], activities: [] },
  pairEvents: [
    { pairId: PAIR, swaps: [swapOf(number)], reserves: undefined, supplyChange: 0n, liquidityK: undefined },
  ],
}));

test('what is stored as it is on the chain is equal, where its blocks were read for the pair', () => {
  const stored = [4, 5, 6].map(storedOf);
  assert.deepEqual(compareSwaps({ blocks, stored, coverage, keptSince }), {
    equal: 3,
    pruned: 0,
    differences: [],
  });
});

test('a swap that is missing, made up or changed is told', () => {
  const stored = [storedOf(4), { ...storedOf(5), amount1In: 9n }, { ...storedOf(6), ordinal: 0 }];
  const { equal, differences } = compareSwaps({ blocks, stored, coverage, keptSince });
  assert.equal(equal, 1);
  assert.deepEqual(
    differences.map(({ what, block, message }) => [what, block, message.split(': ').at(-1)]),
    [
      ['changed', 5, 'amount1In 9 is stored, 2 is on the chain'],
      ['unexpected', 6, 'there is no such swap on the chain'],
      ['missing', 6, 'it is not stored'],
    ],
  );
});

test('blocks that nobody has read for a pair, and pairs that are not followed, are not compared', () => {
  const stored = [storedOf(1), storedOf(3)];
  const { equal, differences } = compareSwaps({ blocks: blocks.slice(0, 3), stored, coverage, keptSince });
  assert.deepEqual([equal, differences], [0, []]);
  assert.deepEqual(compareSwaps({ blocks, stored, coverage: [], keptSince }), {
    equal: 0,
    pruned: 0,
    differences: [],
  });
});

test('a swap that may have been deleted for its age is no difference; one that was changed is', () => {
  const stored = [{ ...storedOf(4), amount1In: 9n }];
  const { pruned, differences } = compareSwaps({ blocks, stored, coverage, keptSince: headerOf(6).minedAt });
  assert.equal(pruned, 1);
  assert.deepEqual(
    differences.map(({ what, block }) => [what, block]),
    [
      ['changed', 4],
      ['missing', 6],
    ],
  );
});
