/**
 * Trades with a real Uniswap V2 pair. The stored data of the pair equals its contract.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type ChainNodes, createNodes } from '../../../src/chain/nodes/nodes.ts';
import { decimalText } from '../../../src/core/decimal.ts';
import { zeroAddress } from '../../../src/core/hex.ts';
import { silentLog } from '../../../src/core/log.ts';
import type { Step } from '../../../src/core/loop.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { supplyWithFee, type ValuedPair } from '../../../src/domain/pair.ts';
import { createFollower } from '../../../src/ingest/follow.ts';
import { createMarketProcessor } from '../../../src/ingest/pairs/market.ts';
import { createPairBackfill } from '../../../src/ingest/pairs/pair-backfill.ts';
import { createPairReader } from '../../../src/ingest/pairs/pair-events.ts';
import { createPairReadings } from '../../../src/ingest/pairs/pair-readings.ts';
import { extractNothing } from '../../../src/ingest/read-block.ts';
import { findTip } from '../../../src/store/blocks/blocks.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { findCurrentPair } from '../../../src/store/market/pair-readings.ts';
import { sumSwapValue } from '../../../src/store/market/swaps.ts';
import { startNodeProxy } from '../../faults/node-proxy.ts';
import { type Chain, startChain } from '../../kit/anvil.ts';
import { createTestClock, type TestClock } from '../../kit/clock.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { emptyDatabase } from '../../kit/empty-tables.ts';
import { noChecks } from '../../kit/follower.ts';
import { sampleSize } from '../../kit/sample.ts';
import { deployPair, type Side, type UniswapPair } from '../../kit/uniswap.ts';

const { signal } = new AbortController();
const ONE = 10n ** 18n;
/** The receiver of a flash swap. Its code is STOP, so it does nothing. */
const CALLEE = `0x${'ca'.repeat(20)}` as const;

type Watch = {
  database: Database;
  clock: TestClock;
  nodes: ChainNodes;
  /** Follows to the head. */
  follow(): Promise<void>;
  /** Reads the contracts until every reading is done, including the fee. */
  read(): Promise<void>;
  backfill(): Promise<void>;
};

type Action =
  | { kind: 'mint'; amount0: bigint; amount1: bigint }
  | { kind: 'burn'; permille: bigint }
  | { kind: 'swap'; side: Side; permille: bigint; isFlash: boolean; isSameSide: boolean }
  | { kind: 'fee'; isOn: boolean }
  | { kind: 'donate'; side: Side; amount: bigint }
  | { kind: 'throw away'; permille: bigint };

const amounts = fc.bigInt({ min: ONE / 1000n, max: 1000n * ONE });
const side = fc.constantFrom<Side>(0, 1);
const actions = fc.oneof(
  fc.record({ kind: fc.constant('mint' as const), amount0: amounts, amount1: amounts }),
  fc.record({ kind: fc.constant('burn' as const), permille: fc.bigInt({ min: 1n, max: 900n }) }),
  fc.record({
    ...{ kind: fc.constant('swap' as const), side, permille: fc.bigInt({ min: 1n, max: 300n }) },
    ...{ isFlash: fc.boolean(), isSameSide: fc.boolean() },
  }),
  fc.record({ kind: fc.constant('fee' as const), isOn: fc.boolean() }),
  fc.record({ kind: fc.constant('donate' as const), side, amount: amounts }),
  fc.record({ kind: fc.constant('throw away' as const), permille: fc.bigInt({ min: 1n, max: 10n }) }),
);

