import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { decimalText } from '../../src/core/decimal.ts';
import {
  add,
  compare,
  divide,
  type Fraction,
  floor,
  floorTo,
  fractionFrom,
  fractionOf,
  multiply,
  negate,
  subtract,
  zero,
} from '../../src/core/fraction.ts';

const fractions = fc
  .tuple(fc.bigInt({ min: -(2n ** 256n), max: 2n ** 256n }), fc.bigInt({ min: 1n, max: 10n ** 40n }))
  .map(([numerator, denominator]): Fraction => ({ numerator, denominator }));

const isSame = (one: Fraction, other: Fraction) => compare(one, other) === 0;

test('sums, products and quotients undo each other exactly', () => {
  fc.assert(
    fc.property(fractions, fractions, (one, other) => {
      assert.ok(isSame(subtract(add(one, other), other), one));
      assert.ok(isSame(add(one, negate(one)), zero));
      const quotient = divide(one, other);
      assert.equal(quotient === undefined, other.numerator === 0n);
      if (quotient !== undefined) assert.ok(isSame(multiply(quotient, other), one));
    }),
  );
});

test('a sum of many decimal numbers has the denominator of the longest one', () => {
  const [short, long] = [fractionFrom('0.12345678901234567'), fractionFrom('0.123456789012345678')];
  let sum = zero;
  for (let count = 0; count < 1_000; count += 1) sum = add(sum, count % 2 === 0 ? short : long);
  assert.equal(sum.denominator, 10n ** 18n);
  assert.equal(decimalText(floorTo(sum, 18)), '123.456789012345674');
});

test('floor is the greatest integer that is not above the fraction, for negative numbers too', () => {
  fc.assert(
    fc.property(fractions, (one) => {
      const whole = floor(one);
      assert.ok(compare(fractionOf(whole), one) <= 0);
      assert.ok(compare(fractionOf(whole + 1n), one) > 0);
    }),
  );
});

test('a fraction just below an integer is not rounded up', () => {
  const hair: Fraction = { numerator: 10n ** 60n - 1n, denominator: 10n ** 60n };
  assert.equal(floor(hair), 0n);
  assert.equal(decimalText(floorTo(hair, 18)), '0.999999999999999999');
  assert.equal(decimalText(floorTo(negate(hair), 2)), '-1');
});

test('a decimal text becomes exactly that fraction', () => {
  assert.ok(isSame(fractionFrom('0.10'), { numerator: 1n, denominator: 10n }));
  assert.ok(isSame(fractionFrom('1e-7'), { numerator: 1n, denominator: 10n ** 7n }));
  assert.ok(isSame(fractionFrom('-2.5'), { numerator: -5n, denominator: 2n }));
});
