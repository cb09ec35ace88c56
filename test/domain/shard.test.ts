import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import {
  recordIdIn,
  SHARD_STEP,
  SLICES_MAX,
  shardOf,
  shardOfRecord,
  shardsOf,
  sliceForAddress,
  sliceOfRecord,
} from '../../src/domain/shard.ts';
import { addressOf } from '../kit/chain-story.ts';

test("the shard of slice 0 has the watcher's id, and every shard id is an exact number that names watcher and slice", () => {
  assert.equal(shardOf(7), 7);
  const shards = shardsOf(SHARD_STEP - 1, SLICES_MAX);
  assert.equal(new Set(shards).size, SLICES_MAX);
  for (const [slice, shard] of shards.entries()) {
    assert.ok(Number.isSafeInteger(shard));
    assert.deepEqual([shard % SHARD_STEP, Math.floor(shard / SHARD_STEP)], [SHARD_STEP - 1, slice]);
  }
});

test('a record id says its slice and stays a UUID of version 4', () => {
  for (let slice = 0; slice < SLICES_MAX; slice += 1) {
    const id = recordIdIn(slice, randomUUID());
    assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.equal(sliceOfRecord(id), slice);
    assert.equal(shardOfRecord(3, id), shardOf(3, slice));
  }
});

test('addresses spread evenly among any number of slices', () => {
  for (const slices of [1, 2, 3, 16, 255, 256]) {
    const counts = Array.from({ length: slices }, () => 0);
    for (let number = 0; number < 100 * slices; number += 1) {
      const slice = sliceForAddress(addressOf(number), slices);
      counts[slice] = (counts[slice] ?? 0) + 1;
    }
    assert.ok(Math.min(...counts) > 40 && Math.max(...counts) < 180, `${slices}: ${counts.join()}`);
  }
});
