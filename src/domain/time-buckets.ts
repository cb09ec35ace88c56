/**
 * Buckets of a histogram of times. Each is at most 10 % wide, so a percentile read from them is at most that much too high.
 */

/** Below this, each millisecond has a bucket. */
const EXACT_MS = 10;
/** Each further bound is this much higher than the one before. */
const GROWTH = 1.1;
const BOUNDS = makeBounds();

/** The upper bounds of the buckets in milliseconds, inclusive. The last bucket has no bound. */
export const bucketBoundsMs: readonly number[] = BOUNDS;

/** Whole milliseconds up to a month. Rounding down keeps each bucket at most 10 % wide. */
function makeBounds(): number[] {
  const bounds = Array.from({ length: EXACT_MS + 1 }, (_, ms) => ms);
  const monthMs = 31 * 86_400_000;
  for (let last = EXACT_MS; last < monthMs; ) {
    last = Math.max(last + 1, Math.floor(last * GROWTH));
    bounds.push(last);
  }
  return bounds;
}

/** How many times are in each bucket, by the number of the bucket. */
type TimeHistogram = Float64Array;

export const createTimeHistogram = (): TimeHistogram => new Float64Array(BOUNDS.length + 1);

export type TimePercentiles = { count: number; p50Ms: number; p95Ms: number; p99Ms: number };

/** The percentiles of the times: upper bounds of their buckets. Undefined without times. */
export function percentilesOf(histogram: TimeHistogram): TimePercentiles | undefined {
  let count = 0;
  for (const times of histogram) count += times;
  if (count === 0) return undefined;
  let bucket = 0;
  let upTo = histogram[0] ?? 0;
  /** The shares are asked in ascending order, so that one pass finds all. */
  const at = (share: number): number => {
    for (const needed = Math.ceil(count * share); upTo < needed; upTo += histogram[bucket] ?? 0) bucket += 1;
    return boundOf(bucket);
  };
  return { count, p50Ms: at(0.5), p95Ms: at(0.95), p99Ms: at(0.99) };
}

/** The upper bound of a bucket in milliseconds; of the last one, its lower bound. */
export const boundOf = (bucket: number): number => BOUNDS[bucket] ?? BOUNDS.at(-1) ?? 0;
