import assert from 'node:assert/strict';
import { test } from 'node:test';
import { forEachShard } from '../../../src/store/db/shard-rows.ts';

test('the work of a shard may return hundreds of thousands of rows', async () => {
  const elements = [2, 1].map((shardId) => ({ shardId }));
  const rows = await forEachShard(elements, async (shardId) =>
    Array.from({ length: 200_000 }, () => shardId),
  );
  assert.deepEqual([rows.length, rows[0], rows.at(-1)], [400_000, 1, 2]);
});