test('after each swap, mint, burn, flash swap and fee switch, the stored pair equals its contract', async () => {
  await using stage = await setStage();
  const { chain, pair, database } = stage;
  const [, feeTo, holder] = chain.accounts;
  await fc.assert(
    fc.asyncProperty(fc.array(actions, { minLength: 6, maxLength: 6 }), async (list) => {
      for (const action of list) {
        await using watch = openWatch(stage, [pair.configured]);
        await watch.follow();
        await watch.read();
        await checkNow(database, pair);
        const stored = await findCurrentPair(database, 1);
        assert.ok(stored?.supply !== undefined);
        const unminted = supplyWithFee(stored.supply, stored) - stored.supply.totalSupply;
        const balance = await pair.lpBalanceOf(feeTo);

        await act(stage, action, holder);
        await watch.follow();
        const now = await findCurrentPair(database, 1);
        const { totalSupply, reserve0, reserve1 } = await pair.view();
        assert.equal(
          now?.supply?.totalSupply,
          totalSupply,
          'the supply is known before the contract is read',
        );
        assert.deepEqual([now?.reserve0, now?.reserve1], [reserve0, reserve1]);
        if (action.kind === 'mint' || action.kind === 'burn')
          assert.equal((await pair.lpBalanceOf(feeTo)) - balance, unminted, 'the fee that was to be minted');
      }
    }),
    { numRuns: sampleSize(6), endOnFailure: true },
  );
  assert.equal(await volumeOf(database), volumeByLogs(await readSwaps(chain, pair)));
});

test('a reorg restores swaps, volume and state of the pair', async () => {
  await using stage = await setStage();
  const { chain, pair, database } = stage;
  const [, , holder] = chain.accounts;
  await using watch = openWatch(stage, [pair.configured]);
  await watch.follow();
  await watch.read();
  for (const permille of [10n, 20n, 30n])
    await act(stage, { kind: 'swap', side: 0, permille, isFlash: false, isSameSide: false }, holder);
  await act(stage, { kind: 'mint', amount0: ONE, amount1: ONE }, holder);
  await watch.follow();
  const before = await volumeOf(database);

  await chain.reorg(5);
  await chain.mine();
  await watch.follow();
  const after = await volumeOf(database);
  assert.notEqual(after, before);
  assert.equal(after, volumeByLogs(await readSwaps(chain, pair)));
  await watch.read();
  await checkNow(database, pair);

  await act(stage, { kind: 'swap', side: 1, permille: 5n, isFlash: false, isSameSide: false }, holder);
  await watch.follow();
  assert.equal(await volumeOf(database), volumeByLogs(await readSwaps(chain, pair)));
  await checkNow(database, pair);
});

test('of a node that accepts no block hash (EIP-1898), only answers of the stored block count', async () => {
  await using stage = await setStage();
  await using proxy = await startNodeProxy(stage.chain);
  let orphan: (() => Promise<void>) | undefined;
  proxy.inject({
    async answer({ method, params: [, block] }) {
      if (method !== 'eth_call') return undefined;
      if (typeof block === 'object') return { error: { code: -32_602, message: 'invalid argument 1' } };
      const change = orphan;
      orphan = undefined;
      await change?.();
      return undefined;
    },
  });
  await using watch = openWatch({ ...stage, chain: { ...stage.chain, url: proxy.url } }, [
    stage.pair.configured,
  ]);
  await watch.follow();
  const atNow = await stage.chain.head();
  orphan = () => stage.chain.reorg(3);
  await assert.rejects(watch.read(), { message: new RegExp(`does not have ${atNow.hash} as block`) });
  assert.equal((await findCurrentPair(stage.database, 1))?.supply, undefined);

  await stage.chain.mine();
  await watch.follow();
  await watch.read();
  await checkNow(stage.database, stage.pair);
});

