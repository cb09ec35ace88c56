import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  addAncestor,
  addHead,
  corroborate,
  type HeadVote,
  LINKED_MAX,
  reachedBy,
} from '../../../src/chain/nodes/head-votes.ts';
import { quorumOf } from '../../../src/domain/quorum.ts';
import { headerOf } from '../../kit/chain-story.ts';

const voteOf = (...numbers: readonly number[]) =>
  numbers.reduce<HeadVote | undefined>((known, number) => addHead(known, headerOf(number), 0), undefined);
const votes = (...numbers: readonly number[]) => numbers.flatMap((number) => voteOf(number) ?? []);

for (const [nodes, quorum] of [
  [1, 1],
  [2, 2],
  [3, 2],
  [4, 2],
  [5, 3],
  [6, 3],
  [7, 4],
] as const) {
  test(`of ${nodes} nodes ${quorum} must agree unless chain.quorum says otherwise`, () => {
    assert.equal(quorumOf(nodes, 'auto'), quorum);
    assert.equal(quorumOf(nodes, 1), 1);
    assert.equal(quorumOf(nodes, 32), nodes);
  });
}

test('a head votes for its parent too, so nodes one block apart agree without another question', () => {
  assert.deepEqual(corroborate(votes(9, 8), 2), { number: 8, hash: headerOf(8).hash });
  assert.equal(corroborate(votes(9, 7), 2), undefined);
});

test('linked heads vote for everything below them, as far as they are kept', () => {
  const grown = voteOf(...Array.from({ length: 100 }, (_, index) => index));
  assert.ok(grown !== undefined);
  assert.equal(grown.hashes.get(99 - LINKED_MAX + 1), headerOf(99 - LINKED_MAX + 1).hash);
  assert.equal(grown.hashes.has(99 - LINKED_MAX), false);
  assert.equal(corroborate([grown, ...votes(60)], 2)?.number, 60);
});

test('a head on another branch withdraws the votes for the old branch, and a lower head the votes above it', () => {
  const other = headerOf(9, 1, 5);
  const turned = addHead(voteOf(7, 8, 9), other, 0);
  assert.deepEqual([...turned.hashes.keys()], [8, 9]);
  assert.equal(turned.hashes.get(8), other.parentHash);
  const lowered = addHead(voteOf(7, 8, 9), headerOf(8), 0);
  assert.deepEqual(
    [...lowered.hashes.keys()].toSorted((one, other) => one - other),
    [6, 7, 8],
  );
});

test('a block that a node was asked for counts as its vote, like its head', () => {
  const [high, low] = votes(9, 5);
  assert.ok(high !== undefined && low !== undefined);
  assert.equal(reachedBy([high, low], 2), 5);
  assert.equal(corroborate([addAncestor(high, headerOf(5)), low], 2)?.number, 5);
  assert.equal(corroborate([addAncestor(high, headerOf(5, 1)), low], 2), undefined);
});

test('between two blocks with a quorum each the one that was served stays, and more votes win', () => {
  const [one, other] = [headerOf(9), headerOf(9, 1)];
  const split = [one, one, other, other].map((head) => addHead(undefined, head, 0));
  assert.equal(corroborate(split, 2)?.hash, one.hash);
  assert.equal(corroborate(split, 2, other)?.hash, other.hash);
  assert.equal(corroborate([...split, addHead(undefined, one, 0)], 2, other)?.hash, one.hash);
});

/** The answer of one node in a round. An honest node lags. A liar picks a branch, its first block and its height. */
const Word = fc.record({
  lag: fc.nat({ max: 5 }),
  branch: fc.integer({ min: 0, max: 3 }),
  leavesAt: fc.nat({ max: 40 }),
  raisedBy: fc.integer({ min: -6, max: 6 }),
  isAsked: fc.boolean(),
});

test('with fewer than half of the nodes lying, however they collude, no block outside the honest chain gets a quorum', () => {
  const story = fc.integer({ min: 1, max: 7 }).chain((nodes) =>
    fc.record({
      liars: fc.nat({ max: Math.ceil(nodes / 2) - 1 }),
      rounds: fc.array(fc.array(Word, { minLength: nodes, maxLength: nodes }), {
        minLength: 1,
        maxLength: 30,
      }),
    }),
  );
  fc.assert(
    fc.property(story, ({ liars, rounds }) => {
      const known: (HeadVote | undefined)[] = [];
      for (const [round, words] of rounds.entries()) {
        const honestHead = 10 + round;
        for (const [node, { lag, branch, leavesAt, raisedBy, isAsked }] of words.entries()) {
          const head =
            node < liars
              ? headerOf(Math.max(1, honestHead + raisedBy), branch, leavesAt)
              : headerOf(Math.max(1, honestHead - lag));
          let vote = addHead(known[node], head, round);
          const below = Math.max(0, head.number - 3);
          if (isAsked)
            vote = addAncestor(vote, node < liars ? headerOf(below, branch, leavesAt) : headerOf(below));
          known[node] = vote;
        }
        const votes = known.flatMap((vote) => vote ?? []);
        const found = corroborate(votes, quorumOf(words.length, 'auto'));
        if (found !== undefined) assert.equal(found.hash, headerOf(found.number).hash);
      }
    }),
    { numRuns: 2_000 },
  );
});

test('with half of the nodes lying the same property fails, so the property is not trivial', () => {
  const [lie, truth] = [headerOf(11, 1, 5), headerOf(10)];
  const votes = [lie, lie, truth, truth].map((head) => addHead(undefined, head, 0));
  assert.equal(corroborate(votes, quorumOf(4, 'auto'))?.hash, lie.hash);
});
