/**
 * The window in which a rule applies: from one mark, up to but excluding another. Marks are days in UTC or blocks.
 */
import type { Mark } from './text.ts';

const DAY_MS = 86_400_000;

/** Days since 1970-01-01 in UTC. */
type Day = number;

/** A position in the chain: block number and time. */
export type Moment = { number: number; minedAt: Date };

export function dayOf(time: Date): Day {
  return Math.floor(time.getTime() / DAY_MS);
}

/** The first moment of a day. */
export function startOf(day: Day): Date {
  return new Date(day * DAY_MS);
}

/** The day as `2026-01-31`. */
export function dayText(day: Day): string {
  return startOf(day).toISOString().slice(0, 10);
}

/** Undefined if the text isn't a valid day, such as 2026-02-30. */
export function parseDay(text: string): Day | undefined {
  const time = new Date(`${text}T00:00:00.000Z`);
  const isDay =
    /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(time.getTime()) && time.toISOString().startsWith(text);
  return isDay ? dayOf(time) : undefined;
}

/** Where a window begins or ends. */
export type Edge = { block: number } | { day: Day };

export type Window = { from: Edge | undefined; to: Edge | undefined };

/** @throws TypeError for a text that isn't a valid day. */
export function edgeOf(mark: Mark | undefined): Edge | undefined {
  if (mark === undefined) return undefined;
  if (typeof mark === 'number') return { block: mark };
  const day = parseDay(mark);
  if (day === undefined) throw new TypeError(`${mark} was not checked: no day`);
  return { day };
}

/** Such as `2026-01-31` or `block 7`. */
export function edgeText(edge: Edge): string {
  return 'block' in edge ? `block ${edge.block}` : dayText(edge.day);
}

export function isReached(edge: Edge, { number, minedAt }: Moment): boolean {
  return 'block' in edge ? number >= edge.block : dayOf(minedAt) >= edge.day;
}

export function isWithin({ from, to }: Window, moment: Moment): boolean {
  return (from === undefined || isReached(from, moment)) && (to === undefined || !isReached(to, moment));
}
