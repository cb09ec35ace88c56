import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createHeadWatch } from '../../src/app/head-watch.ts';
import { never } from '../../src/core/abort.ts';
import { Fault } from '../../src/core/fault.ts';
import type { BlockId } from '../../src/domain/block.ts';
import { hashOf } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { waitUntil } from '../kit/wait.ts';

const block: BlockId = { number: 7, hash: hashOf(7) };

/** A watch of nodes whose reads of the head answer when the test says so. */
function createStage() {
  const clock = createTestClock();
  const reads: PromiseWithResolvers<BlockId>[] = [];
  const watch = createHeadWatch(
    {
      head() {
        const read = Promise.withResolvers<BlockId>();
        reads.push(read);
        return read.promise;
      },
    },
    clock,
  );
  return { clock, reads, watch };
}

async function followerReads({ reads, watch }: ReturnType<typeof createStage>): Promise<void> {
  const read = watch.head(never);
  await Promise.resolve();
  reads.at(-1)?.resolve(block);
  assert.deepEqual(await read, block);
}

test('the head is read for the follower only after it has read one, and has not for three seconds', async () => {
  const stage = createStage();
  const { clock, reads, watch } = stage;
  clock.advance(60_000);
  await watch.step(never);
  assert.equal(reads.length, 0);
  await followerReads(stage);
  clock.advance(2_999);
  await watch.step(never);
  assert.equal(reads.length, 1);
  clock.advance(1);
  const step = watch.step(never);
  assert.equal(reads.length, 2);
  reads[1]?.reject(new Fault('unavailable', 'no node answers'));
  assert.equal(await step, 'idle');
  clock.advance(2_999);
  await watch.step(never);
  assert.equal(reads.length, 2);
});

test('while the follower reads the head, the watch does not', async () => {
  const stage = createStage();
  const { clock, reads, watch } = stage;
  await followerReads(stage);
  const read = watch.head(never);
  clock.advance(60_000);
  await watch.step(never);
  assert.equal(reads.length, 2);
  reads[1]?.resolve(block);
  await read;
});

test('the follower waits for a read of the watch, but not for long', async () => {
  const stage = createStage();
  const { clock, reads, watch } = stage;
  await followerReads(stage);
  clock.advance(3_000);
  const step = watch.step(never);
  const read = watch.head(never);
  assert.equal(reads.length, 2);
  clock.advance(500);
  await waitUntil(() => reads.length === 3);
  reads[2]?.resolve(block);
  assert.deepEqual(await read, block);
  reads[1]?.resolve(block);
  await step;
});
