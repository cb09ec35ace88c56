/**
 * Parses ISO 8601 times with an offset, and days.
 */
/** Years outside this range are refused: they are mistakes, and databases and JavaScript treat them differently. */
export const YEAR_MIN = 1970;
export const YEAR_MAX = 2999;

const FORM = /^(\d{4}-(?:0[1-9]|1[0-2]))-(\d\d)(T\d\d:\d\d(:\d\d(\.\d{1,20})?)?(Z|[+-]\d\d:\d\d))?$/;

/**
 * The moment of a text such as `2026-01-31T12:00:00Z`, with any offset. For a day, its first moment in UTC. Undefined for any
 * other text, for days that don't exist, times without an offset, and years outside YEAR_MIN to YEAR_MAX.
 */
export function findIsoTime(text: string): Date | undefined {
  const [, month, day, time] = FORM.exec(text) ?? [];
  if (month === undefined || !isTimeYear(month)) return undefined;
  // Day 0 of the next month is the last day of this one.
  const dayMax = new Date(Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5)), 0)).getUTCDate();
  if (Number(day) < 1 || Number(day) > dayMax) return undefined;
  const at = new Date(time === undefined ? `${text}T00:00:00.000Z` : text);
  return Number.isNaN(at.getTime()) ? undefined : at;
}

/** Whether the year at the start of the text is between YEAR_MIN and YEAR_MAX. */
export function isTimeYear(text: string): boolean {
  const year = Number(text.slice(0, 4));
  return year >= YEAR_MIN && year <= YEAR_MAX;
}
