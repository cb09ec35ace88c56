/**
 * Instants as text, in UTC or in the visitor's time zone, always with 24 hours.
 */
export type Zone = 'utc' | 'local';

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const WEEKDAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const LONG_MONTHS = [
  ...['January', 'February', 'March', 'April', 'May', 'June'],
  ...['July', 'August', 'September', 'October', 'November', 'December'],
];
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

type Parts = { year: number; month: number; day: number; weekday: number; clock: string; seconds: string };

/** `14:22:45` today, `21 Nov 14:22` this year, `21 Nov 2025 14:22` before. */
export function formatInstant(ms: number, now: { ms: number; zone: Zone }): string {
  const parts = partsOf(ms, now.zone);
  const today = partsOf(now.ms, now.zone);
  if (parts.year !== today.year) return `${parts.day} ${MONTHS[parts.month]} ${parts.year} ${parts.clock}`;
  const isToday = parts.month === today.month && parts.day === today.day;
  return isToday ? `${parts.clock}:${parts.seconds}` : `${parts.day} ${MONTHS[parts.month]} ${parts.clock}`;
}

/** `Sunday 22 November 2026, 14:23`. */
export function formatLong(ms: number, zone: Zone): string {
  const { year, month, day, weekday, clock } = partsOf(ms, zone);
  return `${WEEKDAYS[weekday]} ${day} ${LONG_MONTHS[month]} ${year}, ${clock}`;
}

/** `22 Nov 2026, 14:23:06 UTC`, for tooltips and details. */
export function formatExact(ms: number, zone: Zone): string {
  const { year, month, day, clock, seconds } = partsOf(ms, zone);
  return `${day} ${MONTHS[month]} ${year}, ${clock}:${seconds} ${zone === 'utc' ? 'UTC' : offsetName(ms)}`;
}

/** An axis label: `15:00`. */
export const formatClock = (ms: number, zone: Zone): string => partsOf(ms, zone).clock;

/** An axis label: `22 Nov`. */
export function formatDay(ms: number, zone: Zone): string {
  const { month, day } = partsOf(ms, zone);
  return `${day} ${MONTHS[month]}`;
}

/** `November 2026` for `2026-11`. */
export function formatMonth(month: string): string {
  const [year, number] = month.split('-').map(Number);
  return `${LONG_MONTHS[(number ?? 1) - 1]} ${year}`;
}

/** The month `offset` months away: `2026-10` for `2026-11` and -1. */
export function shiftMonth(month: string, offset: number): string {
  const [year = 0, number = 1] = month.split('-').map(Number);
  return new Date(Date.UTC(year, number - 1 + offset, 1)).toISOString().slice(0, 'YYYY-MM'.length);
}

/** The time until an instant: `00:14:34`, or `2 d` from a day on. */
export function formatCountdown(ms: number): string {
  if (ms >= DAY_MS) return `${Math.floor(ms / DAY_MS)} d`;
  const seconds = Math.ceil(Math.max(0, ms) / 1000);
  const two = (value: number) => String(value).padStart(2, '0');
  return [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60].map(two).join(':');
}

function partsOf(ms: number, zone: Zone): Parts {
  const date = new Date(zone === 'utc' ? ms : ms + offsetMs(ms));
  const iso = date.toISOString();
  return {
    year: date.getUTCFullYear(),
    month: date.getUTCMonth(),
    day: date.getUTCDate(),
    weekday: date.getUTCDay(),
    clock: iso.slice(11, 16),
    seconds: iso.slice(17, 19),
  };
}

const offsetMs = (ms: number): number => -new Date(ms).getTimezoneOffset() * MINUTE_MS;

/** `UTC+02:00`. */
function offsetName(ms: number): string {
  const minutes = offsetMs(ms) / MINUTE_MS;
  const size = Math.abs(minutes);
  const two = (value: number) => String(value).padStart(2, '0');
  return `UTC${minutes < 0 ? '−' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}
