import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import fc from 'fast-check';
import { encodeCall } from '../../devnet/contracts.ts';
import {
  MULTICALL3,
  marketTokens,
  NATIVE_POOL,
  pairTable,
  type TokenSymbol,
  tokenSymbols,
} from '../../devnet/market.ts';
import { marketActions } from '../../devnet/market-actions.ts';
import { marketKinds, marketTrafficAt } from '../../devnet/market-traffic.ts';
import { PART_MAX, usdPriceAt } from '../../devnet/prices.ts';
import { createScene, type Scene } from '../../devnet/scene.ts';
import { readBalanceWei, readContract } from '../../devnet/wallet.ts';
import { encodeWord } from '../../src/core/abi.ts';
import { type Address, zeroAddress } from '../../src/core/hex.ts';
import { type Chain, startChain } from '../kit/anvil.ts';

const COIN = 10n ** 18n;
const topics = {
  // Events of MasterChef and of the farms derived from it.
  farmDeposit: '0x90890809c654f11d6e72a28fa60149770a0d11ec6c92319d6ceb2bb0a4ea1a15',
  farmWithdraw: '0xf279e6a1f5e320cca91135676d9cb6e44ca8a08c0b88342bcdb1144f6511b568',
};

const word = (value: number | bigint | Address) => `0x${encodeWord(value)}`;

