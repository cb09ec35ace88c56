/**
 * The state of the price feeds, read from the database, so that every process shows the same.
 */
import type { Config } from '../config/schema.ts';
import { decimalText } from '../core/decimal.ts';
import type { Metrics } from '../core/metrics.ts';
import type { Db } from '../store/db/db.ts';
import { findLastRound, findLastRoundAt } from '../store/prices/price-rounds.ts';
import { findCurrentPrice } from '../store/prices/prices.ts';
import { listFeeds, staleSeconds } from './price-feeds.ts';
import type { NewestWork } from './process-registry.ts';

/** For /status: each feed with its newest price, and the reports of its sources in the newest round. */
export function describePrices(config: Config, database: Db, now: Date) {
  return Promise.all(
    listFeeds(config).map(async ({ asset: { asset }, feed }) => {
      const [price, round] = await Promise.all([
        findCurrentPrice(database, asset, { now, maxAgeMs: undefined }),
        findLastRound(database, asset),
      ]);
      const ageSeconds =
        price === undefined ? undefined : (now.getTime() - price.observedAt.getTime()) / 1000;
      return {
        asset,
        price: price === undefined ? null : decimalText(price.price),
        age_seconds: ageSeconds ?? null,
        stale: ageSeconds === undefined || ageSeconds > staleSeconds(feed),
        sources: (round?.reports ?? []).map((report) => ({
          source: report.source,
          verdict: report.verdict,
          price: report.price === undefined ? null : decimalText(report.price),
          observed_at: report.observedAt?.toISOString() ?? null,
          message: report.message ?? null,
        })),
      };
    }),
  );
}

/** The newest round of any feed. `asset` is that of the feed whose rounds are the most frequent. */
export type NewestRound = NewestWork & { asset: string };

/**
 * The newest round of any feed, which is overdue once the most frequent feed should have had one. A feed without a round doesn't count,
 * because it may be new, and the process that reads prices may get it later than this one.
 */
export async function findNewestRound(
  config: Config,
  database: Db,
  now: Date,
): Promise<NewestRound | undefined> {
  const found = await Promise.all(
    listFeeds(config).map(async ({ asset: { asset }, feed: { everySeconds } }) => {
      const at = await findLastRoundAt(database, asset);
      return at === undefined
        ? []
        : [{ asset, everyMs: everySeconds * 1000, ageMs: now.getTime() - at.getTime() }];
    }),
  );
  const rounds = found.flat();
  const [mostFrequent] = rounds.toSorted((one, other) => one.everyMs - other.everyMs);
  if (mostFrequent === undefined) return undefined;
  const ageMs = Math.min(...rounds.map((round) => round.ageMs));
  return { asset: mostFrequent.asset, ageMs, overdueMs: ageMs - mostFrequent.everyMs };
}

/** Sets the gauges that depend on the time. */
export async function refreshPriceMetrics(
  config: Config,
  { database, metrics }: { database: Db; metrics: Metrics },
  now: Date,
): Promise<void> {
  for (const { asset, age_seconds, stale } of await describePrices(config, database, now)) {
    if (age_seconds !== null) metrics.priceAgeSeconds.set({ asset }, age_seconds);
    metrics.priceStale.set({ asset }, stale ? 1 : 0);
  }
}

/** While the database can't be read, because the ages would be old. */
export function removePriceMetrics(metrics: Metrics): void {
  metrics.priceAgeSeconds.reset();
  metrics.priceStale.reset();
}
