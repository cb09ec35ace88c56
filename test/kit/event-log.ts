/**
 * Logs as contracts write them.
 */
import { toEventSelector } from 'viem';
import type { ChainLog } from '../../src/chain/parse.ts';
import type { Address, Hash, Hex } from '../../src/core/hex.ts';

/** The event's signature, its indexed addresses, and its data in words. */
export function eventLog(
  address: Address,
  event: string,
  { indexed = [], values = [] }: { indexed?: readonly Address[]; values?: readonly bigint[] },
): ChainLog {
  const word = (value: bigint) => value.toString(16).padStart(64, '0');
  const topics: Hash[] = [toEventSelector(event), ...indexed.map((one): Hex => `0x${word(BigInt(one))}`)];
  return { address, topics, data: `0x${values.map(word).join('')}` };
}

/** A swap of a pair (Uniswap V2): in and out of either token. */
export const swapLog = (pair: Address, amounts: readonly bigint[]): ChainLog =>
  eventLog(pair, 'Swap(address,uint256,uint256,uint256,uint256,address)', { values: amounts });
