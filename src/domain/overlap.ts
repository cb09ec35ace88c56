/**
 * The overlap of a rotation: how many hours the old key or secret stays valid beside the new one.
 */

export const OVERLAP_HOURS_DEFAULT = 24;
/** A year. For a longer overlap, issue a second one. */
export const OVERLAP_HOURS_MAX = 8_760;

const HOUR_MS = 3_600_000;

export function overlapMsOf(hours: number): number {
  return hours * HOUR_MS;
}
