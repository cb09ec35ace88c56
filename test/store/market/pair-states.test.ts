/**
 * States of pairs, and the prices over time that follow from them.
 */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { decimal, decimalText } from '../../../src/core/decimal.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { findCurrentPair, insertReadings, listReadings } from '../../../src/store/market/pair-readings.ts';
import {
  deletePairStatesAbove,
  findAveragePairPrice,
  findLatestPairPrice,
  findPairStateAt,
  insertPairStates,
  listLatestPairStates,
  type PairStateChange,
} from '../../../src/store/market/pair-states.ts';
import { headerOf, later, mine } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { addFollowedPair } from '../../kit/pair-story.ts';

const PAIR = 1;

onSampledDatabase(import.meta.url, ({ database }) => {
  beforeEach(() => addFollowedPair(database(), PAIR));

  test('the newest block decides the price of a pair', async () => {
    await database().transaction((tx) =>
      insertPairStates(tx, [stateOf(10, '0.5'), stateOf(12, '0.25'), stateOf(11, '3')]),
    );
    assert.equal(textOf(await findLatestPairPrice(database(), PAIR)), '0.25');
    assert.equal(await findLatestPairPrice(database(), 2), undefined);
  });

  test('a pool without reserves has no price', async () => {
    await database().transaction((tx) => insertPairStates(tx, [stateOf(10, '0.5'), stateOf(11, undefined)]));
    assert.equal(await findLatestPairPrice(database(), PAIR), undefined);
  });

  test('the state of a pair at a time is the one after the newest block up to then', async () => {
    await database().transaction((tx) => insertPairStates(tx, [stateOf(10, '1'), stateOf(20, '2')]));
    const numberAt = async (ms: number) => (await findPairStateAt(database(), PAIR, later(ms)))?.blockNumber;
    assert.equal(await numberAt(9_999), undefined);
    assert.equal(await numberAt(10_000), 10);
    assert.equal(await numberAt(19_999), 10);
    assert.equal(await numberAt(20_000), 20);
  });

  test('an average weights each price by the time that it was in force', async () => {
    await database().transaction((tx) =>
      insertPairStates(tx, [stateOf(10, '1'), stateOf(20, '2'), stateOf(50, '10')]),
    );
    const average = (from: number, to: number) =>
      findAveragePairPrice(database(), PAIR, { from: later(from), to: later(to) });
    // 10 s at 1, 30 s at 2, 10 s at 10.
    assert.equal(textOf(await average(10_000, 60_000)), '3.4');
    assert.equal(textOf(await average(15_000, 25_000)), '1.5', 'a price counts from the start of the period');
    assert.equal(textOf(await average(30_000, 31_000)), '2', 'between two blocks');
    assert.equal(await average(9_000, 60_000), undefined, 'nothing is known before the first block');
  });

  test('an average counts each of the states, however many a fast chain has, and no state that was in force for no time', async () => {
    const count = 15_000;
    // Five blocks in each millisecond: only the last one of them is in force, and the others have no reserves.
    await database().query(sql`
      insert into pair_state (pair_id, block_number, mined_at, reserve0, reserve1, price, supply_change)
      select ${PAIR}, n, ${later(0)}::timestamptz + n / 5 * interval '1 ms', 1, 1,
        case when n % 5 = 4 then (n / 5)::numeric + 1e-36 end, 0
      from generate_series(0, ${count - 1}::integer) as n`);
    const average = await findAveragePairPrice(database(), PAIR, { from: later(0), to: later(count / 5) });
    // The mean of 0 to 2,999.
    assert.equal(textOf(average), '1499.500000000000000000000000000000000001');
  });

  test('a state from before the pair was followed again is no current one, and starts no average', async () => {
    await database().transaction((tx) => insertPairStates(tx, [stateOf(10, '1')]));
    const begin = (backfillNumber: number | null) =>
      database().query(sql`
        update pair set followed_from = 100, backfill_number = ${backfillNumber}, backfill_until = ${later(50_000)}`);
    const see = async () => {
      const [state] = await listLatestPairStates(database(), [PAIR]);
      const range = { from: later(70_000), to: later(110_000) };
      return [
        textOf(await findLatestPairPrice(database(), PAIR)),
        textOf((await findCurrentPair(database(), PAIR))?.price),
        textOf(state?.price),
        textOf(await findAveragePairPrice(database(), PAIR, range)),
      ];
    };
    const none = [undefined, undefined, undefined, undefined];
    assert.deepEqual(await see(), ['1', '1', '1', '1']);
    await begin(99);
    assert.deepEqual(await see(), none, 'the backfill has read nothing');
    await begin(null);
    assert.deepEqual(await see(), none, 'the backfill reads no block of before its end');
    await database().transaction((tx) => insertPairStates(tx, [stateOf(60, '2')]));
    assert.deepEqual(await see(), ['2', '2', '2', '2'], 'the backfill has found an event');
    await begin(60);
    assert.deepEqual(await see(), none);
    await database().query(sql`update pair set followed_from = null`);
    assert.deepEqual(await see(), none, 'the pair is not followed');
  });

  test('a state that was read from the contract is a current one, whatever the backfill has read', async () => {
    await database().transaction((tx) => insertPairStates(tx, [stateOf(99, '3')]));
    await database().query(sql`
      update pair set followed_from = 100, backfill_number = 99, backfill_until = ${later(200_000)}`);
    assert.equal(await findLatestPairPrice(database(), PAIR), undefined);
    const reading = { pairId: PAIR, reserve0: 1n, reserve1: 1n, totalSupply: 1n, kLast: 0n, isFeeOn: false };
    await database().transaction((tx) => insertReadings(tx, [reading], 99));
    assert.equal(textOf(await findLatestPairPrice(database(), PAIR)), '3');
  });

  test('before a pair is followed, a state that was read at the newest block is a current one until the next block', async () => {
    const read = { pairId: 7, blockNumber: 20 };
    await mine(database(), headerOf(20), []);
    await database().transaction((tx) => insertPairStates(tx, [{ ...stateOf(20, '2'), ...read }]));
    assert.equal(await findLatestPairPrice(database(), 7), undefined);
    const reading = { pairId: 7, reserve0: 1n, reserve1: 1n, totalSupply: 1n, kLast: 0n, isFeeOn: false };
    await database().transaction((tx) => insertReadings(tx, [reading], 20));
    assert.equal(textOf(await findLatestPairPrice(database(), 7)), '2');
    await mine(database(), headerOf(21), []);
    assert.equal(await findLatestPairPrice(database(), 7), undefined);
  });

  test('a reorg deletes contract readings of orphaned blocks, and the previous reading counts again', async () => {
    await database().transaction((tx) => insertPairStates(tx, [stateOf(5, '1')]));
    const reading = { pairId: PAIR, reserve0: 1n, reserve1: 1n, kLast: 0n, isFeeOn: false };
    await database().transaction((tx) => insertReadings(tx, [{ ...reading, totalSupply: 100n }], 5));
    await database().transaction((tx) => insertReadings(tx, [{ ...reading, totalSupply: 200n }], 6));
    await database().transaction((tx) => deletePairStatesAbove(tx, 5));
    assert.equal((await findCurrentPair(database(), PAIR))?.supply?.totalSupply, 100n);
  });

  test('after each change of the LP token supply, with a mint or burn or without, the contract is read again', async () => {
    const reading = { pairId: PAIR, reserve0: 1n, reserve1: 1n, totalSupply: 100n, kLast: 9n, isFeeOn: true };
    const isCurrent = async () => (await listReadings(database(), [PAIR]))[0]?.isCurrent;
    const add = (state: PairStateChange) => database().transaction((tx) => insertPairStates(tx, [state]));
    await database().transaction((tx) => insertReadings(tx, [reading], 5));
    await add(stateOf(6, '1'));
    assert.equal(await isCurrent(), true);
    await add({ ...stateOf(7, '1'), supplyChange: 20n, liquidityK: 4n });
    assert.equal(await isCurrent(), false);
    await database().transaction((tx) => insertReadings(tx, [{ ...reading, totalSupply: 120n }], 7));
    await add({ ...stateOf(8, '1'), supplyChange: -30n });
    assert.equal(await isCurrent(), false);
    const { supply } = (await findCurrentPair(database(), PAIR)) ?? {};
    assert.deepEqual([supply?.totalSupply, supply?.kLast], [90n, 9n]);
  });

  test('a period in which the pool was empty has no average', async () => {
    await database().transaction((tx) =>
      insertPairStates(tx, [stateOf(10, '1'), stateOf(20, undefined), stateOf(30, '1')]),
    );
    const range = { from: later(10_000), to: later(40_000) };
    assert.equal(await findAveragePairPrice(database(), PAIR, range), undefined);
  });
});

/** Block n is mined n seconds after noon. */
function stateOf(blockNumber: number, price: string | undefined): PairStateChange {
  return {
    ...{ pairId: PAIR, blockNumber, minedAt: later(blockNumber * 1000), reserve0: 1n, reserve1: 1n },
    price: price === undefined ? undefined : decimal(price),
    ...{ supplyChange: 0n, liquidityK: undefined },
  };
}

const textOf = (value: Awaited<ReturnType<typeof findLatestPairPrice>>) => value && decimalText(value);
