/**
 * Traffic on the demo's market: members swap towards the prices of the feed, stake, vote, farm, bridge and move liquidity.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { type Address, zeroAddress } from '../src/core/hex.ts';
import type { ContractCall } from './contracts.ts';
import { homePair, type Market, marketTokens, NATIVE_POOL, pairTable, type TokenSymbol } from './market.ts';
import { type MarketActions, marketActions } from './market-actions.ts';
import { usdPriceAt } from './prices.ts';
import type { Scene } from './scene.ts';
import { type RpcEndpoint, readBalanceWei, readContract, type Transaction } from './wallet.ts';

/** All kinds of transactions in turn, as far as the member's balances allow. */
export const marketKinds = [
  'swap',
  'swap',
  'stake',
  'swap',
  'swap',
  'vote',
  'swap',
  'add liquidity',
  'swap',
  'bridge out',
  'swap',
  'farm',
  'swap',
  'swap',
  'unstake',
  'swap',
  'remove liquidity',
  'swap',
  'bridge in',
  'swap',
  'unfarm',
  'swap',
  'burn',
] as const;

type MarketKind = (typeof marketKinds)[number];

/** A swap gains nothing if the deviation from the feed's price is below the fee. */
const PAIR_FEE = 0.003;
/** The minimum and maximum part of the pair's reserve in one swap. */
const SWAP_PART_MIN = 0.0005;
const SWAP_PART_MAX = 0.02;
/** The resolution of a part of an amount. */
const PARTS = 1_000_000;
const COIN = 10n ** 18n;

type Move = {
  node: RpcEndpoint;
  actions: MarketActions;
  market: Market;
  turn: number;
  now: Date;
  member: Address;
  /** The pair to which the member adds liquidity. */
  home: TokenSymbol;
};

/** The transaction of a turn: the kinds in order, each by a pseudo-random member. The same turn gives the same transaction. */
export function marketTrafficAt(
  node: RpcEndpoint,
  scene: Scene,
  turn: number,
  now: Date,
): Promise<Transaction> {
  const { market, members } = scene;
  const place = Math.floor(chance(turn, 'member') * members.length);
  const member = members[place] ?? members[0];
  const kind = marketKinds[turn % marketKinds.length] ?? 'swap';
  const move = { node, actions: marketActions(market), market, turn, now, member, home: homePair(place) };
  return transactionOf(kind, move, scene);
}

async function transactionOf(
  kind: MarketKind,
  move: Move,
  { members, deployer }: Scene,
): Promise<Transaction> {
  const { node, actions, market, turn, now, member, home } = move;
  const partOf = (amount: bigint, part: number) =>
    (amount * BigInt(Math.ceil(part * chance(turn, 'part') * PARTS))) / BigInt(PARTS);
  switch (kind) {
    case 'swap':
      return swap(move);
    case 'stake':
      return actions.stake(member, partOf(5n * COIN, 1));
    case 'unstake': {
      const stakeOf = { contract: 'ValidatorStaking', method: 'stakeOf', values: [member] } as const;
      return actions.unstake(member, partOf(await readAmount(node, market.validatorStaking, stakeOf), 0.05));
    }
    case 'vote':
      return vote(move, members);
    case 'add liquidity': {
      const { token, native } = await readReserves(node, market.pairs[home]);
      return actions.addLiquidity(member, home, { amount: partOf(token, 0.01), wei: partOf(native, 0.01) });
    }
    case 'remove liquidity':
      return actions.removeLiquidity(
        member,
        home,
        partOf(await readToken(node, market.pairs[home], member), 0.1),
      );
    case 'bridge out':
      return actions.bridgeOut(member, partOf(3n * COIN, 1));
    case 'bridge in': {
      const wei = partOf(await readBalanceWei(node, market.bridge), 0.01);
      return actions.bridgeIn(deployer, { nonce: BigInt(now.getTime()), receiver: member, wei });
    }
    case 'farm':
      return farm(move, partOf);
    case 'unfarm': {
      const { pool } = poolOf(move);
      const stakes = { contract: 'Farm', method: 'stakes', values: [pool, member] } as const;
      const stake = await readContract(node, market.farm, stakes);
      const staked: unknown = Array.isArray(stake) ? stake[0] : undefined;
      return typeof staked === 'bigint' && staked > 0n
        ? actions.withdraw(member, pool, partOf(staked, 0.2))
        : farm(move, partOf);
    }
    case 'burn':
      return { from: member, to: zeroAddress, valueWei: partOf(COIN / 10n, 1) };
  }
}

