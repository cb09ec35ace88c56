/**
 * Turns one line of a points import, with its fields as texts, into an award.
 */
import { type Decimal, decimal } from '../core/decimal.ts';
import { Fault, type Problem } from '../core/fault.ts';
import { type Hash, parseAddress } from '../core/hex.ts';
import { findIsoTime, isTimeYear, YEAR_MAX, YEAR_MIN } from '../core/iso-time.ts';
import { UNFIT_CHARACTERS } from '../core/stored-text.ts';
import type { Award } from './award.ts';
import { type Month, monthOf, monthPeriod, parseMonth } from './month.ts';

export const awardFields = [
  'user',
  'category',
  'points',
  'month',
  'created_at',
  'hash',
  'id',
  'ordinal',
] as const;

/** Absent fields are undefined or empty. */
export type AwardLine = { [field in (typeof awardFields)[number]]?: string | undefined };

/** Always 1, because an import doesn't depend on a rule whose version could change. */
const VERSION = 1;
/** The rule of an imported award. If the line has an `id`, the rule is `import:<id>`. No configured rule has either name. */
export const IMPORT_RULE = 'import';
const WHOLE_DIGITS_MAX = 78;
const FRACTION_DIGITS_MAX = 36;
const NUMBER_CHARACTERS_MAX = 200;
/** Refuses control characters, lone surrogates and bytes that weren't UTF-8. */
const CATEGORY = new RegExp(`^[^${UNFIT_CHARACTERS}]{1,64}$`, 'u');

/**
 * Parses the award of a line. The ordinal defaults to 0. With only a month, the time is the month's first moment.
 * @throws Fault `invalid` with every problem; paths are field names.
 */
export function parseAwardLine(line: AwardLine): Award {
  const problems: Problem[] = [];
  const read = <T>(field: keyof AwardLine, parse: (text: string) => T): T | undefined => {
    try {
      return parse(line[field]?.trim() ?? '');
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      problems.push({ path: field, message: error.message });
      return undefined;
    }
  };
  const user = read('user', parseUser);
  const category = read('category', parseCategory);
  const points = read('points', parsePoints);
  const month = read('month', (text) => (text === '' ? undefined : parseAwardMonth(text)));
  const createdAt = read('created_at', (text) => (text === '' ? undefined : parseTime(text)));
  const txHash = read('hash', parseHash);
  const rule = read('id', parseId);
  const ordinal = read('ordinal', parseOrdinal);
  const awardedAt = createdAt ?? (month && monthPeriod(month).start);
  if (awardedAt === undefined && problems.every(({ path }) => path !== 'month' && path !== 'created_at'))
    problems.push({ path: 'created_at', message: 'is missing. Give created_at or month' });
  if (createdAt !== undefined && month !== undefined && monthOf(createdAt) !== month)
    problems.push({ path: 'month', message: 'must be the month of created_at in UTC' });
  const found = { rule, category, user, points, txHash, ordinal, awardedAt };
  if (problems.length > 0 || !isWhole(found)) throw new Fault('invalid', 'is not an award', { problems });
  return { ...found, version: VERSION, role: 'user', block: undefined, inputs: {} };
}

type Found = Pick<Award, 'rule' | 'category' | 'user' | 'points' | 'txHash' | 'ordinal' | 'awardedAt'>;

const isWhole = (found: { [field in keyof Found]: Found[field] | undefined }): found is Found =>
  Object.values(found).every((value) => value !== undefined);

function parseUser(text: string) {
  if (!/^0x[0-9a-f]{40}$/i.test(text)) throw invalid('0x and 40 hexadecimal digits');
  return parseAddress(text);
}

function parseHash(text: string): Hash {
  if (!/^0x[0-9a-f]{64}$/i.test(text)) throw invalid('0x and 64 hexadecimal digits');
  return `0x${text.slice(2).toLowerCase()}`;
}

/** Normalizes Unicode, so that composed and decomposed letters give the same category. */
function parseCategory(text: string): string {
  const category = text.normalize('NFC');
  if (!CATEGORY.test(category))
    throw invalid('a text of 1 to 64 characters in UTF-8, without control characters');
  return category;
}

function parsePoints(text: string): Decimal {
  const isNumber = text.length <= NUMBER_CHARACTERS_MAX && /^-?\d+(\.\d+)?(e[+-]?\d{1,3})?$/i.test(text);
  const points = isNumber ? decimal(text) : undefined;
  // In a Big, `c` has the digits and `e` is the exponent of the first one.
  if (
    points === undefined ||
    points.eq(0) ||
    points.e >= WHOLE_DIGITS_MAX ||
    points.c.length - 1 - points.e > FRACTION_DIGITS_MAX
  ) {
    throw invalid(
      `a number other than 0, with at most ${WHOLE_DIGITS_MAX} digits before and ${FRACTION_DIGITS_MAX} after the point`,
    );
  }
  return points;
}

function parseTime(text: string): Date {
  const awardedAt = findIsoTime(text);
  if (awardedAt === undefined)
    throw invalid(`a time such as 2026-01-31T12:00:00Z, from ${YEAR_MIN} to ${YEAR_MAX}`);
  return awardedAt;
}

function parseAwardMonth(text: string): Month {
  if (!/^\d{4}-(0[1-9]|1[0-2])$/.test(text) || !isTimeYear(text))
    throw invalid(`a month such as 2026-01, from ${YEAR_MIN} to ${YEAR_MAX}`);
  return parseMonth(text);
}

function parseId(text: string): string {
  if (text === '') return IMPORT_RULE;
  if (!/^[\w.:-]{1,64}$/.test(text)) throw invalid('1 to 64 letters, digits and _ . : -');
  return `${IMPORT_RULE}:${text}`;
}

function parseOrdinal(text: string): number {
  if (!/^\d{0,15}$/.test(text)) throw invalid('a whole number from 0');
  return Number(text);
}

const invalid = (form: string) => new Fault('invalid', `must be ${form}`);
