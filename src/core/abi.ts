/**
 * Reads and writes the 32-byte words in which contracts take and return values (Contract ABI specification). Written by hand,
 * because Chainbell needs only numbers and addresses, and an ABI library would cost the process more memory.
 */
import type { Address, Hash, Hex } from './hex.ts';

export const WORD_BYTES = 32;
/** Hexadecimal digits of a word. */
export const WORD_DIGITS = 2 * WORD_BYTES;
/** An address fills the low 20 bytes of its word. */
const ADDRESS_DIGITS = 40;
const ADDRESS_PADDING = '0'.repeat(WORD_DIGITS - ADDRESS_DIGITS);

/** The digits of a number that is not negative, or of an address, as one word. */
export function encodeWord(value: bigint | number | Address): string {
  return BigInt(value).toString(16).padStart(WORD_DIGITS, '0');
}

/** The hexadecimal digits of the word that begins at this byte. Undefined if the data ends before the word does. */
export function digitsAt(data: Hex, byte: number): string | undefined {
  const start = 2 + 2 * byte;
  const digits = data.slice(start, start + WORD_DIGITS);
  return digits.length === WORD_DIGITS ? digits : undefined;
}

/** The word that begins at this byte, as a uint256. Undefined if the data ends before the word does. */
export function wordAt(data: Hex, byte: number): bigint | undefined {
  const digits = digitsAt(data, byte);
  return digits === undefined ? undefined : BigInt(`0x${digits}`);
}

/** The first `count` words, each as a uint256. Empty if there is no data, or less. */
export function wordsOf(data: Hex | undefined, count: number): bigint[] {
  if (data === undefined || data.length < 2 + count * WORD_DIGITS) return [];
  const words: bigint[] = [];
  for (let end = 2 + WORD_DIGITS; words.length < count; end += WORD_DIGITS)
    words.push(BigInt(`0x${data.slice(end - WORD_DIGITS, end)}`));
  return words;
}

/** The address in these digits of a word. Undefined if the other bytes are not zero, because no compiler emits such a word. */
export function decodeAddress(digits: string): Address | undefined {
  return digits.startsWith(ADDRESS_PADDING) ? `0x${digits.slice(-ADDRESS_DIGITS)}` : undefined;
}

/** The address in the low 20 bytes of a topic, whatever the others hold. */
export function addressOfTopic(topic: Hash): Address {
  return `0x${topic.slice(-ADDRESS_DIGITS)}`;
}