test('a pair whose contract does not answer is named, and others are read', async () => {
  await using stage = await setStage();
  const mute = (await deployPair(stage.chain)).configured;
  await using proxy = await startNodeProxy(stage.chain);
  await using watch = openWatch({ ...stage, chain: { ...stage.chain, url: proxy.url } }, [
    { ...mute, id: 2, name: 'MUTE' },
    stage.pair.configured,
  ]);
  await watch.follow();
  proxy.inject({
    async answer({ params: [call] }) {
      const isMute = Object(call).to === mute.address;
      return isMute ? { error: { code: -32_000, message: 'execution aborted (timeout = 5s)' } } : undefined;
    },
  });
  await assert.rejects(watch.read(), {
    code: 'unavailable',
    message: 'the contract of pair 2 (MUTE) does not answer',
  });
  await checkNow(stage.database, stage.pair);
  proxy.mend();
  await watch.read();
  assert.ok((await findCurrentPair(stage.database, 2))?.supply !== undefined);
});

test('a backfill stores what following would have stored, and reads no block twice', async () => {
  await using stage = await setStage();
  const { chain, pair, database } = stage;
  const [, , holder] = chain.accounts;
  for (let round = 0; round < 8; round += 1) {
    await act(stage, { kind: 'swap', side: 0, permille: 7n, isFlash: false, isSameSide: false }, holder);
    if (round % 3 === 0) await act(stage, { kind: 'mint', amount0: ONE, amount1: 2n * ONE }, holder);
  }
  {
    await using watch = openWatch(stage, [pair.configured], 1);
    await watch.follow();
  }
  const followed = await dump(database);
  await emptyDatabase(database);

  const asked: number[] = [];
  {
    await using watch = openWatch(stage, [pair.configured], 'latest', asked);
    await watch.follow();
    await watch.backfill();
  }
  assert.deepEqual(await dump(database), followed);
  assert.deepEqual(
    asked.toSorted((one, other) => one - other),
    Array.from({ length: (await chain.head()).number }, (_, index) => index + 1),
  );
  {
    await using again = openWatch(stage, [pair.configured], 'latest', asked);
    await again.follow();
    await again.backfill();
  }
  assert.equal(asked.length, (await chain.head()).number, 'a restart reads nothing again');
});

test('a pair that was not configured for a while is backfilled over the gap', async () => {
  await using stage = await setStage();
  const { chain, pair, database } = stage;
  const [, , holder] = chain.accounts;
  const swap = () =>
    act(stage, { kind: 'swap', side: 0, permille: 7n, isFlash: false, isSameSide: false }, holder);
  for (const pairs of [[pair.configured], [], [pair.configured]]) {
    await using watch = openWatch(stage, pairs, 1);
    await swap();
    await watch.follow();
    await swap();
    await watch.follow();
    await watch.backfill();
    if (pairs.length > 0) await watch.read();
  }
  assert.equal(await volumeOf(database), volumeByLogs(await readSwaps(chain, pair)));
  await checkNow(database, pair);
});

const QUIET_MS = 2 * 86_400_000;

for (const order of ['before the first followed block', 'before the backfill', 'after the backfill'] as const)
  test(`a new pair without events for two days keeps its state, read ${order}`, async () => {
    await using stage = await setStage();
    await rest(stage);
    await followPast(stage, []);
    await takeUp(stage, order);
    await checkNow(stage.database, stage.pair);
  });

for (const order of ['before the first followed block', 'before the backfill', 'after the backfill'] as const)
  test(`a quiet pair that is followed again keeps its newest state, read ${order}`, async () => {
    await using stage = await setStage();
    const [, , holder] = stage.chain.accounts;
    await followPast(stage, [stage.pair.configured]);
    await followPast(stage, []);
    // Swaps while the pair is not followed, two days before it is.
    await act(stage, { kind: 'swap', side: 0, permille: 7n, isFlash: false, isSameSide: false }, holder);
    await rest(stage);
    await followPast(stage, []);
    await takeUp(stage, order);
    await checkNow(stage.database, stage.pair);
    // Now the newest state is one that was read.
    await followPast(stage, []);
    await takeUp(stage, order);
    await checkNow(stage.database, stage.pair);
    // The contract still has the reserves of that state, but no backfill covers it.
    await followPast(stage, []);
    await rest(stage);
    await takeUp(stage, order, 2 * QUIET_MS);
    await checkNow(stage.database, stage.pair);
  });

