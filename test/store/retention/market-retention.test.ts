/**
 * Which data of pairs is deleted, and which has to stay.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decimal, decimalText } from '../../../src/core/decimal.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { findCurrentPair, insertReadings } from '../../../src/store/market/pair-readings.ts';
import {
  findPairStateAt,
  insertPairStates,
  type PairStateChange,
} from '../../../src/store/market/pair-states.ts';
import {
  deleteSwapsAbove,
  insertSwaps,
  listVolumeHours,
  type PricedSwap,
} from '../../../src/store/market/swaps.ts';
import {
  pruneOldPairStates,
  prunePairReadings,
  prunePairStates,
  pruneSwaps,
  pruneSwapVolumes,
} from '../../../src/store/retention/market-retention.ts';
import { addressOf, hashOf, later } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const [PAIR, OTHER] = [1, 2];

onSampledDatabase(import.meta.url, ({ database }) => {
  const isFinal = (number: number) =>
    database().query(sql`insert into chain (chain_id, finalized_number) values (1, ${number})`);
  const insertPair = (id: number, backfillNumber?: number) =>
    database().query(sql`
      insert into pair (id, address, token0, token1, token0_decimals, token1_decimals, usd_value_from, followed_from,
        backfill_number, backfill_until)
      values (${id}, ${Buffer.from(addressOf(id).slice(2), 'hex')}, ${Buffer.alloc(20)}, ${Buffer.alloc(20)}, 18, 18, 0, 0,
        ${backfillNumber}, ${later(0)})`);
  const statesLeft = async () => {
    const rows = await database().query<{ pair_id: number; block_number: number }>(
      sql`select pair_id, block_number from pair_state order by 1, 2 limit 100`,
    );
    return rows.map(({ pair_id, block_number }) => [pair_id, block_number]);
  };
  const swapsLeft = async () => {
    const rows = await database().query<{ block_number: number }>(
      sql`select block_number from swap order by 1 limit 100`,
    );
    return rows.map(({ block_number }) => block_number);
  };
  const volumes = async () => {
    const range = { from: later(-HOUR_MS), to: later(10 * HOUR_MS), limit: 100 };
    const hours = await listVolumeHours(database(), PAIR, range);
    return hours.map(({ usdValue, swapCount }) => [decimalText(usdValue), swapCount]);
  };

  test('only the last state of a past, final hour stays, and all states of other hours', async () => {
    const minutes = [0, 10, 50, 60, 61, 119, 121];
    await isFinal(61);
    await database().transaction((tx) => insertPairStates(tx, minutes.map(stateOf)));
    await database().transaction((tx) => insertPairStates(tx, [{ ...stateOf(5), pairId: OTHER }]));
    const range = { from: later(-1e9), before: later(121 * MINUTE_MS), limit: 1 };
    while ((await prunePairStates(database(), range)) > 0);
    assert.deepEqual(await statesLeft(), [...[50, 61, 119, 121].map((number) => [PAIR, number]), [OTHER, 5]]);
  });

  test('a state stays while a reorg may still orphan the last one of its hour', async () => {
    await isFinal(10);
    await database().transaction((tx) => insertPairStates(tx, [0, 10, 50].map(stateOf)));
    const range = { from: later(-1e9), before: later(10 * HOUR_MS), limit: 10 };
    assert.equal(await prunePairStates(database(), range), 1);
    assert.deepEqual(
      await statesLeft(),
      [10, 50].map((number) => [PAIR, number]),
    );
  });

  for (const [what, liquidityK] of [
    ['a mint or burn', 1n],
    ['a change of the supply without one', undefined],
  ] as const)
    test(`${what} counts and stays until a final reading of the supply follows it`, async () => {
      await isFinal(50);
      await insertPair(PAIR);
      const reading = {
        pairId: PAIR,
        reserve0: 1n,
        reserve1: 1n,
        totalSupply: 100n,
        kLast: 0n,
        isFeeOn: false,
      };
      await database().transaction((tx) => insertReadings(tx, [reading], 5));
      await database().transaction((tx) =>
        insertPairStates(tx, [{ ...stateOf(10), supplyChange: 7n, liquidityK }, stateOf(50)]),
      );
      const supply = async () => (await findCurrentPair(database(), PAIR))?.supply?.totalSupply;
      const prune = async () => [
        await prunePairStates(database(), { from: later(-1e9), before: later(10 * HOUR_MS), limit: 10 }),
        await pruneOldPairStates(database(), { before: later(10 * HOUR_MS), limit: 10 }),
      ];
      assert.deepEqual([await prune(), await supply()], [[0, 0], 107n]);
      await database().transaction((tx) => insertReadings(tx, [{ ...reading, totalSupply: 107n }], 51));
      assert.deepEqual(await prune(), [0, 0], 'a reading that a reorg may orphan');
      await database().query(sql`update chain set finalized_number = 51`);
      assert.equal(await prunePairReadings(database(), 10), 1);
      assert.deepEqual([await prune(), await supply()], [[1, 0], 107n]);
    });

  test('of the old states, the one in force at the oldest time of responses stays', async () => {
    await isFinal(300);
    await insertPair(PAIR);
    await insertPair(OTHER);
    await database().transaction((tx) => insertPairStates(tx, [10, 100, 200, 300].map(stateOf)));
    await database().transaction((tx) => insertPairStates(tx, [{ ...stateOf(5), pairId: OTHER }]));
    const before = later(250 * MINUTE_MS);
    while ((await pruneOldPairStates(database(), { before, limit: 1 })) > 0);
    assert.deepEqual(await statesLeft(), [...[200, 300].map((number) => [PAIR, number]), [OTHER, 5]]);
    assert.equal((await findPairStateAt(database(), PAIR, before))?.blockNumber, 200);
    await database().query(sql`update chain set finalized_number = 299`);
    await pruneOldPairStates(database(), { before: later(300 * MINUTE_MS), limit: 10 });
    assert.equal((await statesLeft()).length, 3, 'the newer one is not final');
  });

  test('old final swaps are deleted, and the volume of their hour stays', async () => {
    await isFinal(3);
    await insertPair(PAIR);
    const swaps = [1, 2, 3, 4, 5].map((number) => swapOf(number, '10'));
    await database().transaction((tx) => insertSwaps(tx, swaps));
    const prune = (limit: number) =>
      pruneSwaps(database(), { before: later(5 * MINUTE_MS), unvaluedBefore: later(0), limit });
    assert.equal(await prune(2), 2);
    assert.deepEqual(await swapsLeft(), [3, 4, 5], 'oldest first');
    assert.equal(await prune(10), 1);
    assert.deepEqual(await swapsLeft(), [4, 5], 'swaps that are not final stay');
    assert.deepEqual(await volumes(), [['50', 5]]);
    await database().transaction((tx) => deleteSwapsAbove(tx, 3));
    assert.deepEqual(await volumes(), [['30', 3]], 'a reorg deletes its swaps from the volume');
  });

  test('a swap at exactly the retention time is kept', async () => {
    await isFinal(100);
    await insertPair(PAIR);
    await database().transaction((tx) => insertSwaps(tx, [swapOf(4, '1'), swapOf(5, '1')]));
    await pruneSwaps(database(), { before: later(5 * MINUTE_MS), unvaluedBefore: later(0), limit: 10 });
    assert.deepEqual(await swapsLeft(), [5]);
  });

  test('a swap without a value stays as long as its sum', async () => {
    await isFinal(100);
    await insertPair(PAIR);
    await database().transaction((tx) =>
      insertSwaps(tx, [swapOf(1, undefined), swapOf(2, '1'), swapOf(3, undefined)]),
    );
    const before = later(HOUR_MS);
    await pruneSwaps(database(), { before, unvaluedBefore: later(2 * MINUTE_MS), limit: 10 });
    assert.deepEqual(await swapsLeft(), [3]);
  });

  test('during the backfill of a pair nothing of it is deleted, and nothing counts twice', async () => {
    await isFinal(100);
    await insertPair(PAIR, 2);
    await database().transaction((tx) => insertSwaps(tx, [swapOf(1, '1')]));
    const before = later(HOUR_MS);
    assert.equal(await pruneSwaps(database(), { before, unvaluedBefore: before, limit: 10 }), 0);
  });

  test('an old sum is deleted, but not before its swaps', async () => {
    await isFinal(100);
    await insertPair(PAIR);
    await database().transaction((tx) =>
      insertSwaps(
        tx,
        [1, 6, 11].map((number) => swapOf(number, '1')),
      ),
    );
    const before = later(10 * MINUTE_MS);
    assert.equal(await pruneSwapVolumes(database(), { before, limit: 10 }), 0);
    await pruneSwaps(database(), { before, unvaluedBefore: before, limit: 10 });
    assert.equal(await pruneSwapVolumes(database(), { before, limit: 1 }), 1);
    assert.deepEqual(await volumes(), [['2', 2]]);
    assert.equal(await pruneSwapVolumes(database(), { before, limit: 10 }), 1);
    assert.deepEqual(await volumes(), [['1', 1]]);
  });
});

/** Block n is mined n minutes after noon. */
function stateOf(blockNumber: number): PairStateChange {
  return {
    ...{ pairId: PAIR, blockNumber, minedAt: later(blockNumber * MINUTE_MS), reserve0: 1n, reserve1: 1n },
    ...{ price: decimal('1'), supplyChange: 0n, liquidityK: undefined },
  };
}

function swapOf(blockNumber: number, usd: string | undefined): PricedSwap {
  return {
    ...{
      pairId: PAIR,
      blockNumber,
      minedAt: later(blockNumber * MINUTE_MS),
      txHash: hashOf(blockNumber),
      ordinal: 0,
      logIndex: 0,
    },
    ...{ amount0In: 1n, amount1In: 0n, amount0Out: 0n, amount1Out: 1n },
    price: usd === undefined ? undefined : { usdValue: decimal(usd), priceId: undefined },
  };
}
