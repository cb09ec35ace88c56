/**
 * Pruning of pairs beside the service. Data that the API still serves stays, and older data is deleted.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decimal, decimalText } from '../../../src/core/decimal.ts';
import { createPairPruner } from '../../../src/ingest/pairs/pair-retention.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { insertPairStates } from '../../../src/store/market/pair-states.ts';
import { insertSwaps, listVolumeHours, sumSwapValue } from '../../../src/store/market/swaps.ts';
import { addressOf, hashOf, later } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

const PAIR = 1;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const { signal } = new AbortController();

onSampledDatabase(import.meta.url, ({ database }) => {
  const count = async (table: 'swap' | 'swap_volume' | 'pair_state') =>
    (
      await database().query(
        sql`select from ${{ swap: sql`swap`, swap_volume: sql`swap_volume`, pair_state: sql`pair_state` }[table]}`,
      )
    ).length;

  const insertPair = (backfill?: { number: number; until: Date }) =>
    database().query(sql`
      insert into pair (id, address, token0, token1, token0_decimals, token1_decimals, usd_value_from, backfill_number, backfill_until)
      values (${PAIR}, ${Buffer.from(addressOf(1).slice(2), 'hex')}, ${Buffer.alloc(20)}, ${Buffer.alloc(20)}, 18, 18, 0,
        ${backfill?.number}, ${backfill?.until ?? later(0)})`);

  const insertBlock = (number: number, minedAt: Date) =>
    database().query(sql`
      insert into block (number, hash, parent_hash, mined_at, proved, stored_at)
      values (${number}, ${Buffer.alloc(32, number)}, ${Buffer.alloc(32, number - 1)}, ${minedAt}, true, ${minedAt})`);

  test("old swaps, sums and states are deleted in steps, but never the last day's or the last state", async () => {
    const clock = createTestClock(later(0));
    await database().query(sql`insert into chain (chain_id, finalized_number) values (1, 1000000)`);
    await insertPair();
    const prune = createPairPruner({
      database: database(),
      clock,
      swapsMs: 2 * DAY_MS,
      pairHistoryMs: 4 * DAY_MS,
    });
    let tip = 0;
    const settle = async () => {
      tip += 1;
      await insertBlock(tip, clock.now());
      let steps = 1;
      while ((await prune(signal)) === 'worked') steps += 1;
      return steps;
    };
    // 1,600 swaps, a block each, over 26 hours and 40 minutes.
    const numbers = Array.from({ length: 1_600 }, (_, index) => index + 1);
    const placeOf = (number: number) => ({
      ...{ pairId: PAIR, blockNumber: number, minedAt: later((number - 1_600) * 60_000) },
    });
    await database().transaction((tx) =>
      insertSwaps(
        tx,
        numbers.map((number) => ({
          ...{ ...placeOf(number), txHash: hashOf(number), ordinal: 0, logIndex: 0 },
          ...{ amount0In: 1n, amount1In: 0n, amount0Out: 0n, amount1Out: 1n },
          price: { usdValue: decimal('1'), priceId: undefined },
        })),
      ),
    );
    await database().transaction((tx) =>
      insertPairStates(
        tx,
        numbers.map((number) => ({
          ...{ ...placeOf(number), reserve0: 1n, reserve1: 1n, price: decimal('1') },
          ...{ supplyChange: 0n, liquidityK: undefined },
        })),
      ),
    );
    const dayVolume = async () => {
      const until = clock.now();
      const sum = await sumSwapValue(database(), PAIR, { after: new Date(until.getTime() - DAY_MS), until });
      return decimalText(sum);
    };
    const hours = async () =>
      (await listVolumeHours(database(), PAIR, { from: later(-9 * DAY_MS), to: later(0), limit: 99 })).length;

    await settle();
    assert.equal(await dayVolume(), '1440');
    assert.equal(await count('swap'), 1_600);
    const [states, kept] = [await count('pair_state'), await hours()];
    assert.equal(states, 26 * 60 + 2, 'of more than 26 hours ago the last of its hour');

    clock.advance(2 * DAY_MS + HOUR_MS);
    assert.ok((await settle()) > 1, 'in steps');
    assert.equal(await count('swap'), 0);
    const whole = await count('pair_state');
    assert.equal(await hours(), kept, 'histories are as long as before');

    // A clock that is ahead while the chain is followed.
    clock.advance(9 * DAY_MS);
    while ((await prune(signal)) === 'worked');
    assert.deepEqual([await count('pair_state'), await hours()], [whole, kept]);
    clock.advance(-9 * DAY_MS);

    clock.advance(2 * DAY_MS);
    await settle();
    assert.deepEqual([await count('swap_volume'), await count('pair_state')], [0, 1]);
  });

  for (const [how, days, backfill] of [
    ['that are followed late', 3, undefined],
    ['that a backfill reads', 0, { number: 9, until: later(-3 * DAY_MS) }],
  ] as const)
    test(`of the blocks ${how}, the last state of each hour is kept too`, async () => {
      const clock = createTestClock(later(0));
      await database().query(sql`insert into chain (chain_id, finalized_number) values (1, 99)`);
      await insertPair(backfill);
      await insertBlock(1, later(-days * DAY_MS));
      const retention = { swapsMs: 2 * DAY_MS, pairHistoryMs: 9 * DAY_MS };
      const prune = createPairPruner({ database: database(), clock, ...retention });
      while ((await prune(signal)) === 'worked');

      const states = [10, 20, 30].map((number) => ({
        ...{ pairId: PAIR, blockNumber: number, minedAt: later(-2 * DAY_MS + number * 60_000) },
        ...{ reserve0: 1n, reserve1: 1n, price: decimal('1'), supplyChange: 0n, liquidityK: undefined },
      }));
      await database().transaction((tx) => insertPairStates(tx, states));
      await insertBlock(30, later(HOUR_MS));
      clock.advance(HOUR_MS);
      while ((await prune(signal)) === 'worked');
      assert.equal(await count('pair_state'), 1);
    });
});
