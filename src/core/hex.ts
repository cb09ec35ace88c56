/**
 * Hex strings as nodes and the API write them: with `0x`, in lower case. In the database, the same values are bytea.
 */
import { keccak_256 } from '@noble/hashes/sha3';
import { Fault } from './fault.ts';

export type Hex = `0x${string}`;
/** 20 bytes. */
export type Address = Hex;
/** 32 bytes. */
export type Hash = Hex;

export const zeroAddress: Address = `0x${'0'.repeat(40)}`;

/**
 * Parses an address with or without `0x`, in any letter case. Returns `0x` and 40 lower-case digits (spec 2.6).
 * @throws Fault `invalid` for any other text.
 */
export function parseAddress(text: string): Address {
  const digits = text.replace(/^0x/i, '').toLowerCase();
  if (!/^[0-9a-f]{40}$/.test(digits)) {
    throw new Fault('invalid', 'must be 40 hexadecimal characters, with or without 0x');
  }
  return `0x${digits}`;
}

/** The address with its EIP-55 checksum. */
export function checksumAddress(address: Address): string {
  const digits = address.slice(2).toLowerCase();
  const hash = keccak_256(digits);
  const isUpper = (index: number) => ((hash[index >> 1] ?? 0) >> (index % 2 === 0 ? 4 : 0)) & 8;
  return `0x${Array.from(digits, (digit, index) => (isUpper(index) === 0 ? digit : digit.toUpperCase())).join('')}`;
}

/** Lower-case hex of bytes from the database. */
export function fromBytes(bytes: Uint8Array): Hex {
  return `0x${Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex')}`;
}

/** Bytes for the database. The caller has checked that the text is hex. */
export function toBytes(hex: Hex): Buffer {
  return Buffer.from(hex.slice(2), 'hex');
}
