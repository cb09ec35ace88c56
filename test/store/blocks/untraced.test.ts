/**
 * Reorgs to blocks that came without traces: what such a block doesn't show is not gone.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Hash } from '../../../src/core/hex.ts';
import type { Transfer } from '../../../src/domain/block.ts';
import { commitBlocks, findTip } from '../../../src/store/blocks/blocks.ts';
import { attemptDue } from '../../kit/attempts.ts';
import {
  bob,
  carol,
  coin,
  hashOf,
  headerOf,
  later,
  listNotifications,
  mine,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

const [ONE, TWO] = [hashOf(0x77), hashOf(0x78)];
const internal = (parts: Partial<Transfer> = {}) =>
  transferOf({ kind: 'internal', txHash: ONE, sender: carol, ...parts });

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Mines block 2 with these transfers, and delivers what is due. */
  async function begin(transfers: readonly Transfer[], settings: { confirmations?: number } = {}) {
    await watchAddress(database(), { settings: { removed: true, ...settings } });
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), transfers);
    await attemptDue(database(), { now: later(1), succeeds: true });
  }

  /** Switches to another block 2 that came without traces and has these successful transactions. */
  const reorg = async (untraced: readonly Hash[], transfers: readonly Transfer[] = []) =>
    commitBlocks(database(), {
      expectedTip: await findTip(database()),
      blocks: [{ header: headerOf(2, 1, 1), proved: true, transfers, untraced }],
      ...{ reorg: { ancestorNumber: 1 }, confirmations: 0, finalizedNumber: 0, now: later(60_000) },
    });

  const list = async () =>
    (await listNotifications(database())).map(
      ({ state, revision, amount }) => `${state} ${revision} ${amount}`,
    );

  test('internal transfers of a transaction that succeeded again stay, each once and whatever their content', async () => {
    const calls = [5n, 5n, 7n].map((amount, ordinal) => internal({ amount, ordinal }));
    await begin(calls);
    assert.equal((await reorg([TWO, ONE])).outcome, 'committed');
    assert.deepEqual(await list(), ['processed 0 5', 'processed 0 5', 'processed 0 7']);
    assert.equal((await attemptDue(database(), { now: later(9_999_999), succeeds: true })).length, 0);
    // The next reorg knows them from the branch without traces.
    await mine(database(), headerOf(2, 2, 1), calls, { reorg: { ancestorNumber: 1 } });
    assert.deepEqual(await list(), ['processed 0 5', 'processed 0 5', 'processed 0 7']);
  });

  test('a held one stays held, and is sent with its new block', async () => {
    await begin([internal()], { confirmations: 1 });
    await reorg([ONE]);
    assert.deepEqual(await list(), ['held 0 1']);
    await mine(database(), headerOf(3, 1, 1), []);
    const [due] = await attemptDue(database(), { now: later(9_999_999), succeeds: true });
    assert.equal(due?.blockNumber, 2);
  });

  test('one whose transaction is gone or failed is taken back, and so are other transfers that the block shows', async () => {
    await begin([internal({ amount: 5n }), internal({ txHash: TWO, amount: 6n })]);
    await reorg(
      [TWO],
      [
        transferOf({ txHash: TWO, amount: 8n }),
        transferOf({ kind: 'token', token: coin, txHash: TWO, amount: 9n }),
      ],
    );
    assert.deepEqual((await list()).toSorted(), [
      'processed 0 6',
      'waiting 0 8',
      'waiting 0 9',
      'waiting 1 5',
    ]);
  });

  test('in strict order, an internal transfer keeps its place between those that the block shows', async () => {
    const native = transferOf({ txHash: ONE, amount: 1n });
    const token = transferOf({ kind: 'token', token: coin, txHash: ONE, amount: 3n });
    await watchAddress(database(), { address: bob, settings: { strictOrder: true, confirmations: 1 } });
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [native, internal({ amount: 2n }), token]);
    await reorg([TWO, ONE], [native, token]);
    await mine(database(), headerOf(3, 1, 1), []);
    const sent: bigint[] = [];
    for (let round = 1; round <= 3; round += 1)
      for (const { amount } of await attemptDue(database(), { now: later(round * 60_000), succeeds: true }))
        sent.push(BigInt(amount));
    assert.deepEqual(sent, [1n, 2n, 3n]);
  });
});
