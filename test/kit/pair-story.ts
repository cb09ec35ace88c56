/**
 * A Uniswap V2 pair, transactions in the form that nodes return, and pairs that are followed.
 */
import { toEventSelector } from 'viem';
import type { BundleTransaction } from '../../src/chain/blocks/bundle.ts';
import type { ChainLog } from '../../src/chain/rpc/parse.ts';
import { encodeWord } from '../../src/core/abi.ts';
import { type Address, type Hash, type Hex, toBytes } from '../../src/core/hex.ts';
import type { ValuedPair } from '../../src/domain/pair.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { addressOf, alice, bob, hashOf } from './chain-story.ts';

export const pair: ValuedPair = {
  ...{ id: 7, name: 'A/B', address: addressOf(0x7a1), token0: alice, token1: bob, fee: 300, rewardPid: 0 },
  ...{ token0Decimals: 18, token1Decimals: 18, usdValueFrom: 0, value0: undefined, value1: undefined },
  areIndependent: false,
};

export const SWAP = 'Swap(address,uint256,uint256,uint256,uint256,address)';

/** A log of this event, with indexed addresses and data words. It comes from the pair unless `address` is set. */
export function logOf(
  event: string,
  values: readonly bigint[],
  indexed: readonly Address[] = [],
  address: Address = pair.address,
): ChainLog {
  const topics: Hash[] = [toEventSelector(event), ...indexed.map((one): Hex => `0x${encodeWord(one)}`)];
  return { address, topics, data: `0x${values.map(encodeWord).join('')}` };
}

/** A transaction that transfers no native coin. */
export function transactionOf(number: number, logs: ChainLog[]): BundleTransaction {
  return { hash: hashOf(number), from: alice, to: bob, value: 0n, succeeded: true, calls: [], logs };
}

/** A swap of one wei of the first token for one wei of the second. */
export const swapTransaction = (number: number): BundleTransaction =>
  transactionOf(number, [logOf(SWAP, [1n, 0n, 0n, 1n], [alice, bob])]);

/** Makes a pair count as followed from this block on, without a backfill, so that states of such blocks are covered. */
export async function addFollowedPair(database: Database, id: number, followedFrom = 0): Promise<void> {
  await database.query(sql`
    insert into pair (id, address, token0, token1, token0_decimals, token1_decimals, usd_value_from, followed_from, backfill_until)
    values (${id}, ${toBytes(addressOf(0x7000 + id))}, ${toBytes(alice)}, ${toBytes(bob)}, 18, 18, 0, ${followedFrom}, now())
    on conflict do nothing`);
}
