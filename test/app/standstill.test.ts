import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createStandstill, STILL_MS_MIN } from '../../src/app/standstill.ts';
import { PACE_BLOCKS } from '../../src/store/blocks/block-time.ts';
import { findTipTimes } from '../../src/store/blocks/blocks.ts';
import { sql } from '../../src/store/db/sql.ts';
import { noon } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';

const HOUR_SECONDS = 3_600;

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Stores blocks with these seconds between them, the newest mined and stored at noon, which is the present. */
  async function startStory(gaps: readonly number[]) {
    const seconds = [...gaps.map((_, index) => gaps.slice(index).reduce((sum, one) => sum + one, 0)), 0];
    await database().query(sql`
      insert into block (number, hash, parent_hash, mined_at, proved, stored_at)
      select number, decode(lpad(to_hex(number), 64, '0'), 'hex'), decode(lpad(to_hex(number - 1), 64, 'f'), 'hex'),
        ${noon}::timestamptz - seconds * interval '1 s', true, ${noon}::timestamptz
      from unnest(${seconds}::integer[]) with ordinality as t (seconds, number)`);
    const clock = createTestClock();
    const standstill = createStandstill(database(), { clock, onBug: assert.ifError });
    const find = async (headAbove = 0) => {
      const tip = await findTipTimes(database());
      assert.ok(tip !== undefined);
      return standstill.find(tip, tip.number + headAbove);
    };
    // The process sees the newest block now.
    assert.equal(await find(), undefined);
    return { clock, find, head: seconds.length };
  }
  const evenly = (gapSeconds: number, count: number) => Array.from({ length: count }, () => gapSeconds);

  test('the chain stands still once there is no block for twenty block times, and no longer with the next one', async () => {
    const { clock, find, head } = await startStory(evenly(12, HOUR_SECONDS / 12));
    clock.advance(20 * 12_000 - 1);
    assert.equal(await find(), undefined);
    clock.advance(1);
    const trouble = await find();
    assert.deepEqual([trouble?.state, trouble?.since], ['degraded', noon]);
    assert.match(
      trouble?.message ?? '',
      new RegExp(`^the chain stands still: .* no block above ${head}, and usually there is one every 12 s`),
    );
    assert.equal(await find(1), undefined, 'a higher head is a lag');
    await database().query(sql`
      insert into block (number, hash, parent_hash, mined_at, proved, stored_at)
      select number + 1, decode(lpad('1', 64, 'e'), 'hex'), hash, mined_at + interval '12 s', true, ${clock.now()}::timestamptz
      from block order by number desc limit 1`);
    assert.equal(await find(), undefined, 'a block that is mined long ago and stored now is new');
  });

  test('a clock that is set forward makes no chain stand still', async () => {
    const { clock, find } = await startStory(evenly(12, HOUR_SECONDS / 12));
    clock.step(86_400_000);
    assert.equal(await find(), undefined);
  });

  test('a chain of several blocks a second stands still although its history is short', async () => {
    const { clock, find } = await startStory(evenly(0, PACE_BLOCKS));
    clock.advance(STILL_MS_MIN);
    assert.equal((await find())?.state, 'degraded');
  });

  test('a chain of fast blocks stands still after a minute at the earliest', async () => {
    const { clock, find } = await startStory(evenly(1, HOUR_SECONDS));
    clock.advance(STILL_MS_MIN - 1);
    assert.equal(await find(), undefined);
    clock.advance(1);
    assert.equal((await find())?.state, 'degraded');
  });

  test('a chain that makes blocks on demand, or whose pace is unknown, never stands still', async () => {
    const onDemand = await startStory([...evenly(2, HOUR_SECONDS), 61, 61, 61]);
    onDemand.clock.advance(86_400_000);
    assert.equal(await onDemand.find(), undefined);
    await database().query(sql`delete from block where number > ${HOUR_SECONDS - 1}`);
    await database().query(sql`delete from block where number < ${HOUR_SECONDS / 2 + 2}`);
    assert.equal(await onDemand.find(), undefined, 'less than an hour');
  });
});
