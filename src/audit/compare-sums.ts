/**
 * Compares stored figures with the stored rows that they are computed from: sums with swaps and awards, and prices with
 * observations. Covers the time of the range, in small statements.
 */
import { decimalText } from '../core/decimal.ts';
import { counted } from '../core/plural.ts';
import type { ValuedPair } from '../domain/pair.ts';
import { medianOf } from '../domain/price-decision.ts';
import type { Repair } from '../store/audit/apply-repairs.ts';
import { listWrongDays, listWrongMonths, listWrongVolumes } from '../store/audit/sums.ts';
import type { Db } from '../store/db/db.ts';
import { listObservedPrices, type ObservedPrice } from '../store/prices/price-rounds.ts';
import { findPrice } from '../store/prices/prices.ts';
import type { Difference } from './compare.ts';

type SumSide = {
  pairs: readonly Pick<ValuedPair, 'id'>[];
  /** Older swaps may have been deleted. Their sums remain. */
  swapsKeptSince: Date;
  /** The last block of the range, and the times of the first and the last one. */
  block: number;
  first: Date;
  last: Date;
};

const BUCKET_MS = 5 * 60_000;
const HOUR_MS = 60 * 60_000;
const DAY_MS = 24 * HOUR_MS;
/** Wrong sums that one statement returns. The next run after a repair finds the others. */
const SUMS_MAX = 1_000;

/** The sums that differ from the total of their parts. */
export async function compareSums(db: Db, side: SumSide): Promise<Difference[]> {
  return [...(await compareVolumes(db, side)), ...(await comparePoints(db, side))];
}

/** One statement for each hour, so that each reads few rows. */
async function compareVolumes(
  db: Db,
  { pairs, swapsKeptSince, block, first, last }: SumSide,
): Promise<Difference[]> {
  const differences: Difference[] = [];
  if (pairs.length === 0) return differences;
  const ids = pairs.map(({ id }) => id);
  const keptMs = Math.ceil(swapsKeptSince.getTime() / BUCKET_MS) * BUCKET_MS;
  const startMs = Math.max(keptMs, floorTo(first, BUCKET_MS));
  const endMs = floorTo(last, BUCKET_MS) + BUCKET_MS;
  for (let fromMs = startMs; fromMs < endMs; fromMs += HOUR_MS) {
    const before = new Date(Math.min(fromMs + HOUR_MS, endMs));
    const wrong = await listWrongVolumes(db, ids, { from: new Date(fromMs), before, limit: SUMS_MAX });
    for (const { pairId, startedAt, ...sum } of wrong) {
      const subject = `volume of pair ${pairId} from ${startedAt.toISOString()}`;
      const repair: Repair = { action: 'recompute_volume', pairId, startedAt };
      differences.push(difference(block, { subject, ...sum, of: 'swap' }, repair));
    }
  }
  return differences;
}

async function comparePoints(db: Db, { block, first, last }: SumSide): Promise<Difference[]> {
  const differences: Difference[] = [];
  const months = new Set<string>();
  for (let dayMs = floorTo(first, DAY_MS); dayMs <= last.getTime(); dayMs += DAY_MS) {
    const day = new Date(dayMs).toISOString().slice(0, 10);
    months.add(`${day.slice(0, 7)}-01`);
    for (const { stored, derived, ...key } of await listWrongDays(db, day, SUMS_MAX)) {
      const { user, category, rule, version, role } = key;
      const subject = `points of ${user} on ${day} in ${category} by rule ${rule} ${version} (${role})`;
      const repair: Repair = { action: 'recompute_day', ...key };
      differences.push(difference(block, { subject, stored, derived, of: 'award' }, repair));
    }
  }
  for (const month of months) {
    for (const { stored, derived, ...key } of await listWrongMonths(db, month, SUMS_MAX)) {
      const subject = `points of ${key.user} in ${month.slice(0, 7)}`;
      const repair: Repair = { action: 'recompute_month', ...key };
      differences.push(difference(block, { subject, stored, derived, of: 'award' }, repair));
    }
  }
  return differences;
}

/** Prices that one statement reads, with their observations. Takes milliseconds. */
const PRICES_PAGE = 1_000;

/**
 * Finds accepted prices that are not the median of their observations. `unobserved` counts prices without observations: those
 * were deleted because of their age, or the price came from elsewhere.
 */
export async function comparePrices(
  db: Db,
  { assets, block, first, last }: { assets: readonly string[] } & Pick<SumSide, 'block' | 'first' | 'last'>,
): Promise<{ differences: Difference[]; unobserved: number }> {
  const differences: Difference[] = [];
  let unobserved = 0;
  // Start with the price in force at the first block.
  const before = await Promise.all(assets.map((asset) => findPrice(db, asset, first)));
  const fromMs = Math.min(first.getTime(), ...before.flatMap((price) => price?.observedAt.getTime() ?? []));
  let after: ObservedPrice | undefined;
  for (;;) {
    const page = { assets, from: new Date(fromMs), to: last, after, limit: PRICES_PAGE };
    const prices = await listObservedPrices(db, page);
    for (const { id, asset, price, used } of prices) {
      if (used.length === 0) {
        unobserved += 1;
        continue;
      }
      const own = medianOf(used.map((one) => ({ price: one })));
      if (own.eq(price)) continue;
      const subject = `price ${id} of ${asset}`;
      const message = `changed: ${subject}: ${decimalText(price)} is stored, its observations give ${decimalText(own)}`;
      differences.push({ kind: 'changed', block, message, subject });
    }
    after = prices.at(-1);
    if (prices.length < PRICES_PAGE) return { differences, unobserved };
  }
}

const floorTo = (time: Date, stepMs: number) => Math.floor(time.getTime() / stepMs) * stepMs;

function difference(
  block: number,
  sum: { subject: string; stored: string | undefined; derived: string | undefined; of: 'swap' | 'award' },
  repair: Repair,
): Difference {
  const { subject, stored = 'none', derived = 'none', of } = sum;
  const textOf = (digits: string) => digits.replace(/(?<= in )\d+$/, (count) => counted(Number(count), of));
  const message = `sum: ${subject}: ${textOf(stored)} stored, ${textOf(derived)} calculated`;
  return { kind: 'sum', block, message, subject, repairs: [repair] };
}
