/**
 * Exact fractions of integers of any size, for point rules. Nothing is rounded before `floor`.
 */
import { type Decimal, decimal, decimalText } from './decimal.ts';

/** The denominator is positive. The fraction may be unreduced. */
export type Fraction = { numerator: bigint; denominator: bigint };

export const zero: Fraction = { numerator: 0n, denominator: 1n };

export function fractionOf(integer: bigint): Fraction {
  return { numerator: integer, denominator: 1n };
}

/** The exact value of a decimal number. @throws Error for a text that isn't a decimal number. */
export function fractionFrom(value: string | Decimal): Fraction {
  const text = decimalText(typeof value === 'string' ? decimal(value) : value);
  const [whole = '', digits = ''] = text.split('.');
  return { numerator: BigInt(whole + digits), denominator: 10n ** BigInt(digits.length) };
}

/** The denominator of a sum of decimal numbers is that of the longest one, so that long sums stay cheap. */
export function add(left: Fraction, right: Fraction): Fraction {
  if (left.denominator < right.denominator) return add(right, left);
  if (left.denominator % right.denominator === 0n) {
    const factor = left.denominator / right.denominator;
    return { numerator: left.numerator + right.numerator * factor, denominator: left.denominator };
  }
  return {
    numerator: left.numerator * right.denominator + right.numerator * left.denominator,
    denominator: left.denominator * right.denominator,
  };
}

export function negate({ numerator, denominator }: Fraction): Fraction {
  return { numerator: -numerator, denominator };
}

export function subtract(left: Fraction, right: Fraction): Fraction {
  return add(left, negate(right));
}

export function multiply(left: Fraction, right: Fraction): Fraction {
  return { numerator: left.numerator * right.numerator, denominator: left.denominator * right.denominator };
}

/** Undefined if the divisor is zero. */
export function divide(left: Fraction, right: Fraction): Fraction | undefined {
  if (right.numerator === 0n) return undefined;
  const sign = right.numerator < 0n ? -1n : 1n;
  return {
    numerator: left.numerator * right.denominator * sign,
    denominator: left.denominator * right.numerator * sign,
  };
}

/** -1 if left is less, 1 if it is greater. */
export function compare(left: Fraction, right: Fraction): -1 | 0 | 1 {
  const difference = left.numerator * right.denominator - right.numerator * left.denominator;
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

export const least = (left: Fraction, right: Fraction): Fraction =>
  compare(left, right) <= 0 ? left : right;

export const greatest = (left: Fraction, right: Fraction): Fraction =>
  compare(left, right) >= 0 ? left : right;

/** The greatest integer that is not above the fraction. */
export function floor({ numerator, denominator }: Fraction): bigint {
  const quotient = numerator / denominator;
  return numerator < 0n && quotient * denominator !== numerator ? quotient - 1n : quotient;
}

/** Rounds down, towards minus infinity, to this many digits after the point. */
export function floorTo({ numerator, denominator }: Fraction, digits: number): Decimal {
  return decimal(`${floor({ numerator: numerator * 10n ** BigInt(digits), denominator })}e-${digits}`);
}
