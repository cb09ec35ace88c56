/**
 * Compares figures of pairs with blocks and prices: data that the follower wrote is equal, and every change is found.
 */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { type CompareOptions, compareBatch, type KeptSince } from '../../src/audit/compare-batch.ts';
import { comparePrices, compareSums } from '../../src/audit/compare-sums.ts';
import { decimal } from '../../src/core/decimal.ts';
import type { PairEvents, ValuedPair } from '../../src/domain/pair.ts';
import { createMarketProcessor } from '../../src/ingest/pairs/market.ts';
import type { ReadBlock } from '../../src/ingest/read-block.ts';
import { applyRepairs } from '../../src/store/audit/apply-repairs.ts';
import { commitBlocks } from '../../src/store/blocks/blocks.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import { insertRound, type SourceReport } from '../../src/store/prices/price-rounds.ts';
import { insertPrice } from '../../src/store/prices/prices.ts';
import { addressOf, hashOf, headerOf, later } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';

const BLOCKS = 4;
/** Long enough after all prices that the commit certainly saw them. */
const stored = later(60_000);

const fed: ValuedPair = {
  ...{ id: 1, name: 'RWD/ETH', address: addressOf(11), token0: addressOf(21), token1: addressOf(20) },
  ...{ token0Decimals: 18, token1Decimals: 18, fee: 300, usdValueFrom: 1, rewardPid: 0 },
  ...{ value0: undefined, value1: { asset: 'ETH' }, areIndependent: false },
};
const fixed: ValuedPair = { ...fed, id: 2, address: addressOf(12), value1: { fixed: decimal('0.5') } };

/** A swap of each pair in each block but the last, after which nothing happens. */
const blocks: ReadBlock[] = Array.from({ length: BLOCKS }, (_, index) => {
  const number = index + 1;
  const eventsOf = ({ id }: ValuedPair): PairEvents => ({
    pairId: id,
    swaps: [
      {
        ...{ txHash: hashOf(0x5000 + number * 8 + id), ordinal: 0, logIndex: id },
        ...{ amount0In: 0n, amount1In: 10n ** 18n, amount0Out: 5n, amount1Out: 0n },
      },
    ],
    reserves: { reserve0: 1000n, reserve1: 2000n + BigInt(number) },
    supplyChange: 3n,
    liquidityK: 7n,
  });
  return {
    ...{ header: headerOf(number), proved: true, traced: true, transfers: [], activities: [] },
    pairEvents: number === BLOCKS ? [] : [fed, fixed].map(eventsOf),
  };
});

const options: CompareOptions & KeptSince = {
  ...{ isProofOn: true, confirmations: 0, retryDelayMs: () => 60_000, pairs: [fed, fixed] },
  rules: { listeners: [], accruals: new Map(), referral: undefined },
  ...{ keptSince: later(0), swapsKeptSince: later(0), statesKeptSince: later(0) },
};

