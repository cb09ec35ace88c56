/**
 * Exact decimals: prices, USD values, points. Sums and products are exact; quotients and roots have FRACTION_DIGITS digits
 * after the point, the last one rounded half up.
 */
import { Big } from 'big.js';

/** Enough for the price of a token of 18 decimals in one of 18 decimals, with 18 significant digits left. */
const FRACTION_DIGITS = 36;

// A separate constructor, so that settings on the shared one don't affect it.
const Exact = Big();
Exact.DP = FRACTION_DIGITS;
Exact.RM = Exact.roundHalfUp;

export type Decimal = Big;

/** @throws Error for anything but a decimal number such as `-12.5` or `1e-7`. */
export function decimal(value: string | bigint): Decimal {
  return new Exact(value.toString());
}

/** Converts the smallest units to whole coins: 1500000n with 6 decimals is 1.5. */
export function amountOf(units: bigint, decimals: number): Decimal {
  return new Exact(`${units}e-${decimals}`);
}

// Truncates the quotient, so that it is rounded only once, later.
const Truncating = Big();
Truncating.DP = FRACTION_DIGITS;
Truncating.RM = Truncating.roundDown;

/** `part` in percent of `whole`, with two digits after the point, rounded half away from zero. */
export function percentOf(part: Decimal, whole: Decimal): Decimal {
  return new Truncating(part).times(100).div(whole).round(2, Exact.roundHalfUp);
}

/** The number in plain notation with all digits. */
export function decimalText(value: Decimal): string {
  return value.toFixed();
}

/** A value that `JSON.stringify` writes as a number with all its digits. */
export function exactNumber(value: Decimal): { rawJSON: string } {
  return JSON.rawJSON(value.toFixed());
}

/** The same for JSON that has null without a value. */
export const exactNumberOrNull = (value: Decimal | undefined) =>
  value === undefined ? null : exactNumber(value);

/** The square root of a number that is not negative. As exact as Big's `sqrt`, and more than ten times as fast. */
export function squareRoot(value: Decimal): Decimal {
  // One digit more than the result has, which says how to round.
  const shift = FRACTION_DIGITS + 1;
  const root = integerRoot(BigInt(value.times(new Exact(`1e${2 * shift}`)).toFixed(0, Exact.roundDown)));
  return new Exact(`${(root + 5n) / 10n}e-${FRACTION_DIGITS}`);
}

/** The square root of an integer that is not negative, rounded down (Newton). */
export function integerRoot(value: bigint): bigint {
  if (value < 2n) return value;
  let root = 1n << BigInt((value.toString(2).length + 1) >> 1);
  for (;;) {
    const next = (root + value / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}