/** Lets two days pass on the chain. */
async function rest({ chain }: Stage): Promise<void> {
  await chain.rpc('evm_increaseTime', [QUIET_MS / 1000]);
  await chain.mine();
}

/** Follows another block with these pairs, and reads those. */
async function followPast(stage: Stage, pairs: readonly ValuedPair[]): Promise<void> {
  await using watch = openWatch(stage, pairs);
  await stage.chain.mine();
  await watch.follow();
  if (pairs.length > 0) await watch.read();
}

/** Begins to follow the pair, two days later unless `afterMs` is set. */
async function takeUp(
  stage: Stage,
  order: `${'before' | 'after'} the ${'backfill' | 'first followed block'}`,
  afterMs = QUIET_MS,
): Promise<void> {
  await using watch = openWatch(stage, [stage.pair.configured]);
  watch.clock.advance(afterMs);
  if (order === 'before the first followed block') await watch.read();
  await stage.chain.mine();
  await watch.follow();
  if (order === 'before the backfill') await watch.read();
  await watch.backfill();
  await watch.read();
}

type Stage = { chain: Chain; pair: UniswapPair; database: Database } & AsyncDisposable;

/** A chain with a pair that holds 1,000 of each token. */
async function setStage(): Promise<Stage> {
  const parts = new AsyncDisposableStack();
  const place = parts.use(await createTestDatabase('embedded'));
  const chain = parts.use(await startChain());
  const pair = await deployPair(chain);
  await chain.rpc('anvil_setCode', [CALLEE, '0x00']);
  const stage = { chain, pair, database: await place.open() };
  const [, , holder] = chain.accounts;
  await act(stage, { kind: 'mint', amount0: 1000n * ONE, amount1: 1000n * ONE }, holder);
  return { ...stage, [Symbol.asyncDispose]: () => parts.disposeAsync() };
}

/** The parts of the service that a pair needs, stepped by hand. */
function openWatch(
  { chain, database }: Pick<Stage, 'chain' | 'database'>,
  pairs: readonly ValuedPair[],
  startBlock: number | 'latest' = 1,
  asked: number[] = [],
): Watch & AsyncDisposable {
  const [clock, log, metrics] = [createTestClock(new Date(Date.now())), silentLog(), createMetrics('test')];
  const options = { clock, log, metrics, chainId: 31_337, internalTransfers: 'off' as const };
  const nodes = createNodes({ ...options, urls: [chain.url], onHead() {} });
  const count =
    (fetch: ChainNodes['bundles']): ChainNodes['bundles'] =>
    async (references, abort, bundleOptions) => {
      const bundles = await fetch(references, abort, bundleOptions);
      asked.push(...bundles.map(({ header }) => header.number));
      return bundles;
    };
  const counted: ChainNodes = { ...nodes, bundles: count(nodes.bundles), anchored: count(nodes.anchored) };
  const follower = createFollower({
    ...{ database, nodes: counted, clock, log, metrics, chainId: 31_337, startBlock, confirmations: 0 },
    finalityDepth: 64,
    backfill: { advance: () => false },
    processors: [createMarketProcessor(pairs, clock)],
    extract: { ...extractNothing, pairEvents: createPairReader(pairs) },
    checks: noChecks,
    isLeader: async () => true,
  });
  const market = { database, nodes: counted, clock, log, pairs };
  const [readings, backfill] = [createPairReadings(market), createPairBackfill(market)];
  return {
    ...{ database, clock, nodes },
    async follow() {
      const { hash } = await chain.head();
      while ((await findTip(database))?.hash !== hash) await follower.step(signal);
    },
    async read() {
      clock.advance(60_000);
      await untilIdle(readings);
    },
    backfill: () => untilIdle(backfill),
    [Symbol.asyncDispose]: () => nodes.close(),
  };
}

