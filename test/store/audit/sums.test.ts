/**
 * Sums whose swaps retention has deleted: only the sum is left, so a repair must not recompute it.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { recomputeVolume } from '../../../src/store/audit/sums.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { raisePruneMark } from '../../../src/store/retention/prune-marks.ts';
import { later, noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

const MINUTE_MS = 60_000;

onSampledDatabase(import.meta.url, ({ database }) => {
  const key = { pairId: 1, startedAt: noon };
  const volume = async () => {
    const rows = await database().query<{ value: string; swap_count: number }>(
      sql`select trim_scale(usd_value)::text as value, swap_count from swap_volume`,
    );
    return rows.map(({ value, swap_count }) => [value, swap_count]);
  };
  const recompute = () => database().transaction((tx) => recomputeVolume(tx, key));

  test('a volume is recomputed from its swaps, unless retention may have deleted them', async () => {
    await database().query(sql`
      insert into swap_volume (pair_id, started_at, usd_value, swap_count) values (1, ${noon}, 7.5, 3)`);
    await raisePruneMark(database(), 'notification', later(10 * MINUTE_MS));
    await raisePruneMark(database(), 'swap', later(5 * MINUTE_MS));
    await raisePruneMark(database(), 'swap', later(-5 * MINUTE_MS));
    assert.deepEqual([await recompute(), await volume()], [false, [['7.5', 3]]], 'marks only rise');
    await database().query(sql`update prune_mark set before = ${noon}`);
    assert.deepEqual([await recompute(), await volume()], [true, []]);
  });
});