/** Towards the feed's price if the deviation exceeds the fee, otherwise in a pseudo-random direction. */
async function swap({ node, actions, market, turn, now, member }: Move): Promise<Transaction> {
  const { token0: symbol } = pairTable[turn % pairTable.length] ?? pairTable[0];
  const { token, native } = await readReserves(node, market.pairs[symbol]);
  const { decimals } = marketTokens[symbol];
  const priceInside = (Number(native) / 1e18 / Number(token)) * 10 ** decimals;
  const deviation = priceInside / (usdPriceAt(symbol, now) / usdPriceAt('ETH', now)) - 1;
  const isSold = Math.abs(deviation) > PAIR_FEE ? deviation > 0 : chance(turn, 'side') < 0.5;
  // A swap moves the price by about twice its part of the reserve.
  const part = Math.min(SWAP_PART_MAX, Math.max(SWAP_PART_MIN, Math.abs(deviation) / 2));
  const shareOf = (amount: bigint) =>
    (amount * BigInt(Math.ceil(part * (0.5 + chance(turn, 'part')) * PARTS))) / BigInt(PARTS);
  if (isSold) {
    const held = await readToken(node, market.tokens[symbol], member);
    return actions.sell(member, symbol, lesser(shareOf(token), held / 2n));
  }
  return actions.buy(member, symbol, lesser(shareOf(native), (await readBalanceWei(node, member)) / 2n));
}

/** A vote for the newest proposal, or a new proposal if all members have voted. */
async function vote({ node, actions, market, turn, member }: Move, members: readonly Address[]) {
  const governor = { contract: 'Governor' } as const;
  const count = await readAmount(node, market.governor, { ...governor, method: 'proposalCount' });
  for (const voter of count === 0n ? [] : members) {
    const hasVoted = { ...governor, method: 'hasVoted', values: [count, voter] };
    if ((await readContract(node, market.governor, hasVoted)) === false)
      return actions.vote(voter, count, Math.floor(chance(turn, 'support') * 3));
  }
  return actions.propose(member, `Proposal ${count + 1n}`);
}

async function farm(move: Move, partOf: (amount: bigint, part: number) => bigint): Promise<Transaction> {
  const { pool, token } = poolOf(move);
  const held = await readToken(move.node, token, move.member);
  return move.actions.deposit(move.member, pool, partOf(held, 0.2));
}

/** Either the pool of the member's LP tokens or the one of the native coin. */
function poolOf({ market, turn, home }: Move): { pool: number; token: Address } {
  const pair = pairTable.find(({ token0 }) => token0 === home);
  return pair === undefined || chance(turn, 'pool') < 0.3
    ? { pool: NATIVE_POOL, token: market.wrapped }
    : { pool: pair.rewardPid, token: market.pairs[home] };
}

async function readReserves(node: RpcEndpoint, pair: Address): Promise<{ token: bigint; native: bigint }> {
  const reserves = await readContract(node, pair, { contract: 'UniswapV2Pair', method: 'getReserves' });
  const [token, native] = Array.isArray(reserves) ? reserves : [];
  assert(typeof token === 'bigint' && typeof native === 'bigint');
  return { token, native };
}

function readToken(node: RpcEndpoint, token: Address, holder: Address): Promise<bigint> {
  return readAmount(node, token, { contract: 'DemoToken', method: 'balanceOf', values: [holder] });
}

async function readAmount(node: RpcEndpoint, address: Address, call: ContractCall): Promise<bigint> {
  const amount = await readContract(node, address, call);
  assert(typeof amount === 'bigint', `${call.contract}.${call.method} answers an amount`);
  return amount;
}

/** A number from 0 to 1 that is the same for the same words. */
function chance(turn: number, what: string): number {
  return createHash('sha256').update(`${turn} ${what}`).digest().readUInt32BE() / 2 ** 32;
}

function lesser(one: bigint, other: bigint): bigint {
  return one < other ? one : other;
}
