/**
 * Stored swaps against those of the chain.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareSwaps } from '../../src/audit/compare-swaps.ts';
import type { Swap } from '../../src/domain/pair.ts';
import { hashOf, headerOf } from '../kit/chain-story.ts';

const PAIR = 1;
const coverage = [{ pairId: PAIR, followedFrom: 5, readFrom: 3, readAfter: headerOf(3).minedAt }] as const;
const keptSince = headerOf(1).minedAt;

const swapOf = (number: number): Swap => ({
  ...{ txHash: hashOf(number), ordinal: 4, logIndex: 6 },
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

test('swaps that are stored as on the chain are equal if their blocks were read for the pair', () => {
  const stored = [4, 5, 6].map(storedOf);
  assert.deepEqual(compareSwaps({ blocks, stored, coverage, keptSince }), {
    equal: stored,
    pruned: 0,
    differences: [],
  });
});

test('a swap that is missing, invented or changed is reported', () => {
  const stored = [storedOf(4), { ...storedOf(5), amount1In: 9n }, { ...storedOf(6), ordinal: 0 }];
  const { equal, differences } = compareSwaps({ blocks, stored, coverage, keptSince });
  assert.equal(equal.length, 1);
  assert.deepEqual(
    differences.map(({ kind, block, message }) => [kind, block, message.split(': ').at(-1)]),
    [
      ['changed', 5, 'amount1In 9 is stored, 2 is on the chain'],
      ['unexpected', 6, 'there is no such swap on the chain'],
      ['missing', 6, 'it is not stored'],
    ],
  );
});

test('blocks that were not read for a pair, and pairs that are not followed, are not compared', () => {
  const stored = [storedOf(1), storedOf(3)];
  const { equal, differences } = compareSwaps({ blocks: blocks.slice(0, 3), stored, coverage, keptSince });
  assert.deepEqual([equal, differences], [[], []]);
  assert.deepEqual(compareSwaps({ blocks, stored, coverage: [], keptSince }), {
    equal: [],
    pruned: 0,
    differences: [],
  });
});

test('a missing swap that may have been deleted because of its age is no difference, but a changed one is', () => {
  const stored = [{ ...storedOf(4), amount1In: 9n }];
  const { pruned, differences } = compareSwaps({ blocks, stored, coverage, keptSince: headerOf(6).minedAt });
  assert.equal(pruned, 1);
  assert.deepEqual(
    differences.map(({ kind, block }) => [kind, block]),
    [
      ['changed', 4],
      ['missing', 6],
    ],
  );
});

test('a pair was read from its first block on if that is young enough, and always where it is followed', () => {
  const compared = (parts: { followedFrom: number; readFrom: number; readAfter: Date }) => {
    const own = [{ pairId: PAIR, ...parts }];
    return compareSwaps({ blocks, stored: [], coverage: own, keptSince }).differences.map(
      ({ block }) => block,
    );
  };
  const minedAt = (number: number) => headerOf(number).minedAt;
  assert.deepEqual(compared({ followedFrom: 6, readFrom: 3, readAfter: minedAt(1) }), [3, 4, 5, 6]);
  assert.deepEqual(compared({ followedFrom: 6, readFrom: 1, readAfter: minedAt(4) }), [5, 6]);
  assert.deepEqual(compared({ followedFrom: 5, readFrom: 1, readAfter: minedAt(9) }), [5, 6]);
});

test('each field that differs from the chain is reported with both values', () => {
  const both = [...coverage, { ...coverage[0], pairId: 2 }];
  const changes = [
    [{ pairId: 2 }, 'pairId 2 is stored, 1 is on the chain'],
    [{ minedAt: headerOf(5).minedAt }, /minedAt \S+:05\.000Z is stored, \S+:06\.000Z is on the chain$/],
    [{ logIndex: 9 }, 'logIndex 9 is stored, 6 is on the chain'],
    [{ amount0In: 9n }, 'amount0In 9 is stored, 1 is on the chain'],
    [{ amount1In: 9n }, 'amount1In 9 is stored, 2 is on the chain'],
    [{ amount0Out: 9n }, 'amount0Out 9 is stored, 3 is on the chain'],
    [{ amount1Out: 9n }, 'amount1Out 9 is stored, 4 is on the chain'],
  ] as const;
  for (const [fields, message] of changes) {
    const stored = [{ ...storedOf(6), ...fields }];
    const { differences } = compareSwaps({ blocks: blocks.slice(5), stored, coverage: both, keptSince });
    assert.deepEqual(
      differences.map(({ kind }) => kind),
      ['changed'],
    );
    const found = differences[0]?.message ?? '';
    if (message instanceof RegExp) assert.match(found, message);
    else assert.equal(found.split(': ').at(-1), message);
  }
});

test('swaps at the same position of two transactions, or of one transaction in two blocks, are different swaps', () => {
  const swapsOf = (number: number, swaps: Swap[]) => {
    const pairEvents = [
      { pairId: PAIR, swaps, reserves: undefined, supplyChange: 0n, liquidityK: undefined },
    ];
    return {
      header: headerOf(number),
      proved: true,
      traced: false,
      transfers: [],
      activities: [],
      pairEvents,
    };
  };
  const read = [swapsOf(5, [swapOf(5), swapOf(7)]), swapsOf(6, [swapOf(5)])];
  const stored = [storedOf(5), { ...storedOf(5), txHash: hashOf(7) }, { ...storedOf(6), txHash: hashOf(5) }];
  const { equal, differences } = compareSwaps({ blocks: read, stored, coverage, keptSince });
  assert.deepEqual([equal, differences], [stored, []]);
});
