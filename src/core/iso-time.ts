/**
 * Times as people and programs write them: ISO 8601 with an offset, or a day alone.
 */
/** The years that a time can be of. Beyond them it is a mistake, and databases and JavaScript part ways. */
export const YEAR_MIN = 1970;
export const YEAR_MAX = 2999;

const FORM = /^(\d{4}-(?:0[1-9]|1[0-2]))-(\d\d)(T\d\d:\d\d(:\d\d(\.\d{1,20})?)?(Z|[+-]\d\d:\d\d))?$/;

/**
 * The moment of a text such as `2026-01-31T12:00:00Z`, with any offset; of a day, its first moment in UTC. Undefined for
 * anything else: days that there are not, times without an offset, other years.
 */
export function findIsoTime(text: string): Date | undefined {
  const [, month, day, time] = FORM.exec(text) ?? [];
  if (month === undefined || !isTimeYear(month)) return undefined;
  // Dates roll over where there is no such day: day 0 is the last one of the month before.
  const dayMax = new Date(Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5)), 0)).getUTCDate();
  if (Number(day) < 1 || Number(day) > dayMax) return undefined;
  const at = new Date(time === undefined ? `${text}T00:00:00.000Z` : text);
  return Number.isNaN(at.getTime()) ? undefined : at;
}

/** Whether a text that begins with a year begins with one that times can be of. */
export function isTimeYear(text: string): boolean {
  const year = Number(text.slice(0, 4));
  return year >= YEAR_MIN && year <= YEAR_MAX;
}