async function untilIdle(step: Step): Promise<void> {
  while ((await step(signal)) === 'worked');
}

/** Executes the action as far as the pool and the holder allow it. */
async function act(
  { chain, pair }: Omit<Stage, keyof AsyncDisposable>,
  action: Action,
  holder: `0x${string}`,
) {
  const { reserve0, reserve1 } = await pair.view();
  const reserves = [reserve0, reserve1] as const;
  const [, feeTo] = chain.accounts;
  switch (action.kind) {
    case 'mint':
      await pair.give(0, action.amount0);
      await pair.give(1, action.amount1);
      return pair.mint(holder);
    case 'burn':
      return pair.burn(holder, ((await pair.lpBalanceOf(holder)) * action.permille) / 1000n);
    case 'swap': {
      const amount = (reserves[action.side] * action.permille) / 1000n;
      const data = action.isFlash ? '0x01' : '0x';
      const paidSide = action.isSameSide ? action.side : action.side === 0 ? 1 : 0;
      // More than enough of either token: out · 1000/997 of the same, out/(1 - out) of the other one.
      const [outReserve, inReserve] = [reserves[action.side], reserves[paidSide]];
      const paid = action.isSameSide ? amount * 2n : (inReserve * amount * 2n) / (outReserve - amount) + 1n;
      await pair.give(paidSide, paid);
      return pair.swap({ side: action.side, amount }, CALLEE, data);
    }
    case 'fee':
      return pair.setFeeTo(action.isOn ? feeTo : zeroAddress);
    case 'donate':
      await pair.give(action.side, action.amount);
      return pair.sync();
    case 'throw away':
      // LP tokens that their holder sends to the zero address still count.
      return pair.transferLp(
        holder,
        zeroAddress,
        ((await pair.lpBalanceOf(holder)) * action.permille) / 1000n,
      );
  }
}

async function checkNow(database: Database, pair: UniswapPair): Promise<void> {
  const now = await findCurrentPair(database, 1);
  const { reserve0, reserve1, ...supply } = await pair.view();
  assert.deepEqual({ reserve0: now?.reserve0, reserve1: now?.reserve1 }, { reserve0, reserve1 });
  const used = supply.isFeeOn ? supply : { ...supply, kLast: 0n };
  const stored = now?.supply?.isFeeOn === false ? { ...now.supply, kLast: 0n } : now?.supply;
  assert.deepEqual(stored, used);
}

async function volumeOf(database: Database): Promise<string> {
  const range = { after: new Date(0), until: new Date(Date.now() + 86_400_000) };
  return decimalText(await sumSwapValue(database, 1, range));
}

type SwapLog = { data: string };

async function readSwaps(chain: Chain, { address }: UniswapPair): Promise<SwapLog[]> {
  const topics = ['0xd78ad95fa46c994b6551d0da85fc275fe613ce37657fb8d5e3d130840159d822'];
  return (await chain.rpc('eth_getLogs', [{ fromBlock: '0x0', address, topics }])) as SwapLog[];
}

/** In and Out of token1, at 1 USD. */
function volumeByLogs(logs: readonly SwapLog[]): string {
  const units = logs.reduce((sum, { data }) => {
    const word = (index: number) => BigInt(`0x${data.slice(2 + index * 64, 66 + index * 64)}`);
    return sum + word(1) + word(3);
  }, 0n);
  const digits = units.toString().padStart(19, '0');
  const text = `${digits.slice(0, -18)}.${digits.slice(-18)}`;
  return text.replace(/\.?0+$/, '');
}

/** All stored data of pairs, except where it begins. */
async function dump(database: Database): Promise<unknown> {
  return {
    swaps: await database.query(sql`select * from swap order by block_number, tx_hash, ordinal limit 1000`),
    volumes: await database.query(sql`select * from swap_volume order by pair_id, started_at limit 1000`),
    states: await database.query(sql`select * from pair_state order by pair_id, block_number limit 1000`),
  };
}
