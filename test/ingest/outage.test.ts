/**
 * Blocks that were read ahead before an outage or a suspension: which of them are read again after it.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../src/core/fault.ts';
import type { Hash } from '../../src/core/hex.ts';
import { findBlockHash, findTip } from '../../src/store/blocks/blocks.ts';
import type { Database } from '../../src/store/db/db.ts';
import { headerOf } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { followMadeUp } from '../kit/follower.ts';

const HEAD = 1_000;
/** Longer than blocks near the head stay fresh. */
const LONG_MS = 31_000;
const HOUR_MS = 3_600_000;
const { signal } = new AbortController();

/** A follower that has stored some blocks of a long chain and read others ahead. */
async function readAheadOn(database: Database, finalityDepth: number) {
  const clock = createTestClock();
  const asked: number[] = [];
  let [branch, leavesAt, isAway] = [0, HEAD, false];
  const follower = followMadeUp(
    database,
    {
      head: () => headerOf(HEAD, branch, leavesAt),
      at(number) {
        asked.push(number);
        return headerOf(number, branch, leavesAt);
      },
    },
    {
      ...{ clock, finalityDepth },
      async isLeader() {
        if (isAway) throw new Fault('unavailable', 'the database is away');
        return true;
      },
    },
  );
  const tipNumber = async () => (await findTip(database))?.number ?? 0;
  let tip = 0;
  while (tip >= Math.max(0, ...asked)) {
    await follower.step(signal);
    tip = await tipNumber();
  }
  return {
    ...{ clock, asked, tip, tipNumber },
    step: () => follower.step(signal),
    /** The database is away for one step. */
    async outage() {
      isAway = true;
      await assert.rejects(follower.step(signal), { code: 'unavailable' });
      isAway = false;
    },
    /** The chain moves to another branch above the tip, which no stored block shows. Returns its block after the tip. */
    reorgAbove(): Hash {
      [branch, leavesAt] = [1, tip];
      return headerOf(tip + 1, branch, leavesAt).hash;
    },
  };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('blocks that were read ahead before an outage of the database are read again after it', async () => {
    const story = await readAheadOn(database(), HEAD);
    const next = story.reorgAbove();
    await story.outage();
    await story.step();
    assert.equal(await findBlockHash(database(), story.tip + 1), next);
  });

  test('blocks that were read ahead before the process was suspended are read again after it', async () => {
    const story = await readAheadOn(database(), HEAD);
    const next = story.reorgAbove();
    story.clock.advance(LONG_MS);
    while ((await story.tipNumber()) === story.tip) await story.step();
    assert.equal(await findBlockHash(database(), story.tip + 1), next);
  });

  test('final blocks that were read ahead are kept, because no reorg can orphan them', async () => {
    const story = await readAheadOn(database(), 10);
    await story.outage();
    story.clock.advance(LONG_MS);
    while ((await story.tipNumber()) < HEAD / 2) await story.step();
    const again = story.asked.filter((number, index) => story.asked.indexOf(number) !== index);
    assert.deepEqual(again, []);
  });

  test('a process that is suspended again while it reads them once more reads them a third time', async () => {
    const story = await readAheadOn(database(), HEAD);
    story.clock.advance(LONG_MS);
    await story.step();
    story.asked.length = 0;
    const next = story.reorgAbove();
    story.clock.advance(HOUR_MS);
    while ((await story.tipNumber()) === story.tip) await story.step();
    assert.equal(await findBlockHash(database(), story.tip + 1), next);
  });

  test('blocks whose commit waits long for its lock are read again', async () => {
    let whileWaiting = () => {};
    const slow: Database = {
      ...database(),
      transaction(work) {
        whileWaiting();
        return database().transaction(work);
      },
    };
    const story = await readAheadOn(slow, HEAD);
    let next: Hash | undefined;
    whileWaiting = () => {
      whileWaiting = () => {};
      next = story.reorgAbove();
      story.clock.advance(LONG_MS);
    };
    while ((await story.tipNumber()) === story.tip) await story.step();
    assert.ok(next !== undefined);
    assert.equal(await findBlockHash(database(), story.tip + 1), next);
  });

  test('blocks that nodes need long for are stored after their second reading', async () => {
    const clock = createTestClock();
    const follower = followMadeUp(
      database(),
      {
        head: () => headerOf(HEAD),
        at(number) {
          clock.advance(LONG_MS);
          return headerOf(number);
        },
      },
      { clock, finalityDepth: HEAD },
    );
    const steps: (number | undefined)[] = [];
    while (steps.length < 4) {
      await follower.step(signal);
      steps.push((await findTip(database()))?.number);
    }
    assert.deepEqual(steps, [undefined, 2, 12, 22]);
  });
});
