/**
 * The whole service over twelve real mainnet blocks with every pair that was traded in them: swaps, volumes, reserves, prices
 * and LP supplies against those of an independent reading of the same logs.
 */
import assert from 'node:assert/strict';
import { type Service, startService } from '../../src/app/service.ts';
import { loadConfig } from '../../src/config/load.ts';
import { decimal, decimalText } from '../../src/core/decimal.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Pair } from '../../src/domain/pair.ts';
import { findTip } from '../../src/store/blocks/blocks.ts';
import { sql } from '../../src/store/db/sql.ts';
import { findCurrentPair } from '../../src/store/market/pair-readings.ts';
import { insertPrice } from '../../src/store/prices/prices.ts';
import { createTestDatabase, type DatabaseKind } from '../kit/database.ts';
import { startPairNode } from '../kit/pair-node.ts';
import { readRealchain, startReplay, testWithRealchain } from '../kit/replay.ts';
import { SECRET } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const FIRST = 17_686_110;
const LAST = 17_686_121;
const NATIVE_USD = 1900n;
const WRAPPED = '0xc02aaa39b223fe8d0a0e5c4f27ead9083c756cc2';
const STABLE = {
  USDC: { address: '0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48', decimals: 6, usd: 1 },
  USDT: { address: '0xdac17f958d2ee523a2206206994597c13d831ec7', decimals: 6, usd: 1 },
  DAI: { address: '0x6b175474e89094c44da98b954eedeac495271d0f', decimals: 18, usd: 1 },
} as const;

type Amounts = { a0in: string; a1in: string; a0out: string; a1out: string };

/** One pair of the reference. */
type Expected = {
  pair: Address;
  token0: Address | null;
  token1: Address | null;
  decimals0: number | null;
  decimals1: number | null;
  sum: Amounts;
  lastSync: { block: number; reserve0: string; reserve1: string };
  events: (Amounts & { block: number; hash: Hash; logIndex: number })[];
  price_token0_per_token1?: number;
  price_token1_per_token0?: number;
  vol_usd_from_token0_stable?: number;
  vol_usd_from_token1_stable?: number;
  vol_usd_from_token1_at_1900?: number;
  totalSupplyChanges?: { block: number; old: string; new: string }[];
  totalSupplyLast?: string;
  lp_usd_at_1900_two_times_native_side?: number;
};

const cases: { how: string; kind: DatabaseKind; startHead: number; preferred: 0 | 1; first: number }[] = [
  { how: 'followed', kind: 'embedded', startHead: FIRST, preferred: 1, first: FIRST },
  { how: 'backfilled', kind: 'postgres', startHead: LAST, preferred: 0, first: LAST },
];

for (const { how, kind, startHead, preferred, first } of cases) {
  testWithRealchain(
    `every pair of twelve real blocks has its real figures when the blocks are ${how}`,
    async (folder) => {
      await using parts = new AsyncDisposableStack();
      const { pairs: reference } = readRealchain<{ pairs: Expected[] }>(folder, 'expected/v2-pairs.json');
      const configured = reference.map((pair, index) => pairOf(pair, index, preferred));
      const run = `${FIRST}-${LAST}`;
      const replay = parts.use(await startReplay(folder, { run, startHead, now: true }));
      const numberOf = new Map(
        Array.from({ length: LAST - FIRST + 1 }, (_, index) => FIRST + index).map((number) => [
          readRealchain<{ hash: Hash }>(folder, `semiotic/${number}.block.json.gz`).hash,
          number,
        ]),
      );
      // Only the state at the first followed block can be read. After it, the state must come from logs.
      const node = await startPairNode(replay.url, configured, (pair, blockHash) => {
        const of = reference[pair.id - 1];
        return of !== undefined && numberOf.get(blockHash) === first ? poolAt(of, first) : undefined;
      });
      parts.use(node);
      const place = parts.use(await createTestDatabase(kind));
      await insertNativePrice(place);

      await using service = await start(place, node.url, configured);
      for (let number = first; number < LAST; number += 1) {
        await waitUntil(async () => (await findTip(service.database))?.number === number, {
          describe: `block ${number} to be committed`,
        });
        if (number === first) await waitForReadings(service, configured.length);
        await replay.advance();
      }
      await waitForSwaps(service, reference.flatMap(({ events }) => events).length);
      await waitForReadings(service, configured.length);
      for (const [index, pair] of configured.entries()) {
        const expected = reference[index];
        assert.ok(expected !== undefined);
        await checkSwaps(service, pair, expected);
        await checkVolume(service, pair, expected);
        await checkState(service, pair, expected, first);
      }
    },
  );
}

