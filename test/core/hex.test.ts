import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { getAddress } from 'viem/utils';
import { Fault } from '../../src/core/fault.ts';
import { checksumAddress, fromBytes, parseAddress, toBytes, zeroAddress } from '../../src/core/hex.ts';

const ADDRESS = '0xabcdef0123456789abcdef0123456789abcdef01';
const HEX_DIGITS = '0123456789abcdefABCDEF'.split('');

test('an address is the same with and without 0x and in any letter case (spec 2.6)', () => {
  const digits = ADDRESS.slice(2);
  const forms = [
    ADDRESS,
    digits,
    digits.toUpperCase(),
    `0X${digits.toUpperCase()}`,
    '0xAbCdEf0123456789aBcDeF0123456789AbCdEf01',
  ];
  for (const text of forms) assert.equal(parseAddress(text), ADDRESS);
  assert.equal(zeroAddress, `0x${'0'.repeat(40)}`);
});

test('anything but 40 hexadecimal characters is refused as invalid', () => {
  const digits = ADDRESS.slice(2);
  const refused = [
    '',
    '0x',
    `${ADDRESS}0`,
    digits.slice(1),
    `0x0x${digits.slice(2)}`,
    ` ${ADDRESS}`,
    `${ADDRESS}\n`,
    `${digits.slice(1)}g`,
    `${digits.slice(1)}é`,
  ];
  for (const text of refused) {
    assert.throws(
      () => parseAddress(text),
      (error) => error instanceof Fault && error.code === 'invalid',
      JSON.stringify(text),
    );
  }
});

test('any text gives an address of 0x and 40 lower-case digits, or a Fault', () => {
  const nearly = fc.string({ unit: fc.constantFrom(...HEX_DIGITS, 'x', ' '), minLength: 38, maxLength: 43 });
  fc.assert(
    fc.property(fc.oneof(nearly, fc.string()), (text) => {
      try {
        assert.match(parseAddress(text), /^0x[0-9a-f]{40}$/);
      } catch (error) {
        assert.ok(error instanceof Fault && error.code === 'invalid');
      }
    }),
  );
});

test('bytes survive a round trip through hex, also as a view into a larger buffer', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
      assert.deepEqual([...toBytes(fromBytes(bytes))], [...bytes]);
      const padded = new Uint8Array([9, 9, ...bytes, 9]);
      assert.equal(fromBytes(padded.subarray(2, 2 + bytes.length)), fromBytes(bytes));
    }),
  );
});

test('checksums match the examples of EIP-55, and viem for any address', () => {
  for (const example of [
    '0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed',
    '0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb',
  ]) {
    assert.equal(checksumAddress(parseAddress(example)), example);
  }
  fc.assert(
    fc.property(fc.uint8Array({ minLength: 20, maxLength: 20 }), (bytes) => {
      assert.equal(checksumAddress(fromBytes(bytes)), getAddress(fromBytes(bytes)));
    }),
  );
});
