/**
 * Formats several runs for one cell of a table.
 */

/** The median, with the lowest and the highest value in brackets; a dash for no values. */
export function spreadOf(values: readonly number[]): string {
  const sorted = values.toSorted((one, other) => one - other);
  const [lowest] = sorted;
  const highest = sorted.at(-1);
  if (lowest === undefined || highest === undefined) return '–';
  const median = Number(medianOf(values).toFixed(2));
  return lowest === highest ? `${median}` : `${median} (${lowest}–${highest})`;
}

/** The middle value, or the mean of both middle values; NaN for no values. */
export function medianOf(values: readonly number[]): number {
  const sorted = values.toSorted((one, other) => one - other);
  const upper = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  const lower = sorted[Math.floor((sorted.length - 1) / 2)] ?? Number.NaN;
  return (lower + upper) / 2;
}