/** A pair whose valued side has a price. If both sides have one, it is the preferred side. */
function pairOf(of: Expected, index: number, preferred: 0 | 1): Pair {
  const fake = (side: number): Address => `0x${(2 * index + side + 1).toString(16).padStart(40, '0')}`;
  const [token0, token1] = [of.token0 ?? fake(0), of.token1 ?? fake(1)];
  const [isPriced0, isPriced1] = [isPriced(token0), isPriced(token1)];
  const usdValueFrom = isPriced0 && isPriced1 ? preferred : isPriced0 ? 0 : 1;
  return {
    ...{ id: index + 1, name: `PAIR ${index + 1}`, address: of.pair, token0, token1 },
    ...{ token0Decimals: of.decimals0 ?? 18, token1Decimals: of.decimals1 ?? 18 },
    ...{ fee: 300, usdValueFrom, rewardPid: index },
  };
}

const isStable = (token: Address) => Object.values(STABLE).some(({ address }) => address === token);
const isPriced = (token: Address) => token === WRAPPED || isStable(token);

/** The state of a pool. Reserves before the first Sync may have any value. The supply is that after the first block. */
function poolAt({ lastSync, totalSupplyChanges = [], totalSupplyLast }: Expected, number: number) {
  const known = lastSync.block <= number ? lastSync : undefined;
  const reserves = { reserve0: BigInt(known?.reserve0 ?? 1), reserve1: BigInt(known?.reserve1 ?? 1) };
  const before = totalSupplyChanges.filter(({ block }) => block <= number).at(-1)?.new;
  const totalSupply = BigInt(before ?? totalSupplyChanges[0]?.old ?? totalSupplyLast ?? 1);
  return { ...reserves, totalSupply };
}

async function insertNativePrice(place: Awaited<ReturnType<typeof createTestDatabase>>): Promise<void> {
  const database = await place.open();
  const observedAt = new Date(Date.now() - 3_600_000);
  const price = { asset: 'ETH', price: decimal(NATIVE_USD), observedAt, source: 'test' };
  await insertPrice(database, price);
  await database.close();
}

async function start(
  { url, dataDir }: { url: string; dataDir: string },
  rpc: string,
  pairs: readonly Pair[],
): Promise<Service & AsyncDisposable> {
  const config = loadConfig({
    env: {},
    overrides: {
      chain: {
        ...{ id: 1, rpc: [rpc], native: { symbol: 'ETH', wrapped: WRAPPED } },
        // A header with a changed time can't be proved.
        ...{ internalTransfers: 'off', verify: 'off' },
      },
      database: { url },
      ...{
        dataDir,
        secret: SECRET,
        http: { port: 0 },
        metrics: { port: 0 },
        tokens: STABLE,
        pairs: [...pairs],
        prices: { native: { sources: [{ type: 'fixed', price: String(NATIVE_USD) }] } },
      },
    },
  });
  const service = await startService(config, { log: silentLog(), roles: ['api', 'follower'] });
  void service.failed.then((bug) => {
    throw bug;
  });
  return { ...service, [Symbol.asyncDispose]: () => service.stop() };
}

async function waitForReadings({ database }: Service, count: number): Promise<void> {
  const isRead = async () => {
    const [row] = await database.query<{ count: number }>(
      sql`select count(distinct pair_id) from pair_reading`,
    );
    return row?.count === count;
  };
  await waitUntil(isRead, { describe: 'every pair to be read' });
}

