/**
 * Data of pairs that is written with a block. A swap has its value at the time of its block.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decimal } from '../../../src/core/decimal.ts';
import type { PairEvents, ValuedPair } from '../../../src/domain/pair.ts';
import type { BlockProcessor } from '../../../src/ingest/block-processor.ts';
import { createMarketProcessor } from '../../../src/ingest/pairs/market.ts';
import { createSwapValuer } from '../../../src/ingest/pairs/swap-values.ts';
import type { Database, Tx } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { listPairCoverage } from '../../../src/store/market/pairs.ts';
import { insertPrice } from '../../../src/store/prices/prices.ts';
import { addressOf, hashOf, headerOf, later, mine, noon } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { rollbackTo } from '../../kit/rollback.ts';

const ONE = 10n ** 18n;
const { signal } = new AbortController();
const clock = createTestClock();

const native: ValuedPair = {
  ...{ id: 1, name: 'RWD/ETH', address: addressOf(11), token0: addressOf(21), token1: addressOf(20) },
  ...{ token0Decimals: 18, token1Decimals: 18, fee: 300, usdValueFrom: 1, rewardPid: 0 },
  ...{ value0: undefined, value1: { asset: 'ETH' }, areIndependent: false },
};
const stable: ValuedPair = {
  ...{ ...native, id: 2, address: addressOf(12), token0Decimals: 6, usdValueFrom: 0 },
  value0: { fixed: decimal('0.5') },
};
const unvalued: ValuedPair = { ...native, id: 3, address: addressOf(13), value1: undefined };
const pairs = [native, stable, unvalued];

onSampledDatabase(import.meta.url, ({ database }) => {
  const price = (usd: string, ms: number) =>
    insertPrice(database(), { asset: 'ETH', price: decimal(usd), observedAt: later(ms), source: 'test' });
  const values = () =>
    database().query<{ block: number; pair: number; usd: string | null; price: number | null }>(sql`
      select block_number as block, pair_id as pair, trim_scale(usd_value)::text as usd, price_id as price
      from swap order by 1, 2 limit 100`);

  test('a swap keeps the value by the price in force at the time of its block', async () => {
    const processor = createMarketProcessor(pairs, clock);
    await price('1800', 0);
    await price('2000', 10_000);
    for (const number of [9, 10, 18]) await write(database(), processor, number, [native]);
    // A price observed later for an earlier time changes no stored value.
    await price('9999', 8_000);
    assert.deepEqual(await values(), [
      { block: 9, pair: 1, usd: '5400', price: 1 },
      { block: 10, pair: 1, usd: '6000', price: 2 },
      { block: 18, pair: 1, usd: '6000', price: 2 },
    ]);
  });

  test('a token with a fixed price needs no feed, and a token without a price is worth 0', async () => {
    const processor = createMarketProcessor(pairs, clock);
    await write(database(), processor, 1, [stable, unvalued]);
    assert.deepEqual(await values(), [
      { block: 1, pair: 2, usd: '1500000000000', price: null },
      { block: 1, pair: 3, usd: '0', price: null },
    ]);
  });

  test('swaps before the first price are valued once, with that price', async () => {
    const processor = createMarketProcessor(pairs, clock);
    const valuer = createSwapValuer({ database: database(), pairs });
    await write(database(), processor, 1, pairs);
    assert.equal(await valuer(signal), 'idle');
    assert.equal((await values())[0]?.usd, null);
    await price('2000', 60_000);
    await price('3000', 70_000);
    assert.equal(await valuer(signal), 'worked');
    assert.equal(await valuer(signal), 'idle');
    assert.deepEqual((await values())[0], { block: 1, pair: 1, usd: '6000', price: 1 });
  });

  test('swaps that waited for a price are valued when their feed is replaced by a fixed one', async () => {
    await write(database(), createMarketProcessor(pairs, clock), 1, [native]);
    const unpriced = createSwapValuer({ database: database(), pairs: [{ ...native, value1: undefined }] });
    assert.equal(await unpriced(signal), 'idle');
    const valuer = createSwapValuer({
      ...{ database: database(), pairs: [{ ...native, value1: { fixed: decimal('2') } }] },
    });
    assert.equal(await valuer(signal), 'worked');
    assert.equal(await valuer(signal), 'idle');
    assert.deepEqual(await values(), [{ block: 1, pair: 1, usd: '6', price: null }]);
  });

  test('with maxAgeSeconds, a swap is valued by a price that was not too old, or else by the next one', async () => {
    const aging = { ...native, value1: { asset: 'ETH', maxAgeMs: 5_000 } };
    const processor = createMarketProcessor([aging], clock);
    const valuer = createSwapValuer({ database: database(), pairs: [aging] });
    await price('1800', 0);
    for (const number of [5, 6, 20]) await write(database(), processor, number, [native]);
    const told = async () => (await values()).map(({ block, price: id }) => [block, id]);
    assert.deepEqual(await told(), [
      [5, 1],
      [6, null],
      [20, null],
    ]);
    assert.equal(await valuer(signal), 'idle');
    await price('2000', 10_000);
    assert.equal(await valuer(signal), 'worked');
    assert.equal(await valuer(signal), 'idle');
    assert.deepEqual(await told(), [
      [5, 1],
      [6, 2],
      [20, null],
    ]);
  });

  test('a reorg deletes swaps and states above the ancestor and stores those of the new branch', async () => {
    const processor = createMarketProcessor(pairs, clock);
    await price('1', 0);
    for (const number of [1, 2, 3]) await write(database(), processor, number, [native]);
    await undo(database(), processor, { from: 3, to: 1 });
    await write(database(), processor, 2, [native, stable]);
    assert.deepEqual(
      (await values()).map(({ block, pair }) => [block, pair]),
      [
        [1, 1],
        [2, 1],
        [2, 2],
      ],
    );
    const [left] = await database().query(sql`select count(*) as states from pair_state`);
    assert.deepEqual(left, { states: 3 });
  });

  const followedFrom = async () => {
    const coverage = await listPairCoverage(
      database(),
      pairs.map(({ id }) => id),
    );
    return coverage.map(({ pairId, followedFrom: number }) => [pairId, number]);
  };

  test('a pair whose followed blocks are all orphaned starts again with the next block', async () => {
    await write(database(), createMarketProcessor([stable], clock), 5, []);
    const processor = createMarketProcessor([stable, native], clock);
    await write(database(), processor, 6, [native]);
    await write(database(), processor, 7, [native]);
    assert.deepEqual(await followedFrom(), [
      [1, 6],
      [2, 5],
    ]);
    await undo(database(), processor, { from: 7, to: 5 });
    assert.deepEqual(await followedFrom(), [[2, 5]]);
    await undo(database(), processor, { from: 5, to: 4 });
    await write(database(), processor, 5, [native]);
    assert.deepEqual(await followedFrom(), [
      [1, 5],
      [2, 5],
    ]);
  });

  test("a follower that undoes another one's blocks reads again which pairs are followed", async () => {
    const processor = createMarketProcessor([native], clock);
    await write(database(), processor, 5, [native]);
    await write(database(), createMarketProcessor([], clock), 6, []);
    await undo(database(), processor, { from: 6, to: 5 });
    await write(database(), processor, 6, [native]);
    assert.deepEqual(await followedFrom(), [[1, 6]]);
  });

  test('a follower whose last block was replaced by another one reads again which pairs are followed', async () => {
    const processor = createMarketProcessor([native], clock);
    await write(database(), processor, 5, [native]);
    // The other one follows another block 5, without the pair.
    const other = createMarketProcessor([], clock);
    const replaced = { ...headerOf(5), hash: hashOf(0x5005) };
    await database().transaction((tx) => other.write(tx, [{ ...blockOf(5, []), header: replaced }]));
    const next = { ...headerOf(6), parentHash: replaced.hash };
    await database().transaction((tx) => processor.write(tx, [{ ...blockOf(6, [native]), header: next }]));
    assert.deepEqual(await followedFrom(), [[1, 6]]);
  });

  test('a follower whose commit failed, and was made by another one without its pair, begins the pair with the next block', async () => {
    const processor = createMarketProcessor([native], clock);
    await write(database(), processor, 5, [native]);
    const failed = database().transaction(async (tx) => {
      await processor.write(tx, [blockOf(6, [native])]);
      throw new Error('the server is gone');
    });
    await assert.rejects(failed, /the server is gone/);
    await write(database(), createMarketProcessor([], clock), 6, []);
    await write(database(), processor, 7, [native]);
    assert.deepEqual(await followedFrom(), [[1, 7]]);
  });

  test('without configured pairs, the database is queried only for the first block', async () => {
    const processor = createMarketProcessor([], clock);
    let asked = 0;
    const counting: Tx = {
      kind: 'transaction',
      query: async <Row>(statement: Parameters<Database['query']>[0]) => {
        asked += 1;
        return database().query<Row>(statement);
      },
    };
    for (const number of [1, 2, 3]) {
      await processor.write(counting, [blockOf(number, [])]);
      processor.committed?.();
    }
    assert.equal(asked, 1);
  });
});

async function write(
  database: Database,
  processor: BlockProcessor,
  number: number,
  traded: readonly ValuedPair[],
): Promise<void> {
  const also = (tx: Parameters<BlockProcessor['write']>[0]) => processor.write(tx, [blockOf(number, traded)]);
  const committed = await mine(database, headerOf(number), [], { also });
  assert.equal(committed.outcome, 'committed');
  processor.committed?.();
}

async function undo(
  database: Database,
  processor: BlockProcessor,
  { from, to }: { from: number; to: number },
): Promise<void> {
  const also = (tx: Parameters<BlockProcessor['undo']>[0]) => processor.undo(tx, to);
  const undone = await rollbackTo(database, {
    ancestorNumber: to,
    expectedTip: headerOf(from),
    now: noon,
    also,
  });
  assert.equal(undone, from - to);
}

/** In each pair one coin goes in and two come out, of both tokens. */
function blockOf(number: number, traded: readonly ValuedPair[]) {
  const pairEvents = traded.map(({ id }): PairEvents => {
    const amounts = { amount0In: ONE, amount1In: ONE, amount0Out: 2n * ONE, amount1Out: 2n * ONE };
    const swaps = [{ txHash: hashOf(number * 10 + id), ordinal: 0, logIndex: id, ...amounts }];
    const reserves = { reserve0: 5n * ONE, reserve1: ONE };
    return { pairId: id, swaps, reserves, supplyChange: 0n, liquidityK: undefined };
  });
  return { header: headerOf(number), proved: true, traced: false, transfers: [], activities: [], pairEvents };
}
