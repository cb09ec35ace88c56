/**
 * Arithmetic on decimal texts such as `15147.875`, exact, for sums and differences of points and prices.
 */

import { plainDecimal } from './amount.ts';

/** The sum of decimal texts. */
export function sumOf(texts: readonly string[]): string {
  const scale = Math.max(0, ...texts.map((text) => decimalsOf(text)));
  const sum = texts.reduce((total, text) => total + scaled(text, scale), 0n);
  return unscaled(sum, scale);
}

/** Compares two decimal texts like a sort function. */
export function compare(one: string, other: string): number {
  const scale = Math.max(decimalsOf(one), decimalsOf(other));
  const difference = scaled(one, scale) - scaled(other, scale);
  return difference < 0n ? -1 : difference > 0n ? 1 : 0;
}

const decimalsOf = (text: string): number => plainDecimal(text).split('.')[1]?.length ?? 0;

function scaled(text: string, scale: number): bigint {
  const plain = plainDecimal(text);
  const [whole = '0', fraction = ''] = plain.replace('-', '').split('.');
  const size = BigInt(whole + fraction.padEnd(scale, '0'));
  return plain.startsWith('-') ? -size : size;
}

function unscaled(value: bigint, scale: number): string {
  const sign = value < 0n ? '-' : '';
  const digits = (value < 0n ? -value : value).toString().padStart(scale + 1, '0');
  const fraction = scale === 0 ? '' : digits.slice(-scale).replace(/0+$/, '');
  const whole = scale === 0 ? digits : digits.slice(0, -scale);
  return `${sign}${whole}${fraction === '' ? '' : `.${fraction}`}`;
}