async function waitForSwaps({ database }: Service, count: number): Promise<void> {
  const isStored = async () => {
    const [row] = await database.query<{ count: number }>(sql`select count(*) from swap`);
    return row !== undefined && row.count >= count;
  };
  await waitUntil(isStored, { describe: 'every swap to be stored' });
}

async function checkSwaps({ database }: Service, { id }: Pair, { events }: Expected): Promise<void> {
  const rows = await database.query(sql`
    select block_number as block, '0x' || encode(tx_hash, 'hex') as hash, amount0_in::text as a0in,
      amount1_in::text as a1in, amount0_out::text as a0out, amount1_out::text as a1out
    from swap where pair_id = ${id} order by block_number, tx_hash, ordinal limit 1000`);
  const asText = (list: readonly object[]) => list.map((one) => JSON.stringify(one)).sort();
  const wanted = events.map(({ block, hash, a0in, a1in, a0out, a1out }) => ({
    ...{ block, hash, a0in, a1in, a0out, a1out },
  }));
  assert.deepEqual(asText(rows), asText(wanted), `swaps of pair ${id}`);
}

async function checkVolume(service: Service, pair: Pair, expected: Expected): Promise<void> {
  const { sum } = expected;
  const isFirst = pair.usdValueFrom === 0;
  const token = isFirst ? pair.token0 : pair.token1;
  const units = isFirst ? BigInt(sum.a0in) + BigInt(sum.a0out) : BigInt(sum.a1in) + BigInt(sum.a1out);
  const usd = token === WRAPPED ? NATIVE_USD : isStable(token) ? 1n : 0n;
  const exact = decimal(units * usd).times(`1e-${isFirst ? pair.token0Decimals : pair.token1Decimals}`);
  const text = await (await fetch(`${service.apiUrl}/api/swap/volume/${pair.id}`)).text();
  assert.equal(text, `{"vol24h":${decimalText(exact)},"pair":"${pair.name}"}`);
  const stable = isFirst ? expected.vol_usd_from_token0_stable : expected.vol_usd_from_token1_stable;
  const told = !isFirst && token === WRAPPED ? expected.vol_usd_from_token1_at_1900 : stable;
  if (told !== undefined) assert.ok(isNear(told, Number(text.match(/:([^,]+),/)?.[1])), `${text} is ${told}`);
}

async function checkState(service: Service, pair: Pair, expected: Expected, first: number): Promise<void> {
  const { reserve0, reserve1 } = expected.lastSync;
  const now = await findCurrentPair(service.database, pair.id);
  assert.equal(now?.reserve0, BigInt(reserve0));
  assert.equal(now.reserve1, BigInt(reserve1));
  const [whole0, whole1] = [
    decimal(reserve0).times(`1e-${pair.token0Decimals}`),
    decimal(reserve1).times(`1e-${pair.token1Decimals}`),
  ];
  const isFirst = pair.usdValueFrom === 0;
  const price = isFirst ? whole0.div(whole1) : whole1.div(whole0);
  assert.equal(now.price && decimalText(now.price), decimalText(price));
  const told = isFirst ? expected.price_token0_per_token1 : expected.price_token1_per_token0;
  if (told !== undefined) assert.ok(isNear(told, Number(decimalText(price))), `price of pair ${pair.id}`);
  // The reading of the last block contains it. After the first block it must come from logs.
  if (expected.totalSupplyLast !== undefined)
    assert.equal(now.supply?.totalSupply, BigInt(expected.totalSupplyLast));
  const lp = expected.lp_usd_at_1900_two_times_native_side;
  if (lp === undefined) return;
  const { lpPriceInUsd } = (await (await fetch(`${service.apiUrl}/api/swap/lp-value/${pair.id}`)).json()) as {
    lpPriceInUsd: number;
  };
  assert.ok(isNear(lp, lpPriceInUsd), `LP value of pair ${pair.id} from ${first}`);
}

/** Tolerates rounding, because the reference has some figures as doubles. */
const isNear = (told: number, is: number) => Math.abs(told - is) <= Math.abs(told) * 1e-12;
