/**
 * The addresses of the address filter: a set in memory that never denies an address that was added, and confirms about one in 220
 * that was not.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { createBloomFilter } from '../../core/bloom-filter.ts';
import type { Address } from '../../core/hex.ts';

export type AddressSet = {
  readonly bytes: number;
  /** The number of different addresses that were added, as far as the set can tell. */
  entries(): number;
  /** Whether it has so many entries that it confirms more than one in 70 addresses that were not added. */
  isOverfull(): boolean;
  /** Adds addresses of 20 bytes each, in parts, between which other work goes on. */
  add(addresses: Uint8Array): Promise<void>;
  /** Leaves out addresses that were never added. */
  select(addresses: readonly Address[]): Address[];
};

export const ADDRESS_BYTES = 20;
/** Takes about two milliseconds. */
const PART_ADDRESSES = 10_000;
const OVERFULL = 1.25;

/** An empty set, made for this many addresses. */
export function createAddressSet(capacity: number): AddressSet {
  const bloom = createBloomFilter({ capacity: Math.max(1, capacity), keyBytes: ADDRESS_BYTES });
  let entries = 0;

  function addPart(addresses: Uint8Array): void {
    for (let at = 0; at < addresses.length; at += ADDRESS_BYTES) if (bloom.add(addresses, at)) entries += 1;
  }

  return {
    bytes: bloom.bytes,
    entries: () => entries,
    isOverfull: () => entries > capacity * OVERFULL,
    async add(addresses) {
      for (let at = 0; at < addresses.length; at += PART_ADDRESSES * ADDRESS_BYTES) {
        if (at > 0) await nextTurn();
        addPart(addresses.subarray(at, at + PART_ADDRESSES * ADDRESS_BYTES));
      }
    },
    select(addresses) {
      const bytes = Buffer.from(addresses.map((address) => address.slice(2)).join(''), 'hex');
      return addresses.filter((_address, index) => bloom.mayHave(bytes, index * ADDRESS_BYTES));
    },
  };
}