describe('the market of the demo', () => {
  let chain: Chain;
  let scene: Scene;
  before(async () => {
    chain = await startChain();
    scene = await createScene(chain);
  });
  after(() => chain.stop());

  const ask = (
    address: Address,
    contract: Parameters<typeof encodeCall>[0]['contract'],
    method: string,
    ...values: unknown[]
  ) => readContract(chain, address, { contract, method, values });
  const reservesOf = async (symbol: TokenSymbol): Promise<{ token: bigint; native: bigint }> => {
    const [token, native] = Object(await ask(scene.market.pairs[symbol], 'UniswapV2Pair', 'getReserves'));
    return { token, native };
  };

  test('has the pairs of spec 2.3: their order, their decimals, and the factory that made them', async () => {
    const { market } = scene;
    const expected = [
      { id: 1, token0: 'RWD', decimals: 18, usdValueFrom: 1, rewardPid: 0 },
      { id: 2, token0: 'USDT', decimals: 6, usdValueFrom: 0, rewardPid: 1 },
      { id: 3, token0: 'USDC', decimals: 6, usdValueFrom: 0, rewardPid: 2 },
      { id: 4, token0: 'SOL', decimals: 18, usdValueFrom: 1, rewardPid: 4 },
      { id: 5, token0: 'DOGE', decimals: 8, usdValueFrom: 1, rewardPid: 5 },
      { id: 6, token0: 'XRP', decimals: 18, usdValueFrom: 1, rewardPid: 6 },
    ] as const;
    assert.deepEqual(
      pairTable.map((pair) => ({ ...pair, decimals: marketTokens[pair.token0].decimals })),
      expected,
    );
    for (const { token0: symbol, decimals } of expected) {
      const [pair, token] = [market.pairs[symbol], market.tokens[symbol]];
      const lower = (address: unknown) => String(address).toLowerCase();
      assert.equal(lower(await ask(pair, 'UniswapV2Pair', 'token0')), token, symbol);
      assert.equal(lower(await ask(pair, 'UniswapV2Pair', 'token1')), market.wrapped, symbol);
      const made = await ask(market.factory, 'UniswapV2Factory', 'getPair', market.wrapped, token);
      assert.equal(lower(made), pair, symbol);
      assert.equal(await ask(token, 'DemoToken', 'symbol'), symbol);
      assert.equal(await ask(token, 'DemoToken', 'decimals'), decimals);
    }
    assert.equal(await ask(market.wrapped, 'WrappedCoin', 'decimals'), 18);
  });

  test('has a farm pool for each pair at its reward_pid, and pool 3 for the native coin', async () => {
    const { market } = scene;
    assert.equal(await ask(market.farm, 'Farm', 'poolCount'), 7n);
    const pools = [...pairTable.map(({ token0, rewardPid }) => [rewardPid, market.pairs[token0]] as const)];
    for (const [pid, token] of [...pools, [NATIVE_POOL, market.wrapped] as const]) {
      const [staked] = Object(await ask(market.farm, 'Farm', 'pools', pid));
      assert.equal(String(staked).toLowerCase(), token, `pool ${pid}`);
    }
  });

  test('a swap through the router pays what the constant product leaves after 0.3 %', async () => {
    const [trader] = scene.members;
    const actions = marketActions(scene.market);
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...tokenSymbols), fc.bigInt(1n, 50n * COIN), async (symbol, wei) => {
        const { token, native } = await reservesOf(symbol);
        const paid = (wei * 997n * token) / (native * 1000n + wei * 997n);
        if (paid === 0n) return;
        assert.equal((await chain.execute(actions.buy(trader, symbol, wei))).succeeded, true);
        assert.deepEqual(await reservesOf(symbol), { token: token - paid, native: native + wei });

        const back = (paid * 997n * (native + wei)) / ((token - paid) * 1000n + paid * 997n);
        const sold = await chain.execute(actions.sell(trader, symbol, paid));
        if (back > 0n) assert.deepEqual(await reservesOf(symbol), { token, native: native + wei - back });
        assert.equal(sold.succeeded, back > 0n);
      }),
      { numRuns: 20 },
    );
  });

  test('the farm emits deposits and withdrawals with user, pool and amount, and pays rewards', async () => {
    const [member] = scene.members;
    const { farm, tokens, wrapped } = scene.market;
    const actions = marketActions(scene.market);
    const rewards = () => ask(tokens.RWD, 'DemoToken', 'balanceOf', member);
    const before = await rewards();
    const deposit = await chain.execute(actions.deposit(member, NATIVE_POOL, COIN));
    assert.deepEqual(deposit.logs.at(-1), {
      address: farm,
      topics: [topics.farmDeposit, word(member), word(NATIVE_POOL)],
      data: word(COIN),
    });
    assert.equal(await ask(wrapped, 'WrappedCoin', 'balanceOf', farm), COIN);
    assert.equal(await rewards(), before);

    await chain.rpc('evm_increaseTime', [700]);
    const withdrawal = await chain.execute(actions.withdraw(member, NATIVE_POOL, COIN / 4n));
    assert.deepEqual(withdrawal.logs.at(-1), {
      address: farm,
      topics: [topics.farmWithdraw, word(member), word(NATIVE_POOL)],
      data: word(COIN / 4n),
    });
    // A tenth of a coin each second, over seven pools.
    const earned = BigInt(String(await rewards())) - BigInt(String(before));
    assert.ok(earned >= 10n * COIN && earned < 11n * COIN, `${earned}`);
    assert.equal((await chain.execute(actions.withdraw(member, NATIVE_POOL, COIN))).succeeded, false);
  });

  test('locked and burned coin is at the addresses that the supply reads', async () => {
    const { validatorStaking, vestingTeam, vestingAdvisors } = scene.market;
    const holders = [validatorStaking, vestingTeam, vestingAdvisors];
    const balances = await Promise.all(holders.map((holder) => readBalanceWei(chain, holder)));
    assert.deepEqual(balances, [100n * BigInt(scene.members.length) * COIN, 1_500n * COIN, 500n * COIN]);
    assert.ok((await readBalanceWei(chain, zeroAddress)) >= 250n * COIN);
  });

  test('Multicall3 returns successful calls beside ones that may fail, and reverts when a required call fails', async () => {
    const { tokens, wrapped } = scene.market;
    const symbol = encodeCall({ contract: 'DemoToken', method: 'symbol' });
    const refused = encodeCall({ contract: 'WrappedCoin', method: 'withdraw', values: [1n] });
    const calls = (allowFailure: boolean) => [
      { target: tokens.SOL, allowFailure: false, callData: symbol },
      { target: wrapped, allowFailure, callData: refused },
      {
        target: MULTICALL3,
        allowFailure: false,
        callData: encodeCall({ contract: 'Multicall3', method: 'getEthBalance', values: [wrapped] }),
      },
    ];
    const results = Object(await ask(MULTICALL3, 'Multicall3', 'aggregate3', calls(true)));
    assert.deepEqual(
      results.map(({ success }: { success: boolean }) => success),
      [true, false, true],
    );
    assert.equal(BigInt(results[2].returnData), await readBalanceWei(chain, wrapped));
    await assert.rejects(ask(MULTICALL3, 'Multicall3', 'aggregate3', calls(false)), /call failed/);

    const head = await chain.head();
    assert.equal(await ask(MULTICALL3, 'Multicall3', 'getBlockNumber'), BigInt(head.number));
    await chain.mine();
    assert.equal(await ask(MULTICALL3, 'Multicall3', 'getBlockHash', head.number), head.hash);
  });

  test('life on the market: everything succeeds, every pair is swapped, and prices stay near those outside', async () => {
    const swapped = new Set<Address>();
    const start = Date.now();
    let now = new Date();
    for (let turn = 0; turn < 5 * marketKinds.length; turn++) {
      // The clock moves faster than the test runs, so that market prices move.
      now = new Date(start + turn * 10_000);
      const receipt = await chain.execute(await marketTrafficAt(chain, scene, turn, now));
      const kind = marketKinds[turn % marketKinds.length];
      assert.equal(receipt.succeeded, true, `turn ${turn}: ${kind}`);
      if (kind === 'swap') for (const { address } of receipt.logs) swapped.add(address);
    }
    for (const { token0: symbol } of pairTable) {
      assert.ok(swapped.has(scene.market.pairs[symbol]), symbol);
      const { token, native } = await reservesOf(symbol);
      const inside = (Number(native) / 1e18 / Number(token)) * 10 ** marketTokens[symbol].decimals;
      const outside = usdPriceAt(symbol, now) / usdPriceAt('ETH', now);
      assert.ok(Math.abs(inside / outside - 1) < PART_MAX, `${symbol}: ${inside} inside, ${outside} outside`);
    }
  });
});