onSampledDatabase(import.meta.url, ({ database }) => {
  const price = (usd: string, ms: number) =>
    insertPrice(database(), { asset: 'ETH', price: decimal(usd), observedAt: later(ms), source: 'test' });
  const change = (statement: Sql) => database().query(statement);

  async function follow(): Promise<void> {
    const processor = createMarketProcessor([fed, fixed], createTestClock());
    await commitBlocks(database(), {
      ...{ expectedTip: undefined, blocks, confirmations: 0, finalizedNumber: 0, now: stored },
      also: (tx) => processor.write(tx, blocks),
    });
  }

  beforeEach(async () => {
    await price('1800', 0);
    await price('2000', 2_000);
    await follow();
  });

  async function compare(parts: Partial<typeof options> = {}, read = blocks) {
    const compared = await compareBatch(database(), read, { ...options, ...parts });
    assert.ok(compared !== 'too many');
    const outline = compared.outcomes.map((outcome) =>
      typeof outcome === 'string' ? outcome : `${outcome.kind} in ${outcome.block}`,
    );
    const messages = compared.outcomes.flatMap((one) => (typeof one === 'string' ? [] : [one.message]));
    return { swaps: compared.swaps, outline, message: messages.join('\n') };
  }

  const sums = () =>
    compareSums(database(), {
      ...{ pairs: [fed, fixed], swapsKeptSince: later(-3_600_000), block: BLOCKS },
      ...{ first: headerOf(1).minedAt, last: headerOf(BLOCKS).minedAt },
    });

  test('swaps, values, states and volumes that the follower wrote are equal', async () => {
    assert.deepEqual(await compare(), { swaps: 6, outline: [], message: '' });
    assert.deepEqual(await sums(), []);
  });

  for (const [name, statement, message] of [
    [
      'another value',
      sql`update swap set usd_value = 17`,
      /value of swap 0 of .*: 17 USD is stored, 1800 is calculated/,
    ],
    [
      'another price',
      sql`update swap set price_id = 2, usd_value = 2000`,
      /price 2 of ETH was used, 1 was in force/,
    ],
    ['a price that does not exist', sql`update swap set price_id = 99`, /its price 99 does not exist/],
    [
      'no value',
      sql`update swap set usd_value = null, price_id = null`,
      /has no value, but price 1 of ETH was/,
    ],
  ] as const)
    test(`a swap with ${name} is found`, async () => {
      await change(sql`${statement} where block_number = 1 and pair_id = 1`);
      const { swaps, outline, message: told } = await compare();
      assert.deepEqual([swaps, outline], [5, ['changed in 1']]);
      assert.match(told, message);
    });

  test('a swap of a token with a fixed price has that value', async () => {
    await change(sql`update swap set usd_value = 0.25 where block_number = 2 and pair_id = 2`);
    const { outline, message } = await compare();
    assert.deepEqual(outline, ['changed in 2']);
    assert.match(message, /0\.25 USD is stored, 0\.5 is calculated/);
  });

  test('a value by another configuration, or by a price that arrived with the block, is not judged', async () => {
    const other = { ...fed, value1: { asset: 'WETH' } };
    assert.deepEqual((await compare({ pairs: [other, fixed] })).outline, Array(3).fill('valued_otherwise'));
    const { outline } = await compare({ pairs: [fed, { ...fixed, value1: { asset: 'ETH' } }] });
    assert.deepEqual(outline, Array(3).fill('valued_otherwise'));
    // Observed less than 10 s before its commit: the commit may not have seen it.
    await price('2100', 2_500);
    await change(sql`update block set stored_at = ${later(12_500)} where number = 3`);
    assert.deepEqual((await compare()).outline, ['price_new']);
    await change(sql`update block set stored_at = ${later(12_501)} where number = 3`);
    assert.deepEqual((await compare()).outline, ['changed in 3']);
  });

  test('a swap has the next price if the price in force was too old, and a value by another maxAgeSeconds is not judged', async () => {
    const aging = { ...fed, value1: { asset: 'ETH', maxAgeMs: 500 } };
    const next = sql`update swap set price_id = 2, usd_value = 2000 where block_number = 1 and pair_id = 1`;
    await change(next);
    assert.deepEqual((await compare({ pairs: [aging, fixed] })).outline, []);
    assert.deepEqual((await compare()).outline, ['changed in 1']);
    await change(sql`update price set observed_at = ${later(-60_000)} where id = 1`);
    assert.deepEqual((await compare()).outline, ['valued_otherwise']);
    await change(sql`update swap set price_id = 1, usd_value = 1800 where block_number = 1 and pair_id = 1`);
    assert.deepEqual((await compare({ pairs: [aging, fixed] })).outline, ['valued_otherwise']);
    assert.deepEqual((await compare()).outline, []);
  });

  for (const [field, value] of [
    ['reserve0', sql`reserve0 = 1`],
    ['reserve1', sql`reserve1 = 1`],
    ['price', sql`price = 1`],
    ['price', sql`price = null`],
    ['supplyChange', sql`supply_change = 0`],
    ['liquidityK', sql`liquidity_k = null`],
    ['minedAt', sql`mined_at = ${later(1)}`],
  ] as const)
    test(`a state with another ${field} is found (${value.text})`, async () => {
      await change(sql`update pair_state set ${value} where block_number = 2 and pair_id = 2`);
      const { outline, message } = await compare();
      assert.deepEqual(outline, ['changed in 2']);
      assert.match(message, new RegExp(`state of pair 2: ${field} .* is stored, .* is on the chain$`));
    });

  test('a state that is missing is found, unless only the last of its hour is kept', async () => {
    await change(sql`delete from pair_state where block_number = 2 and pair_id = 2`);
    assert.deepEqual((await compare()).outline, ['missing in 2']);
    assert.deepEqual((await compare({ statesKeptSince: headerOf(3).minedAt })).outline, ['pruned']);
  });

  test('a state of a block without an event was read from the contract, if the last event left it so', async () => {
    const invent = (reserve1: bigint, supplyChange: bigint) =>
      change(sql`
        insert into pair_state (pair_id, block_number, mined_at, reserve0, reserve1, price, supply_change)
        values (1, ${BLOCKS}, ${headerOf(BLOCKS).minedAt}, 1000, ${String(reserve1)}::numeric, 2,
          ${String(supplyChange)}::numeric)
        on conflict (pair_id, block_number) do update
          set reserve1 = excluded.reserve1, supply_change = excluded.supply_change`);
    const left = 2000n + BigInt(BLOCKS - 1);
    await invent(left, 0n);
    assert.deepEqual((await compare()).outline, ['state_read']);
    await invent(left, 1n);
    assert.deepEqual((await compare()).outline, [`unexpected in ${BLOCKS}`]);
    await invent(left + 1n, 0n);
    assert.deepEqual((await compare()).outline, [`unexpected in ${BLOCKS}`]);
  });

  test('a state of a block without an event is compared with the one stored before these blocks', async () => {
    const last = blocks.slice(-1);
    await change(sql`
      insert into pair_state (pair_id, block_number, mined_at, reserve0, reserve1, price, supply_change)
      values (1, ${BLOCKS}, ${headerOf(BLOCKS).minedAt}, 1000, ${2000 + BLOCKS}, 2, 0)`);
    assert.deepEqual((await compare({}, last)).outline, [`unexpected in ${BLOCKS}`]);
    const { outline } = await compare({ statesKeptSince: later((BLOCKS + 1) * 1000) }, last);
    assert.deepEqual(outline, ['state_read'], 'the one before may have been deleted');
    await change(sql`update pair_state set reserve1 = ${2000 + BLOCKS - 1} where block_number = ${BLOCKS}`);
    assert.deepEqual((await compare({}, last)).outline, ['state_read']);
    await change(sql`update pair_state set reserve1 = 9 where block_number = ${BLOCKS}`);
    await change(
      sql`update pair set followed_from = ${BLOCKS}, backfill_until = ${later(BLOCKS * 1000 - 1)}`,
    );
    assert.deepEqual((await compare({}, last)).outline, ['state_read'], 'the one before is not covered');
  });

  for (const [name, statement] of [
    ['another value', sql`update swap_volume set usd_value = usd_value + 1 where pair_id = 1`],
    ['another count', sql`update swap_volume set swap_count = swap_count + 1 where pair_id = 1`],
    ['no row', sql`delete from swap_volume where pair_id = 1`],
    [
      'swaps that never were',
      sql`insert into swap_volume values (1, ${later(-300_000)}, 5, 1), (1, ${later(86_400_000)}, 5, 1)`,
    ],
  ] as const)
    test(`a volume with ${name} is found, and recomputed`, async () => {
      const before = await change(sql`select * from swap_volume order by pair_id, started_at`);
      await change(statement);
      // Of the invented ones only that within the time of the blocks is compared.
      const wrong = await compareSums(database(), {
        ...{ pairs: [fed, fixed], swapsKeptSince: later(-3_600_000), block: BLOCKS },
        ...{ first: later(-300_000), last: headerOf(BLOCKS).minedAt },
      });
      assert.deepEqual(
        wrong.map(({ kind, block }) => [kind, block]),
        [['sum', BLOCKS]],
      );
      assert.match(
        wrong[0]?.message ?? '',
        /^sum: volume of pair 1 from 2025-\S+: (?:none|.* in \d+ swaps?) stored, (?:none|.* in \d+ swaps?) calculated$/,
      );
      const repairs = wrong.flatMap((one) => one.repairs ?? []);
      const applied = await applyRepairs(database(), repairs, {
        confirmations: 0,
        mayCreditTwice: false,
        readNow: async () => stored,
      });
      assert.equal(applied.size, 1);
      assert.deepEqual(await sums(), []);
      const rows = await change(
        sql`select * from swap_volume where started_at < ${later(3_600_000)} order by pair_id, started_at`,
      );
      assert.deepEqual(rows, before);
    });

  test('a volume whose swaps may have been deleted is not compared', async () => {
    await change(sql`delete from swap`);
    const side = { pairs: [fed, fixed], block: BLOCKS, first: later(0), last: later(4_000) };
    assert.equal((await compareSums(database(), { ...side, swapsKeptSince: later(0) })).length, 2);
    assert.deepEqual(await compareSums(database(), { ...side, swapsKeptSince: later(1) }), []);
  });

  test('a price is the median of the observations used for it; without any it is only counted', async () => {
    const observed = (usd: string): SourceReport => ({
      ...{ source: `s${usd}`, price: decimal(usd), conf: undefined, observedAt: later(2_500) },
      ...{ verdict: 'used', message: undefined },
    });
    const round = {
      asset: 'ETH',
      at: later(2_500),
      reports: [observed('10'), observed('20')],
      price: decimal('15'),
      ...{ isAgreed: true, isDisputed: false },
    };
    await insertRound(database(), round, undefined);
    const compare = () =>
      comparePrices(database(), {
        ...{ assets: ['ETH'], block: BLOCKS, first: headerOf(1).minedAt, last: headerOf(BLOCKS).minedAt },
      });
    // Those of 0 and 2 s were given without observations; the first of them is in force at the first block.
    assert.deepEqual(await compare(), { differences: [], unobserved: 2 });
    await change(sql`update price set price = 16 where id = 3`);
    const { differences } = await compare();
    assert.deepEqual(
      differences.map(({ kind, message }) => [kind, message]),
      [['changed', 'changed: price 3 of ETH: 16 is stored, its observations give 15']],
    );
  });
});
