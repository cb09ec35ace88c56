/**
 * The final block of a follower that is far behind its nodes.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../src/core/fault.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createFinality } from '../../src/ingest/finality.ts';
import { findChain, findTip, insertChain } from '../../src/store/blocks/blocks.ts';
import type { Database } from '../../src/store/db/db.ts';
import { headerOf } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { followMadeUp } from '../kit/follower.ts';

const [HEAD, DEPTH] = [300, 20];
const { signal } = new AbortController();

type Chain = {
  tagged: number | undefined;
  /** Whether too few nodes for a quorum have the tag. */
  isByFew?: boolean;
  branchOf(number: number): number;
  startBlock?: number;
  headNumber?: number;
};

/**
 * Follows for some blocks. The clock moves so that each commit refreshes the final block. Returns the heights that
 * were requested by number.
 */
async function follow(
  database: Database,
  { tagged, isByFew = false, branchOf, startBlock = 1, headNumber = HEAD }: Chain,
  until: number,
): Promise<number[]> {
  const asked: number[] = [];
  const clock = createTestClock();
  const chain = {
    head: () => headerOf(headNumber),
    at: (number: number) => headerOf(number),
    asked(number: number) {
      asked.push(number);
      return headerOf(number, branchOf(number));
    },
    ...{ finalized: tagged, isByFew, startBlock },
  };
  const follower = followMadeUp(database, chain, { clock, finalityDepth: DEPTH });
  while (((await findTip(database))?.number ?? 0) < until) {
    await follower.step(signal);
    clock.advance(10_000);
  }
  return asked;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  const readFinal = async () => (await findChain(database()))?.finalizedNumber ?? 0;

  test('during a backfill, blocks deep below the tip are final even if the tagged block is not stored', async () => {
    await follow(database(), { tagged: 290, branchOf: () => 0 }, 150);
    const tip = (await findTip(database()))?.number ?? 0;
    const final = await readFinal();
    assert.ok(final > 0 && final <= tip - DEPTH, `${final} below ${tip}`);
  });

  test('a tagged block that is not stored finalizes no block that the nodes have replaced', async () => {
    await follow(database(), { tagged: 290, branchOf: () => 1 }, 150);
    assert.equal(await readFinal(), 0);
  });

  test('nodes are never asked for a block below genesis', async () => {
    const asked = await follow(
      database(),
      { tagged: 290, branchOf: () => 0, startBlock: 0, headNumber: DEPTH - 1 },
      5,
    );
    assert.deepEqual(
      asked.filter((number) => number < 0),
      [],
    );
  });

  test('a block that becomes final while no new block arrives is final', async () => {
    const clock = createTestClock();
    let tag = 5;
    const nodes = { head: () => headerOf(20), at: (number: number) => headerOf(number), asked: headerOf };
    const chain = {
      ...nodes,
      startBlock: 1,
      get finalized() {
        return tag;
      },
    };
    const follower = followMadeUp(database(), chain, { clock, finalityDepth: DEPTH });
    while (((await findTip(database()))?.number ?? 0) < 20) await follower.step(signal);
    tag = 15;
    clock.advance(10_000);
    assert.equal(await follower.step(signal), 'idle');
    assert.equal(await readFinal(), 15);
    clock.step(-3_600_000);
    tag = 16;
    clock.advance(10_000);
    await follower.step(signal);
    assert.equal(await readFinal(), 16, 'a clock that was set back does not hold up finality');
  });

  test('nodes that lack the tag for a moment make no block final, until they name a newer one', async () => {
    const clock = createTestClock();
    let tag: number | undefined = 5;
    const chain = {
      ...{
        head: () => headerOf(HEAD),
        at: (number: number) => headerOf(number),
        asked: headerOf,
        startBlock: 1,
      },
      get finalized() {
        return tag;
      },
    };
    const follower = followMadeUp(database(), chain, { clock, finalityDepth: DEPTH });
    while (((await findTip(database()))?.number ?? 0) < HEAD) await follower.step(signal);
    const refresh = async () => {
      clock.advance(10_000);
      await follower.step(signal);
      return readFinal();
    };
    assert.equal(await refresh(), 5);
    tag = undefined;
    assert.deepEqual([await refresh(), await refresh()], [5, 5]);
    tag = 7;
    assert.equal(await refresh(), 7);
  });

  test('without a tag, the depth decides; if only some nodes have one, no block above theirs is final', async () => {
    await follow(database(), { tagged: 100, isByFew: true, branchOf: () => 0 }, 200);
    assert.equal(await readFinal(), 100);
    await follow(database(), { tagged: undefined, branchOf: () => 0 }, HEAD);
    assert.equal(await readFinal(), HEAD - DEPTH);
  });

  test('nodes that do not answer which block is final hold up blocks once in ten seconds', async () => {
    const clock = createTestClock();
    let asked = 0;
    const chain = {
      ...{
        head: () => headerOf(HEAD),
        at: (number: number) => headerOf(number),
        asked: headerOf,
        startBlock: 1,
      },
      get finalized(): number {
        asked += 1;
        throw new Fault('unavailable', 'finalized block not found');
      },
    };
    const follower = followMadeUp(database(), chain, { clock, finalityDepth: DEPTH });
    const outcomes: string[] = [];
    const step = () => follower.step(signal).catch((error: Fault) => error.code);
    while (((await findTip(database()))?.number ?? 0) < HEAD) outcomes.push(await step());
    assert.ok(outcomes.length > 2);
    assert.deepEqual(new Set(outcomes.slice(1)), new Set(['worked']));
    assert.deepEqual([outcomes[0], asked], ['unavailable', 1]);
    clock.advance(10_000);
    assert.deepEqual([await step(), asked], ['unavailable', 2]);
  });

  test('a stored block that the tag names is final, and no block above it', async () => {
    await follow(database(), { tagged: 100, branchOf: () => 0 }, 200);
    assert.equal(await readFinal(), 100);
  });

  test('after many blocks, the nodes are asked again before a reorg, however recently they answered', async () => {
    await insertChain(database(), 1, undefined);
    let asked = 0;
    const finality = createFinality({
      database: database(),
      nodes: {
        async finalized() {
          asked += 1;
          return { number: 1, hash: undefined };
        },
        corroborated: async () => undefined,
      },
      ...{ clock: createTestClock(), metrics: createMetrics('test'), finalityDepth: DEPTH },
    });
    for (const number of [1, 2, 16]) await finality.refresh(headerOf(number), signal);
    assert.equal(asked, 1);
    await finality.refresh(headerOf(17), signal);
    assert.equal(asked, 2);
  });
});
