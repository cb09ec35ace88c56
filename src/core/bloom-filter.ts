/**
 * A blocked Bloom filter for keys of one length: a set that never denies a key that was added. It confirms about one in 220 keys
 * that were not added, at 12 bits per key. Keys can't be removed.
 *
 * Each key sets six bits in one block of 512 bits, which is one cache line. Tabulation hashing with random tables spreads any
 * keys, including ones that were chosen to collide, because the tables are different in each filter and never leave it.
 */
import { randomFillSync } from 'node:crypto';

type BloomFilter = {
  readonly bytes: number;
  /** Adds the key that begins at this index. Returns false if the filter confirmed it already. */
  add(keys: Uint8Array, at: number): boolean;
  /** Whether the key that begins at this index may have been added. False is certain. */
  mayHave(keys: Uint8Array, at: number): boolean;
};

const BITS_PER_KEY = 12;
const BLOCK_BITS = 512;
const BLOCK_WORDS = BLOCK_BITS / 32;
/** One chooses the block. Each of the others gives three positions of nine bits. */
const HASHES = 3;
const BYTE_VALUES = 256;
const POSITIONS_PER_HASH = 3;
const POSITION_BITS = 9;
const POSITION_MASK = BLOCK_BITS - 1;

/** A filter for about `capacity` keys of `keyBytes` bytes. More keys only make it less exact. */
export function createBloomFilter({
  capacity,
  keyBytes,
}: {
  capacity: number;
  keyBytes: number;
}): BloomFilter {
  const blocks = Math.max(1, Math.ceil((capacity * BITS_PER_KEY) / BLOCK_BITS));
  const words = new Uint32Array(blocks * BLOCK_WORDS);
  const tables = randomFillSync(new Uint32Array(keyBytes * BYTE_VALUES * HASHES));
  /** The bits of one key: a word, then its mask, six times. Reused, because an allocation per key would cost more. */
  const bits = new Int32Array(2 * 2 * POSITIONS_PER_HASH);

  function locate(keys: Uint8Array, at: number): void {
    let place = 0;
    let first = 0;
    let second = 0;
    for (let index = 0; index < keyBytes; index += 1) {
      const entry = (index * BYTE_VALUES + (keys[at + index] ?? 0)) * HASHES;
      place ^= tables[entry] ?? 0;
      first ^= tables[entry + 1] ?? 0;
      second ^= tables[entry + 2] ?? 0;
    }
    const block = Math.floor(((place >>> 0) / 2 ** 32) * blocks) * BLOCK_WORDS;
    for (let index = 0; index < POSITIONS_PER_HASH; index += 1) {
      mark(2 * index, block, first >>> (index * POSITION_BITS));
      mark(2 * (index + POSITIONS_PER_HASH), block, second >>> (index * POSITION_BITS));
    }
  }

  function mark(index: number, block: number, hash: number): void {
    bits[index] = block + ((hash & POSITION_MASK) >>> 5);
    bits[index + 1] = 1 << (hash & 31);
  }

  return {
    bytes: words.byteLength + tables.byteLength,
    add(keys, at) {
      locate(keys, at);
      let isNew = false;
      for (let index = 0; index < bits.length; index += 2) {
        const word = bits[index] ?? 0;
        const mask = bits[index + 1] ?? 0;
        const stored = words[word] ?? 0;
        if ((stored & mask) === 0) isNew = true;
        words[word] = stored | mask;
      }
      return isNew;
    },
    mayHave(keys, at) {
      locate(keys, at);
      for (let index = 0; index < bits.length; index += 2)
        if (((words[bits[index] ?? 0] ?? 0) & (bits[index + 1] ?? 0)) === 0) return false;
      return true;
    },
  };
}
