/**
 * Decides one price from several sources: drops implausible observations and takes the median of the rest
 * (docs/explanation/prices.md). Pure.
 */
import { type Decimal, decimal } from '../core/decimal.ts';

/** A source's observation of the price in USD. */
export type Observation = {
  price: Decimal;
  /** The uncertainty of the price in USD. Undefined if the source doesn't give it. */
  conf: Decimal | undefined;
  /** The time of the price. */
  at: Date;
  /** Older observations are stale. */
  maxAgeMs: number;
};

/** used: part of the price. outlier: too far from the others. The other three are excluded before the comparison. */
export type Verdict = 'used' | 'outlier' | 'stale' | 'not_positive' | 'uncertain';

type Decision<T extends Observation> = {
  /** Undefined if no observation is usable. */
  price: Decimal | undefined;
  /** All observations, in their order. */
  judged: { observation: T; verdict: Verdict }[];
  /** True if several observations are usable and at most half of them agree. */
  isDisputed: boolean;
  /** True if at least two observations agree and the price is not disputed. */
  isAgreed: boolean;
};

/** Maximum uncertainty, as a share of the price. */
const CONF_SHARE_MAX = decimal('0.01');
/** Maximum distance of one of three or more observations from their median, as a share of the median. */
const DISTANCE_SHARE_MAX = decimal('0.05');
/** Maximum difference of two observations, as a share of their mean. */
const DIFFERENCE_SHARE_MAX = decimal('0.03');
/** Tolerance for differing clocks. An observation further in the future is useless, because its age is unknown. */
const AHEAD_MS_MAX = 60_000;
const HALF = decimal('0.5');

/**
 * Decides on a price. If the sources don't agree, the observation nearest to `last` becomes the price (the first of several equally near
 * ones). Without `last` there is then no price.
 *
 * A price that `last` decided must not become the next `last`. Otherwise one hostile source of two could move the price without
 * limit, because in each round it could be as far beyond `last` as the honest one is below it.
 */
export function decidePrice<T extends Observation>(
  observations: readonly T[],
  { now, last }: { now: Date; last: Decimal | undefined },
): Decision<T> {
  const believed = observations.filter((observation) => doubtOf(observation, now) === undefined);
  const agreeing = agreeingOf(believed);
  const used = agreeing.length > 0 || last === undefined ? agreeing : nearestTo(believed, last);
  const isDisputed = believed.length > 1 && used.length * 2 <= believed.length;
  return {
    price: used.length === 0 ? undefined : medianOf(used),
    judged: observations.map((observation) => ({
      observation,
      verdict: doubtOf(observation, now) ?? (used.includes(observation) ? 'used' : 'outlier'),
    })),
    isDisputed,
    isAgreed: used.length > 1 && !isDisputed,
  };
}

function doubtOf({ price, conf, at, maxAgeMs }: Observation, now: Date): Verdict | undefined {
  const ageMs = now.getTime() - at.getTime();
  if (ageMs > maxAgeMs || ageMs < -AHEAD_MS_MAX) return 'stale';
  if (price.lte(0)) return 'not_positive';
  return conf?.gt(price.times(CONF_SHARE_MAX)) === true ? 'uncertain' : undefined;
}

/** The observations that agree. Empty if two contradict each other, or if an even number splits into two halves. */
function agreeingOf<T extends Observation>(believed: readonly T[]): readonly T[] {
  if (believed.length < 2) return believed;
  const middle = medianOf(believed);
  // Each of two observations is half their difference away from their mean.
  const share = believed.length === 2 ? DIFFERENCE_SHARE_MAX.times(HALF) : DISTANCE_SHARE_MAX;
  const distanceMax = middle.times(share);
  return believed.filter(({ price }) => price.minus(middle).abs().lte(distanceMax));
}

function nearestTo<T extends Observation>(believed: readonly T[], last: Decimal): T[] {
  const distanceOf = ({ price }: T) => price.minus(last).abs();
  // Sorting is stable, so the first of two equally near observations wins.
  return [...believed].sort((one, other) => distanceOf(one).cmp(distanceOf(other))).slice(0, 1);
}

/** The middle price, or the mean of the two middle prices if their number is even. Exact. */
export function medianOf(observations: readonly Pick<Observation, 'price'>[]): Decimal {
  const prices = observations.map(({ price }) => price).sort((one, other) => one.cmp(other));
  const upper = prices[Math.floor(prices.length / 2)];
  const lower = prices[Math.ceil(prices.length / 2) - 1];
  if (upper === undefined || lower === undefined) throw new Error('there is no median of nothing');
  return upper.plus(lower).times(HALF);
}
