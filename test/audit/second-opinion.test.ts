import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { differenceOf } from '../../src/audit/compare.ts';
import { agreeOn } from '../../src/audit/second-opinion.ts';
import { quorumOf } from '../../src/domain/quorum.ts';
import { addressOf } from '../kit/chain-story.ts';

const difference = (block: number, message = 'missing') => differenceOf('missing', block, message);
const blocksOf = (differences: readonly { block: number }[]) => differences.map(({ block }) => block);

test('a quorum is half of the nodes, and at least two; a single node is its own quorum', () => {
  assert.deepEqual(
    [1, 2, 3, 4, 5, 6, 7].map((nodes) => quorumOf(nodes, 'auto')),
    [1, 2, 2, 2, 3, 3, 4],
  );
});

test('nodes can confirm a difference without agreeing on the right value', () => {
  const { differences, dissents } = agreeOn(
    [
      { node: 'a', differences: [difference(1, '5 is on the chain')] },
      { node: 'b', differences: [difference(1, '6 is on the chain')] },
      { node: 'c', differences: [] },
    ],
    'auto',
  );
  assert.deepEqual(blocksOf(differences), [1]);
  assert.deepEqual(
    dissents.map(({ node, block }) => [node, block]),
    [['c', 1]],
  );
});

test('a difference is repaired to the value of a quorum, and has no repair if each node has another value', () => {
  const withRepair = (message: string) => ({
    ...difference(1, message),
    repairs: [{ action: 'recompute_month' as const, user: addressOf(1), month: message }],
  });
  const say = (...messages: string[]) =>
    agreeOn(
      messages.map((message, index) => ({ node: String(index), differences: [withRepair(message)] })),
      'auto',
    ).differences[0];
  assert.deepEqual(say('true', 'true', 'false'), withRepair('true'));
  assert.deepEqual(say('false', 'true', 'true'), withRepair('true'));
  assert.deepEqual(say('false', 'true'), difference(1, 'false'));
});

test('if too few nodes answer, no difference is confirmed or denied', () => {
  const agreed = agreeOn(
    [
      { node: 'a', differences: [difference(1)] },
      { node: 'b', differences: undefined },
      { node: 'c', differences: undefined },
    ],
    'auto',
  );
  assert.deepEqual([agreed.isQuorate, agreed.differences, blocksOf(agreed.unconfirmed)], [false, [], [1]]);
  assert.deepEqual(agreed.dissents, []);
});

test('chain.quorum says how many nodes must confirm a difference', () => {
  const opinions = [[difference(1)], [difference(1)], []].map((differences, index) => ({
    ...{ node: String(index), differences },
  }));
  for (const [quorum, confirmed] of [
    [1, [1]],
    [2, [1]],
    [3, []],
  ] as const)
    assert.deepEqual(blocksOf(agreeOn(opinions, quorum).differences), confirmed, `chain.quorum ${quorum}`);
});

test('fewer than half of the nodes can neither invent a difference nor hide one, whatever they answer', () => {
  const blocks = fc.uniqueArray(fc.integer({ min: 1, max: 5 }));
  fc.assert(
    fc.property(blocks, fc.array(fc.option(blocks), { maxLength: 3 }), (real, lies) => {
      const honest = Array.from({ length: lies.length + 2 }, () => real);
      const opinions = [...lies, ...honest].map((said, index) => ({
        node: String(index),
        differences: said?.map((block) => difference(block)),
      }));
      const { isQuorate, differences } = agreeOn(opinions, 'auto');
      assert.ok(isQuorate);
      assert.deepEqual(new Set(blocksOf(differences)), new Set(real));
    }),
  );
});
