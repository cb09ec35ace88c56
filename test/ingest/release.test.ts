import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createMetrics } from '../../src/core/metrics.ts';
import type { BlockHeader } from '../../src/domain/block.ts';
import { createDeferredWriter } from '../../src/ingest/deferred-writer.ts';
import { findTip } from '../../src/store/blocks/blocks.ts';
import { sql } from '../../src/store/db/sql.ts';
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
    await mine(database(), at(6), [transferOf()], { confirmations: 2 });
    assert.deepEqual(await listStates(database()), ['held']);

    head = 9;
    await follow();
    assert.deepEqual(await listStates(database()), ['waiting']);
  });

  test('a leader with a new session releases what the database has lost the release of', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()], { confirmations: 0 });
    let head = 8;
    let session = {};
    const follower = followMadeUp(
      database(),
      { head: () => headerOf(head), at: headerOf },
      {
        ...{ clock: createTestClock(), confirmations: CONFIRMATIONS, finalityDepth: 100 },
        term: () => session,
      },
    );
    const follow = async () => {
      while ((await findTip(database()))?.number !== head) await follower.step(signal);
    };
    const writer = createDeferredWriter({
      ...{ database: database(), clock: createTestClock(), metrics: createMetrics('test') },
      ...{ confirmations: CONFIRMATIONS, term: () => session },
    });
    await follow();
    const mineOne = async () => {
      head += 1;
    };
    for (const release of [mineOne, () => writer(signal)]) {
      await writer(signal);
      // The commit that released it was lost with the server.
      await database().query(sql`update queue set state = 'held', release_number = 1`);
      await release();
      await follow();
      assert.deepEqual(await listStates(database()), ['held']);
      session = {};
      await release();
      await follow();
      assert.deepEqual(await listStates(database()), ['waiting']);
    }
  });
});
