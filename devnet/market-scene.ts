/**
 * Creates the demo's market: its contracts, and the first transactions of all members.
 */
import { type Address, zeroAddress } from '../src/core/hex.ts';
import type { ContractName } from './contracts.ts';
import {
  homePair,
  type Market,
  marketTokens,
  NATIVE_POOL,
  pairTable,
  type TokenSymbol,
  tokenSymbols,
} from './market.ts';
import { marketActions, worthOf } from './market-actions.ts';
import type { Transaction } from './wallet.ts';

/** A contract that is created at an address. */
export type Creation = { contract: ContractName; values: readonly unknown[]; valueWei?: bigint };

type MarketCast = {
  /** Creates the contracts and adds the first liquidity to the pairs. */
  deployer: Address;
  /** They trade, stake, vote, farm and bridge. */
  members: readonly Address[];
};

const COIN = 10n ** 18n;
/** Liquidity on each side of each pair, in native coins or the equivalent. */
const LIQUIDITY_COINS = 400;
/** A member's amount of each token, and its liquidity in the pair of its choice, in the same unit. */
const MEMBER_COINS = 200;
const MEMBER_LIQUIDITY_COINS = 20;
const STAKED_WEI = 100n * COIN;
const WRAPPED_WEI = 20n * COIN;
const BRIDGED_WEI = 300n * COIN;
const BURNED_WEI = 250n * COIN;
const REWARD_PER_SECOND = COIN / 10n;
const VESTING_SECONDS = 4 * 365 * 86_400;
const vestingWei = { team: 1_500n * COIN, advisors: 500n * COIN } as const;

/** The market's contracts by address. The pairs are created with their first liquidity. */
export function marketCreations(market: Market, deployer: Address, now: Date): Map<Address, Creation> {
  const { tokens, factory, wrapped } = market;
  const vesting = (valueWei: bigint): Creation => ({
    contract: 'Vesting',
    values: [deployer, Math.floor(now.getTime() / 1000), VESTING_SECONDS],
    valueWei,
  });
  return new Map<Address, Creation>([
    ...tokenSymbols.map((symbol): [Address, Creation] => {
      const { name, decimals } = marketTokens[symbol];
      return [tokens[symbol], { contract: 'DemoToken', values: [name, symbol, decimals] }];
    }),
    [wrapped, { contract: 'WrappedCoin', values: ['Wrapped Ether', 'WETH'] }],
    [factory, { contract: 'UniswapV2Factory', values: [deployer] }],
    [market.router, { contract: 'UniswapV2Router02', values: [factory, wrapped] }],
    [market.farm, { contract: 'Farm', values: [tokens.RWD, REWARD_PER_SECOND] }],
    [market.validatorStaking, { contract: 'ValidatorStaking', values: [] }],
    [market.vestingTeam, vesting(vestingWei.team)],
    [market.vestingAdvisors, vesting(vestingWei.advisors)],
    [market.bridge, { contract: 'Bridge', values: [deployer] }],
    [market.governor, { contract: 'Governor', values: [tokens.RWD] }],
    [market.referrals, { contract: 'Referrals', values: [] }],
  ]);
}

/** The deployer's transactions after the contracts exist: first liquidity, farm pools, tokens for the members. */
export function openMarket(market: Market, { deployer, members }: MarketCast, now: Date): Transaction[] {
  const actions = marketActions(market);
  const { tokens, wrapped, pairs, router } = market;
  // Their order determines the numbers of the farm's pools.
  const poolTokens = pairTable.map(({ token0 }) => pairs[token0]);
  poolTokens.splice(NATIVE_POOL, 0, wrapped);
  const shares = [
    { to: deployer, coins: LIQUIDITY_COINS },
    ...members.map((to) => ({ to, coins: MEMBER_COINS })),
  ];
  const mints = tokenSymbols.flatMap((symbol) =>
    shares.map(({ to, coins }) => ({ symbol, to, amount: worthOf(symbol, coins, now) })),
  );
  return [
    actions.mintAll(deployer, mints),
    ...tokenSymbols.flatMap((symbol) => [
      actions.approve(deployer, tokens[symbol], router),
      actions.addLiquidity(deployer, symbol, sidesOf(symbol, LIQUIDITY_COINS, now)),
    ]),
    ...poolTokens.map((token) => actions.addPool(deployer, token)),
    actions.bridgeOut(deployer, BRIDGED_WEI),
    { from: deployer, to: zeroAddress, valueWei: BURNED_WEI, gas: 21_000 },
  ];
}

/** The members' first transactions: approvals, liquidity, stakes and referrals. */
export function joinMarket(market: Market, { members }: MarketCast, now: Date): Transaction[] {
  const actions = marketActions(market);
  const { tokens, wrapped, pairs, router, farm } = market;
  return members.flatMap((member, index) => {
    const home = homePair(index);
    const referrer = members[Math.floor((index - 1) / 2)];
    return [
      ...tokenSymbols.map((symbol) => actions.approve(member, tokens[symbol], router)),
      actions.approve(member, pairs[home], router),
      actions.approve(member, pairs[home], farm),
      actions.approve(member, wrapped, farm),
      actions.addLiquidity(member, home, sidesOf(home, MEMBER_LIQUIDITY_COINS, now)),
      actions.wrap(member, WRAPPED_WEI),
      actions.stake(member, STAKED_WEI),
      ...(referrer === undefined ? [] : [actions.refer(member, referrer)]),
    ];
  });
}

function sidesOf(symbol: TokenSymbol, coins: number, now: Date): { amount: bigint; wei: bigint } {
  return { amount: worthOf(symbol, coins, now), wei: BigInt(coins) * COIN };
}
