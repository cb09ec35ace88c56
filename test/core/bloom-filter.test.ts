import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import fc from 'fast-check';
import { createBloomFilter } from '../../src/core/bloom-filter.ts';

const KEY_BYTES = 20;
const ENTRIES = 50_000;
const PROBES = 200_000;
/** Measured: 0.45 %. */
const FALSE_SHARE_MAX = 0.006;

test('no key that was added is ever denied, however many keys the filter was made for', () => {
  const key = fc.uint8Array({ minLength: KEY_BYTES, maxLength: KEY_BYTES });
  fc.assert(
    fc.property(fc.array(key, { maxLength: 300 }), fc.integer({ min: 1, max: 400 }), (keys, capacity) => {
      const filter = createBloomFilter({ capacity, keyBytes: KEY_BYTES });
      const packed = Buffer.concat(keys);
      keys.forEach((_key, index) => {
        filter.add(packed, index * KEY_BYTES);
      });
      for (const added of keys) assert.ok(filter.mayHave(added, 0));
      // Adding again finds every key.
      for (const added of keys) assert.equal(filter.add(added, 0), false);
    }),
  );
});

/** Numbered keys of each kind, no two equal. */
const kinds: Record<string, (number: number) => Buffer> = {
  random: () => randomBytes(KEY_BYTES),
  'with a vanity prefix': (number) => numbered(number, { at: 16, first: 0xc0_ff_ee }),
  'with a vanity suffix': (number) => numbered(number, { at: 0, last: 0xde_ad }),
  'counted from zero': (number) => numbered(number, { at: 16 }),
  'with two bytes that differ': (number) => {
    const key = Buffer.alloc(KEY_BYTES, 0x11);
    // Pairs of bytes at different positions cancel each other in weak hashes.
    key.writeUInt32BE(number, 2);
    key.writeUInt32BE(number, 12);
    return key;
  },
};

for (const [kind, keyOf] of Object.entries(kinds))
  test(`at most 0.6 % of keys that were not added are confirmed: keys ${kind}`, () => {
    const filter = createBloomFilter({ capacity: ENTRIES, keyBytes: KEY_BYTES });
    for (let number = 0; number < ENTRIES; number += 1) filter.add(keyOf(number), 0);
    let confirmed = 0;
    for (let number = ENTRIES; number < ENTRIES + PROBES; number += 1)
      if (filter.mayHave(keyOf(number), 0)) confirmed += 1;
    assert.ok(confirmed / PROBES <= FALSE_SHARE_MAX, `${confirmed} of ${PROBES}`);
  });

test('keys that collide in one filter do not collide in another', () => {
  const [one, other] = [1, 2].map(() => createBloomFilter({ capacity: 1_000, keyBytes: KEY_BYTES }));
  assert.ok(one !== undefined && other !== undefined);
  const watched = Buffer.alloc(KEY_BYTES, 7);
  one.add(watched, 0);
  other.add(watched, 0);
  for (let number = 0; number < 1_000; number += 1) {
    one.add(numbered(number, { at: 16 }), 0);
    other.add(numbered(number, { at: 16 }), 0);
  }
  const mined: Buffer[] = [];
  for (let tries = 0; mined.length < 200; tries += 1) {
    const key = randomBytes(KEY_BYTES);
    if (one.mayHave(key, 0)) mined.push(key);
    assert.ok(tries < 10_000_000);
  }
  const confirmed = mined.filter((key) => other.mayHave(key, 0)).length;
  assert.ok(confirmed <= 20, `${confirmed} of ${mined.length}`);
});

test('a filter for 100,000 keys of 20 bytes takes 147 KiB and its tables', () => {
  const filter = createBloomFilter({ capacity: 100_000, keyBytes: KEY_BYTES });
  const tables = KEY_BYTES * 256 * 3 * 4;
  assert.ok(filter.bytes - tables <= 147 * 1024, String(filter.bytes));
});

function numbered(
  number: number,
  { at, first = 0, last = 0 }: { at: number; first?: number; last?: number },
): Buffer {
  const key = Buffer.alloc(KEY_BYTES);
  key.writeUIntBE(first, 0, 3);
  key.writeUInt16BE(last, KEY_BYTES - 2);
  key.writeUInt32BE(number, at);
  return key;
}
