import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  amountOf,
  decimal,
  decimalText,
  exactNumber,
  integerRoot,
  percentOf,
  squareRoot,
} from '../../src/core/decimal.ts';

const units = fc.bigInt({ min: 0n, max: 2n ** 256n - 1n });

test('an amount of any size keeps every digit', () => {
  fc.assert(
    fc.property(units, fc.integer({ min: 0, max: 77 }), (amount, decimals) => {
      const text = decimalText(amountOf(amount, decimals));
      const [whole = '', fraction = ''] = text.split('.');
      assert.equal(BigInt(whole + fraction.padEnd(decimals, '0')), amount);
    }),
  );
});

test('sums and products are exact', () => {
  fc.assert(
    fc.property(units, units, (one, other) => {
      assert.equal(
        decimalText(amountOf(one, 18).plus(amountOf(other, 18))),
        decimalText(amountOf(one + other, 18)),
      );
      assert.equal(
        decimalText(amountOf(one, 18).times(amountOf(other, 6))),
        decimalText(amountOf(one * other, 24)),
      );
    }),
  );
});

test('quotients have 36 digits after the point, rounded half up', () => {
  assert.equal(decimalText(decimal('2').div(decimal('3'))), `0.${'6'.repeat(35)}7`);
});

test('the integer root is the greatest integer whose square does not exceed the value', () => {
  fc.assert(
    fc.property(units, (value) => {
      const root = integerRoot(value);
      return root * root <= value && (root + 1n) ** 2n > value;
    }),
  );
});

test('a square root has 36 digits after the point, rounded half up', () => {
  assert.equal(decimalText(squareRoot(decimal('2'))), '1.414213562373095048801688724209698079');
  assert.equal(decimalText(squareRoot(decimal('2.5e-73'))), `0.${'0'.repeat(35)}1`);
  fc.assert(
    fc.property(units, fc.integer({ min: 0, max: 77 }), (value, decimals) => {
      const square = amountOf(value, decimals);
      assert.equal(decimalText(squareRoot(square)), decimalText(square.sqrt()));
    }),
  );
});

test('JSON contains a decimal as a number with all digits, in plain notation', () => {
  const value = decimal('123456789012345678901234567890.000000000000000000000001');
  assert.equal(JSON.stringify({ value: exactNumber(value) }), `{"value":${decimalText(value)}}`);
  assert.equal(JSON.stringify(exactNumber(decimal('1e-30'))), `0.${'0'.repeat(29)}1`);
});

test('text that is not a decimal number is refused', () => {
  for (const text of ['', 'NaN', 'Infinity', '1,5', '0x10', '1.2.3'])
    assert.throws(() => decimal(text), text);
});

test('a percentage of numbers of any size has two digits after the point, rounded half away from zero', () => {
  const percent = (part: string, whole: string) => decimalText(percentOf(decimal(part), decimal(whole)));
  assert.equal(percent('1', '3'), '33.33');
  assert.equal(percent('2', '3'), '66.67');
  assert.equal(percent('1', '8'), '12.5');
  assert.equal(percent('1.00005', '100'), '1');
  assert.equal(percent('12.345', '100'), '12.35');
  assert.equal(percent('-12.345', '100'), '-12.35');
  assert.equal(percent('0', '7'), '0');
  // Just below the half: rounding twice would give 0.01.
  assert.equal(percent(`0.4${'9'.repeat(60)}`, '10000'), '0');
  assert.equal(percent('9'.repeat(78), '1'), `${'9'.repeat(78)}00`);
});
