/**
 * Amounts by string arithmetic. An amount is an integer in the smallest unit, as text of up to 78 digits, and is never a
 * JavaScript number.
 */

/** Decimals that a list shows. The detail shows all of them. */
export const LIST_DECIMALS = 6;
const PRICE_DIGITS = 6;

/**
 * An amount in whole units: `1,250.5` for 1250500000 with 6 decimals. More than `decimalsMax` decimals are cut, never rounded,
 * and marked with "…". Undefined decimals give the integer itself.
 */
export function formatAmount(units: string, decimals: number | undefined, decimalsMax = 255): string {
  if (!/^-?\d+$/.test(units)) return units;
  const sign = units.startsWith('-') ? '−' : '';
  const digits = units.replace(/^-?0*(?=\d)/, '');
  if (decimals === undefined || decimals === 0) return sign + groupDigits(digits);
  const padded = digits.padStart(decimals + 1, '0');
  const whole = groupDigits(padded.slice(0, -decimals));
  const fraction = padded.slice(-decimals).replace(/0+$/, '');
  const shown = fraction.slice(0, decimalsMax);
  const cut = shown.length < fraction.length ? '…' : '';
  return `${sign}${whole}${shown === '' ? '' : `.${shown}`}${cut}`;
}

/** A decimal text such as `0.41067230` as it is, grouped and cut to `decimalsMax` decimals. */
export function formatDecimal(text: string, decimalsMax = 255): string {
  const match = /^(-?)(\d+)(?:\.(\d+))?$/.exec(text);
  if (match === null) return text;
  const [, sign = '', whole = '', fraction = ''] = match;
  const kept = fraction.replace(/0+$/, '');
  const shown = kept.slice(0, decimalsMax);
  const cut = shown.length < kept.length ? '…' : '';
  return `${sign === '-' ? '−' : ''}${groupDigits(whole)}${shown === '' ? '' : `.${shown}`}${cut}`;
}

/** An amount of money with two decimals, cut: `352,766.94`. The exact one belongs in the title. */
export function formatMoney(text: string): string {
  const [whole = '', fraction = ''] = plainDecimal(text).split('.');
  return `${formatDecimal(whole)}.${fraction.slice(0, 2).padEnd(2, '0')}`;
}

/** A price with six significant digits, cut: `0.000195043`, `2,452.05`. The exact one belongs in the title. */
export function formatPrice(text: string): string {
  const plain = plainDecimal(text);
  const [whole = '', fraction = ''] = plain.split('.');
  const zeros = /^-?0$/.test(whole) ? (/^0*/.exec(fraction)?.[0].length ?? 0) : 0;
  const shown = /^-?0$/.test(whole) ? zeros + PRICE_DIGITS : Math.max(2, PRICE_DIGITS - whole.length);
  const kept = fraction.slice(0, shown).replace(/0+$/, '');
  return `${formatDecimal(whole)}${kept === '' ? '' : `.${kept}`}`;
}

/** A decimal text without an exponent. The API sends none, but a text of another origin may have one. */
export function plainDecimal(text: string): string {
  const match = /^(-?)(\d+)(?:\.(\d+))?[eE]([+-]?\d+)$/.exec(text);
  if (match === null) return text;
  const [, sign = '', whole = '', fraction = '', exponent = '0'] = match;
  const digits = whole + fraction;
  const point = whole.length + Number(exponent);
  if (point <= 0) return `${sign}0.${'0'.repeat(-point)}${digits}`;
  if (point >= digits.length) return `${sign}${digits}${'0'.repeat(point - digits.length)}`;
  return `${sign}${digits.slice(0, point)}.${digits.slice(point)}`;
}

/** A comma may be somebody's decimal point, so it separates thousands only beside a point or another comma. */
const GROUPED = /^\d{1,3}(?:,\d{3})+(?:\.\d+|(?<=,\d+,\d+))$/;

/** The integer for a text in whole units: `1.5` with 6 decimals is `1500000`. Undefined if it is none or too precise. */
export function parseAmount(text: string, decimals: number): string | undefined {
  const plain = text.trim();
  const match = /^(\d+)(?:\.(\d+))?$/.exec(GROUPED.test(plain) ? plain.replaceAll(',', '') : plain);
  if (match === null) return undefined;
  const [, whole = '', fraction = ''] = match;
  if (fraction.length > decimals) return undefined;
  return `${whole}${fraction.padEnd(decimals, '0')}`.replace(/^0+(?=\d)/, '');
}

/** Digits in groups of three: `21,408,377`. */
export function groupDigits(digits: string): string {
  return digits.replaceAll(/\B(?=(?:\d{3})+$)/g, ',');
}
