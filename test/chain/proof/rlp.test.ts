import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { fromRlp, type Hex, toHex, toRlp } from 'viem';
import { encodeRlp, quantityItem, type RlpItem } from '../../../src/chain/proof/rlp.ts';

type HexItem = Hex | readonly HexItem[];

const hexOf = (bytes: Uint8Array): Hex => toHex(bytes);
const { item } = fc.letrec<{ item: HexItem; text: Hex; list: HexItem[] }>((tie) => ({
  text: fc.uint8Array({ maxLength: 300 }).map(hexOf),
  list: fc.array(tie('item'), { maxLength: 6 }),
  item: fc.oneof({ maxDepth: 4 }, tie('text'), tie('list')),
}));

test('every item is encoded as by another implementation', () => {
  fc.assert(
    fc.property(item, (value) => {
      assert.equal(hexOf(encodeRlp(value)), toRlp(value));
    }),
  );
});

for (const bytes of [0, 1, 55, 56, 255, 256, 65_535, 65_536, 70_000]) {
  test(`${bytes} bytes keep their length, as text and as bytes`, () => {
    const value = Buffer.alloc(bytes, 0x91);
    assert.equal(fromRlp(encodeRlp(value)), hexOf(value));
    assert.deepEqual(encodeRlp(hexOf(value)), encodeRlp(value));
  });
}

test('a length of four bytes is written in full', () => {
  const encoded = encodeRlp(Buffer.alloc(0x01_02_03_04));
  assert.equal(hexOf(encoded.subarray(0, 6)), '0xbb0102030400');
  assert.equal(encoded.length, 5 + 0x01_02_03_04);
});

test('only single bytes below 0x80 are their own encoding', () => {
  for (const text of ['0x00', '0x7f', '0x80', '0xff'] as const) {
    assert.equal(hexOf(encodeRlp(text)), toRlp(text));
    assert.equal(hexOf(encodeRlp(Buffer.from(text.slice(2), 'hex'))), toRlp(text));
  }
});

test('a quantity loses its leading zeros, and zero is no bytes', () => {
  const pairs = ['0x', '0x0', '0x00', '0x1', '0x0100', '0xabc'].map((text) => quantityItem(text));
  assert.deepEqual(pairs, ['0x', '0x', '0x', '0x01', '0x0100', '0x0abc']);
});

for (const text of ['', 'ab', '0xabc', '0xzz', '0x12 4', '12']) {
  test(`text that is not hex is refused: '${text}'`, () => {
    const nested: RlpItem = ['0x12', [text]];
    assert.throws(() => encodeRlp(nested), { name: 'Fault', code: 'inconsistent' });
  });
}
