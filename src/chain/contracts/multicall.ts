/**
 * Encodes and decodes Multicall3's `aggregate3` of `getEthBalance`, which reads many native balances in one call
 * and therefore at one block.
 */
import { encodeWord, WORD_BYTES, WORD_DIGITS, wordAt } from '../../core/abi.ts';
import type { Address, Hex } from '../../core/hex.ts';

/** aggregate3((address target, bool allowFailure, bytes callData)[]) */
const AGGREGATE3 = '82ad56cb';
/** getEthBalance(address) */
const GET_ETH_BALANCE = '4d2301cc';
/** target, allowFailure, the offset of callData, its length, and its 36 bytes in two words. */
const CALL_WORDS = 6;

/**
 * Encodes the input of a call to `multicall3` that reads the balance of each address. If one read fails, the
 * others still return.
 */
export function encodeBalanceCalls(multicall3: Address, addresses: readonly Address[]): Hex {
  const count = addresses.length;
  const places = addresses.map((_address, index) => encodeWord((count + index * CALL_WORDS) * WORD_BYTES));
  const calls = addresses.map((address) => {
    const callData = GET_ETH_BALANCE + encodeWord(address);
    return [
      encodeWord(multicall3),
      encodeWord(1),
      encodeWord(3 * WORD_BYTES),
      encodeWord(callData.length / 2),
      callData.padEnd(2 * WORD_DIGITS, '0'),
    ].join('');
  });
  return `0x${AGGREGATE3}${encodeWord(WORD_BYTES)}${encodeWord(count)}${places.join('')}${calls.join('')}`;
}

/**
 * Decodes `(bool success, bytes returnData)[]` into one balance for each of `count` addresses. A balance is
 * undefined if its call failed or didn't return one word. The result is undefined if the data isn't such a list.
 */
export function decodeBalances(data: Hex, count: number): (bigint | undefined)[] | undefined {
  const list = numberAt(data, 0);
  if (list === undefined || numberAt(data, list) !== count) return undefined;
  const content = list + WORD_BYTES;
  return Array.from({ length: count }, (_, index) => {
    const place = numberAt(data, content + index * WORD_BYTES);
    if (place === undefined) return undefined;
    const result = content + place;
    const returned = numberAt(data, result + WORD_BYTES);
    if (numberAt(data, result) !== 1 || returned === undefined) return undefined;
    const isOneWord = numberAt(data, result + returned) === WORD_BYTES;
    return isOneWord ? wordAt(data, result + returned + WORD_BYTES) : undefined;
  });
}

/** The word at this byte as an offset or a length. Undefined if it is larger than the data can be. */
function numberAt(data: Hex, byte: number): number | undefined {
  const value = wordAt(data, byte);
  return value !== undefined && value < BigInt(data.length) ? Number(value) : undefined;
}
