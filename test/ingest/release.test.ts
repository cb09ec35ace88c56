import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BlockHeader } from '../../src/domain/block.ts';
import { findTip } from '../../src/store/blocks/blocks.ts';
import { headerOf, listStates, mine, noon, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { followMadeUp } from '../kit/follower.ts';
import { rollbackTo } from '../kit/rollback.ts';

const CONFIRMATIONS = 2;
/** The reorg starts above this block. */
const LEAVES_AT = 5;
const { signal } = new AbortController();

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a follower that takes over releases notifications that another follower held after a reorg', async () => {
    await watchAddress(database());
    let branch = 0;
    let head = 8;
    const at = (number: number): BlockHeader => headerOf(number, branch, LEAVES_AT);
    const chain = { head: () => at(head), at };
    const timing = { clock: createTestClock(), confirmations: CONFIRMATIONS, finalityDepth: 100 };
    const follower = followMadeUp(database(), chain, timing);
    const follow = async () => {
      while ((await findTip(database()))?.number !== head) await follower.step(signal);
    };
    await follow();

    // It stalls, and another follower handles the reorg: a payment is held at a height that was confirmed on the orphaned branch.
    branch = 1;
    const dead = await findTip(database());
    assert.ok(dead !== undefined);
    await rollbackTo(database(), { ancestorNumber: LEAVES_AT, expectedTip: dead, now: noon });
    await mine(database(), at(6), [transferOf()], { releasedNumber: 4 });
    assert.deepEqual(await listStates(database()), ['held']);

    head = 9;
    await follow();
    assert.deepEqual(await listStates(database()), ['waiting']);
  });
});
