/**
 * A quorum of the nodes decides in which block the transaction of an unexpected notification is.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Difference, differenceOf } from '../../src/audit/compare.ts';
import { relocate } from '../../src/audit/relocate.ts';
import { complete, withNodes } from '../kit/nodes.ts';
import { makeHash } from '../kit/scripted-node.ts';

const { signal } = new AbortController();
const range = { from: 1, to: 9 };
const unexpected: Difference = {
  ...differenceOf('unexpected', 3, 'no such transfer'),
  notification: { txHash: makeHash(0, 3, 1), kind: 'transaction', ordinal: 0, watchedAddressId: 'w', id: 1 },
  repairs: [],
};

/** The difference after nodes that give these block numbers were asked for the transaction's receipt. */
const relocated = (...given: readonly unknown[]) => relocatedBeside([unexpected], ...given);

/** The same if the comparison of another block has these differences; undefined if it can't be compared. */
async function relocatedBeside(
  there: readonly Difference[] | undefined,
  ...given: readonly unknown[]
): Promise<Difference | undefined> {
  const methods = given.map((blockNumber) => ({
    ...complete(),
    eth_getTransactionReceipt: () => (blockNumber === null ? null : { blockNumber }),
  }));
  let outcome: Difference | undefined;
  await withNodes(methods, async ({ nodes }) => {
    outcome = await relocate(unexpected, { nodes, range, compareBlock: async () => there }, signal);
  });
  return outcome;
}

test('a node that names another block alone neither hides a difference nor takes its repairs', async () => {
  for (const lie of ['0x5', '0xffff'])
    for (const others of [
      ['0x3', '0x3'],
      [null, null],
      ['0x3', null],
    ])
      assert.deepEqual(await relocated(lie, ...others), unexpected, `${lie} and ${others.join()}`);
  assert.deepEqual(await relocated('0x5', '0x3'), unexpected);
});

test('an answer that is not a block number leaves the difference as it is', async () => {
  for (const number of ['zz', '0x', '0x-5', 1.5, '0xffffffffffffffffff', {}])
    assert.deepEqual(await relocated(number, number), unexpected, JSON.stringify(number));
});

test('a difference whose transaction is in another block of the range according to a quorum is left to that block', async () => {
  assert.equal(await relocated('0x5', null, '0x5'), undefined);
  assert.equal(await relocated('0x5'), undefined);
});

test('a difference whose transaction is outside the range according to a quorum names that block, and has no repairs', async () => {
  const { repairs: _, ...rest } = unexpected;
  assert.deepEqual(await relocated('0xb', '0xb'), {
    ...rest,
    message: `${rest.message}; its transaction is in block 11: compare that block too`,
  });
});

test('a difference is kept if the block of the range that has the transaction does not report the notification', async () => {
  const other = { ...unexpected, notification: { ...unexpected.notification, id: 2 } } as Difference;
  assert.deepEqual(await relocatedBeside([other], '0x5'), unexpected);
  assert.deepEqual(await relocatedBeside([], '0x5'), unexpected);
});

test('a difference whose transaction is in a block of the range that cannot be compared has no repairs', async () => {
  const { repairs: _, ...rest } = unexpected;
  assert.deepEqual(await relocatedBeside(undefined, '0x5'), {
    ...rest,
    message: `${rest.message}; its transaction is in block 5: compare that block too`,
  });
});
