/**
 * Counts, shares and durations as text.
 */
import { groupDigits } from './amount.ts';

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;

export function formatCount(count: number): string {
  return groupDigits(String(Math.trunc(count)));
}

/** The share in percent with two decimals, cut and not rounded. "100" appears only if part and whole are equal. */
export function formatShare(part: number, whole: number): string {
  if (whole === 0) return '–';
  if (part === whole) return '100';
  const hundredths = (BigInt(part) * 10_000n) / BigInt(whole);
  const text = hundredths.toString().padStart(3, '0');
  return `${text.slice(0, -2)}.${text.slice(-2)}`;
}

/** `96 ms`, `1.3 s`, `21 min`, `3 h 12 min`, `2 d 4 h`. */
export function formatDuration(ms: number): string {
  if (ms < SECOND_MS) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND_MS) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (ms < MINUTE_MS) return `${Math.floor(ms / SECOND_MS)} s`;
  if (ms < HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min`;
  if (ms < DAY_MS) return pairOf(ms, { large: HOUR_MS, small: MINUTE_MS, names: ['h', 'min'] });
  return pairOf(ms, { large: DAY_MS, small: HOUR_MS, names: ['d', 'h'] });
}

/** The age of something, in whole seconds at least, because the page counts seconds. */
export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / SECOND_MS));
  return seconds < 60 ? `${seconds} s` : formatDuration(ms);
}

/** The duration of an attempt. Those of ten seconds and more are shown exactly, because 10.00 s is the time limit. */
export function formatAttempt(ms: number): string {
  return ms < 10 * SECOND_MS ? formatDuration(ms) : `${(ms / SECOND_MS).toFixed(2)} s`;
}

/** A whole number and its unit apart, for figures whose unit is smaller: `412` and `ms`. */
export function splitUnit(text: string): [value: string, unit: string] {
  const end = text.indexOf(' ');
  return end === -1 ? [text, ''] : [text.slice(0, end), text.slice(end + 1)];
}

/** An axis label: `12k`, `1.5M`. Labels are round numbers, so nothing is lost. */
export function formatTick(value: number): string {
  if (value >= 1_000_000) return `${trim(value / 1_000_000)}M`;
  return value >= 1_000 ? `${trim(value / 1_000)}k` : trim(value);
}

function trim(value: number): string {
  return String(Number(value.toPrecision(6)));
}

function pairOf(
  ms: number,
  { large, small, names }: { large: number; small: number; names: [string, string] },
): string {
  const rest = Math.floor((ms % large) / small);
  const head = `${Math.floor(ms / large)} ${names[0]}`;
  return rest === 0 ? head : `${head} ${rest} ${names[1]}`;
}
