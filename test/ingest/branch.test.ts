/**
 * Reorgs as the follower sees them: it switches once, to a complete branch, or not at all.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../src/core/fault.ts';
import { silentLog } from '../../src/core/log.ts';
import type { BlockHeader } from '../../src/domain/block.ts';
import type { FollowerOptions } from '../../src/ingest/follow.ts';
import { createFullChecks } from '../../src/ingest/full-checks.ts';
import { findBlockHash, findChain, findTip } from '../../src/store/blocks/blocks.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { headerOf, listStates, mine, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { followMadeUp } from '../kit/follower.ts';

const { signal } = new AbortController();

/** A chain that reorganizes from block 1 on, and its follower, which has stored it up to `height`. */
async function tell(
  database: Database,
  height: number,
  {
    nodeCount = 1,
    startBlock = 1,
    ...proof
  }: { nodeCount?: number; startBlock?: number } & Pick<FollowerOptions, 'unhashedProof'> = {},
) {
  const state = { branch: 0, leavesAt: 0, height, isWithheld: false };
  const at = (number: number): BlockHeader => {
    if (state.isWithheld) throw new Fault('unavailable', 'the body is withheld');
    return headerOf(number, state.branch, state.leavesAt);
  };
  let turned: { branch: number; leavesAt: number } | undefined;
  const asked = (number: number) => {
    const { branch, leavesAt } = turned ?? state;
    return headerOf(number, branch, leavesAt);
  };
  const head = () => headerOf(state.height, state.branch, state.leavesAt);
  const chain = { head, at, asked, nodeCount, startBlock };
  const start = () =>
    followMadeUp(database, chain, { clock: createTestClock(), finalityDepth: 100, ...proof });
  let follower = start();
  const follow = async () => {
    while ((await findTip(database))?.hash !== asked(state.height).hash) await follower.step(signal);
  };
  await follow();
  const restart = () => {
    follower = start();
  };
  /** The headers come from another branch than the head and the blocks. */
  const turn = (branch: typeof turned) => {
    turned = branch;
  };
  return { state, follow, restart, turn, step: () => follower.step(signal), head };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  const tipHash = async () => (await findTip(database()))?.hash;

  test('no block is undone before the new branch is read completely', async () => {
    const { state, follow, step } = await tell(database(), 8);
    await watchAddress(database());
    const before = await tipHash();
    Object.assign(state, { branch: 1, leavesAt: 5, height: 9, isWithheld: true });
    await assert.rejects(step(), { code: 'unavailable', message: /withheld/ });
    assert.equal(await tipHash(), before);
    state.isWithheld = false;
    await follow();
    assert.equal(await findBlockHash(database(), 5), headerOf(5).hash);
    assert.equal(await findBlockHash(database(), 6), headerOf(6, 1, 5).hash);
    assert.equal((await findChain(database()))?.corroboratedNumber, 9);
  });

  test('a branch that shares stored blocks above its ancestor is not stored, because the nodes changed while it was read', async () => {
    const { state, step, turn } = await tell(database(), 8);
    await watchAddress(database());
    const before = await tipHash();
    // The head is of a branch from block 5, which the blocks follow; the nodes go over to one from block 2 in between.
    Object.assign(state, { branch: 1, leavesAt: 5 });
    turn({ branch: 2, leavesAt: 2 });
    await assert.rejects(step(), { code: 'unavailable', message: /changed again at block 3/ });
    assert.equal(await tipHash(), before);
    turn(undefined);
    await step();
    assert.equal(await findBlockHash(database(), 5), headerOf(5).hash);
    assert.equal(await tipHash(), headerOf(8, 1, 5).hash);
    assert.deepEqual(await database().query(sql`select number from orphaned_block order by number`), [
      { number: 6 },
      { number: 7 },
      { number: 8 },
    ]);
  });

  test('no block is undone while a match of the new branch is unproved, and the branch is read again after a lie', async () => {
    const lie = { transfer: transferOf(), block: 6 };
    const story: { unproved: (typeof lie)[]; suspected: number[] } = { unproved: [], suspected: [] };
    const { state, follow, step } = await tell(database(), 8, {
      unhashedProof: {
        fullChecks: {
          ...createFullChecks({ clock: createTestClock(), log: silentLog(), isSampled: () => false }),
          lied: ({ block }) => void story.suspected.push(block),
        },
        proverOf: () => ({
          findUnproved: () => story.unproved,
          prove: async ([one]) => one?.block,
          async proveActivities() {},
        }),
      },
    });
    const before = await tipHash();
    story.unproved = [lie];
    Object.assign(state, { branch: 1, leavesAt: 5, height: 9 });
    assert.equal(await step(), 'worked');
    assert.equal(await tipHash(), before);
    assert.deepEqual(story.suspected, [6]);
    story.unproved = [];
    await follow();
    assert.equal(await findBlockHash(database(), 6), headerOf(6, 1, 5).hash);
  });

  test('a new branch is checked in full, because what it lacks is withdrawn, however far the head is', async () => {
    const asked: string[] = [];
    const checks = createFullChecks({ clock: createTestClock(), log: silentLog(), isSampled: () => false });
    const { state, follow } = await tell(database(), 8, {
      unhashedProof: {
        fullChecks: {
          ...checks,
          scrutinyOf(blocks) {
            const scrutiny = checks.scrutinyOf(blocks);
            asked.push(`${blocks.from} ${blocks.to} ${scrutiny}`);
            return scrutiny;
          },
        },
        proverOf: () => ({
          findUnproved: () => [],
          prove: async () => undefined,
          async proveActivities() {},
        }),
      },
    });
    asked.length = 0;
    Object.assign(state, { branch: 1, leavesAt: 5, height: 300 });
    await follow();
    const ofBranch = asked.filter((one) => /^[6-9] /.test(one));
    // The first request finds that the branch was left.
    assert.match(ofBranch.join(', '), /^9 \d+ undefined, 6 \d+ full\b/);
    assert.ok(asked.some((one) => one.endsWith(' undefined') && !one.startsWith('9 ')));
  });

  test('no block is stored while the nodes disagree about a sender that a points rule uses', async () => {
    let isAgreed = true;
    const { state, follow, step } = await tell(database(), 8, {
      unhashedProof: {
        fullChecks: createFullChecks({ clock: createTestClock(), log: silentLog() }),
        proverOf: () => ({
          findUnproved: () => [],
          prove: async () => undefined,
          async proveActivities() {
            if (!isAgreed) throw new Fault('unavailable', 'these answer differently');
          },
        }),
      },
    });
    isAgreed = false;
    const before = await tipHash();
    state.height = 9;
    await assert.rejects(step(), { code: 'unavailable' });
    assert.equal(await tipHash(), before);
    isAgreed = true;
    await follow();
    assert.equal(await tipHash(), headerOf(9).hash);
  });

  test('notifications held on the old branch are withdrawn with the switch', async () => {
    const { state, follow } = await tell(database(), 4);
    await watchAddress(database());
    await mine(database(), headerOf(5), [transferOf()], { confirmations: 5 });
    assert.deepEqual(await listStates(database()), ['held']);
    Object.assign(state, { branch: 1, leavesAt: 4, height: 5 });
    await follow();
    assert.deepEqual(await listStates(database()), ['withdrawn']);
  });

  for (const isRestarted of [false, true]) {
    const when = isRestarted ? ', by a follower that started later' : '';
    test(`an orphaned branch of equal height is not followed again before it is longer${when}`, async () => {
      const { state, follow, restart, step } = await tell(database(), 6);
      Object.assign(state, { branch: 1, leavesAt: 5 });
      await follow();
      const sibling = await tipHash();
      for (let poll = 0; poll < 3; poll += 1) {
        if (isRestarted) restart();
        state.branch = 0;
        assert.equal(await step(), 'idle');
        assert.equal(await tipHash(), sibling);
        state.branch = 1;
        assert.equal(await step(), 'idle');
      }
      Object.assign(state, { branch: 0, height: 7 });
      await follow();
      assert.equal(await findBlockHash(database(), 6), headerOf(6).hash);
    });
  }

  test('a lower branch is reported, and not followed until it is as long', async () => {
    const { state, follow, step } = await tell(database(), 8);
    const before = await tipHash();
    Object.assign(state, { branch: 1, leavesAt: 3, height: 6 });
    await assert.rejects(step(), {
      ...{ code: 'inconsistent' },
      message: new RegExp(`block 6 .${headerOf(6, 1, 3).hash}.*${headerOf(6).hash}`),
    });
    assert.equal(await tipHash(), before);
    state.height = 8;
    await follow();
    assert.equal(await findBlockHash(database(), 4), headerOf(4, 1, 3).hash);
  });

  test('a lower head of the same chain changes nothing', async () => {
    const { state, step } = await tell(database(), 8);
    state.height = 5;
    assert.equal(await step(), 'idle');
  });

  test('the first stored block is replaced if its parent stays', async () => {
    const { state, follow } = await tell(database(), 3, { nodeCount: 2 });
    Object.assign(state, { branch: 1, leavesAt: 0, height: 4 });
    await follow();
    assert.equal(await findBlockHash(database(), 1), headerOf(1, 1, 0).hash);
  });

  for (const nodeCount of [1, 2]) {
    const isFollowed = nodeCount === 1;
    const what = isFollowed ? 'the only node' : 'one of two nodes, the other being silent,';
    test(`a branch from below the first stored block that ${what} names is ${isFollowed ? 'followed' : 'held back'}`, async () => {
      const { state, follow, step } = await tell(database(), 13, { nodeCount, startBlock: 10 });
      const before = await tipHash();
      Object.assign(state, { branch: 2, leavesAt: 5, height: 16 });
      if (isFollowed) {
        await follow();
        assert.equal(await findBlockHash(database(), 10), headerOf(10, 2, 5).hash);
        return;
      }
      await assert.rejects(step(), { code: 'inconsistent', message: /from below the first stored block 10/ });
      assert.equal(await tipHash(), before);
    });
  }

  test('a branch longer than one switch is followed in parts, and the first part replaces the old branch', async () => {
    const { state, follow } = await tell(database(), 120);
    Object.assign(state, { branch: 1, leavesAt: 30, height: 130 });
    await follow();
    assert.equal(await findBlockHash(database(), 30), headerOf(30).hash);
    assert.equal(await findBlockHash(database(), 130), headerOf(130, 1, 30).hash);
  });
});
