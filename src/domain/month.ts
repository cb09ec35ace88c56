/**
 * Months and comparison periods for points, in UTC (spec 2.1 and 4.1).
 */
import { Fault } from '../core/fault.ts';

/** Such as `2026-01`. */
export type Month = `${number}-${number}`;

/** Whole days, from 00:00:00.000 of the first to 23:59:59.999 of the last. */
export type Period = { start: Date; end: Date };

export type Comparison = {
  current: Period;
  /** The same days of the previous month. */
  lastMonth: Period;
  isFullMonth: boolean;
};

/** From this day of the month on, whole months are compared (spec 4.1). Every month has all the days before it. */
const FULL_MONTH_DAY = 28;
const DAY_MS = 86_400_000;

/** @throws Fault `invalid` for anything but `0001-01` to `9999-12`. */
export function parseMonth(text: string): Month {
  const isMonth = /^\d{4}-(0[1-9]|1[0-2])$/.test(text) && !text.startsWith('0000');
  if (!isMonth) throw new Fault('invalid', 'must be a month such as 2026-01');
  return text as Month;
}

export function monthOf(time: Date): Month {
  return parseMonth(time.toISOString().slice(0, 7));
}

/** The whole month. */
export function monthPeriod(month: Month): Period {
  const start = new Date(`${month}-01T00:00:00.000Z`);
  return { start, end: new Date(monthsLater(start, 1).getTime() - 1) };
}

/** The periods that `/vs-last-month` compares at this time (spec 4.1). */
export function comparisonAt(now: Date): Comparison {
  const current = monthPeriod(monthOf(now));
  const start = monthsLater(current.start, -1);
  const day = now.getUTCDate();
  if (day >= FULL_MONTH_DAY) return { current, lastMonth: monthPeriod(monthOf(start)), isFullMonth: true };
  return { current: firstDays(current.start, day), lastMonth: firstDays(start, day), isFullMonth: false };
}

function firstDays(start: Date, count: number): Period {
  return { start, end: new Date(start.getTime() + count * DAY_MS - 1) };
}

/** Takes the first day of a month, because the target month may lack a later day. */
function monthsLater(firstDay: Date, count: number): Date {
  const later = new Date(firstDay);
  later.setUTCMonth(later.getUTCMonth() + count);
  return later;
}
