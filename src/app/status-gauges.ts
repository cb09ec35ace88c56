/**
 * The gauges that are set when metrics are read.
 */
import { never } from '../core/abort.ts';
import { ageSeconds } from '../core/age.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Metrics } from '../core/metrics.ts';
import { findTipTimes } from '../store/blocks/blocks.ts';
import { countMissed } from '../store/blocks/missed-blocks.ts';
import { withLimit, withoutLost } from '../store/db/lost-shards.ts';
import { queueStatistics } from '../store/delivery/pending.ts';
import type { Trouble } from './deployment-status.ts';
import type { FollowingTrouble } from './following-trouble.ts';
import { refreshNotificationMetrics, removeNotificationMetrics } from './notification-status.ts';
import { refreshPairMetrics } from './pair-status.ts';
import { refreshPriceMetrics } from './price-status.ts';
import { DATABASE_MS_MAX } from './readiness.ts';
import type { StatusOptions } from './stored-status.ts';

/** Sets the gauges, in a limited time. Without the database, the nodes still give their part. */
export function createRefresh(options: StatusOptions, following: FollowingTrouble): () => Promise<void> {
  const { database, nodes, clock, metrics, deployment } = options;
  /** Scrapes share it, so that those that a slow database holds up don't take all connections. */
  let refreshing: Promise<void> | undefined;

  async function refresh(): Promise<void> {
    const now = clock.now();
    const tip = nodes && (await findTipTimes(database).catch(() => undefined));
    await refreshGauges(options, nodes && following.find(tip?.number), now);
  }

  return async () => {
    refreshing ??= refresh().finally(() => {
      refreshing = undefined;
    });
    const outcome = await firstOrLate({ clock, signal: never }, [refreshing], DATABASE_MS_MAX);
    if (outcome !== 'late') return;
    removeStoredGauges(metrics);
    deployment?.removeMetrics();
  };
}

/** Sets the gauges. When the database can't be read, removes those whose values would be old, and rejects. */
async function refreshGauges(options: StatusOptions, own: Trouble | undefined, now: Date): Promise<void> {
  const { config, database, nodes, metrics, deployment } = options;
  for (const { name, throttle } of nodes?.status() ?? [])
    metrics.rpcConcurrencyMax.set({ node: name }, throttle.concurrency);
  await deployment?.refreshMetrics(now, own);
  if (deployment === undefined) metrics.chainHeld.set(own?.state === 'holding' ? 1 : 0);
  const lost = await countMissed(database);
  metrics.lostWorkers.set(lost.length);
  metrics.missedBlocks.set(Math.max(0, ...lost.map(({ blocks }) => blocks)));
  const present = await withoutLost(withLimit(database, DATABASE_MS_MAX), lost);
  const queue = await queueStatistics(present, now).catch((error: unknown) => {
    removeStoredGauges(metrics);
    throw error;
  });
  metrics.webhookWaiting.set(queue.waiting + queue.held + queue.deferred);
  metrics.webhookDue.set(queue.due);
  metrics.webhookOldestDueSeconds.set(
    queue.oldestDueAt === undefined ? 0 : ageSeconds(queue.oldestDueAt, now),
  );
  await refreshNotificationMetrics(config, { database: present, metrics });
  await refreshPriceMetrics(config, { database, metrics }, now);
  await refreshPairMetrics(config, { database, metrics }, now);
}

/** Removes the gauges that are read from the database. */
function removeStoredGauges(metrics: Metrics): void {
  for (const gauge of [metrics.webhookWaiting, metrics.webhookDue, metrics.webhookOldestDueSeconds])
    gauge.remove();
  removeNotificationMetrics(metrics);
  metrics.priceAgeSeconds.reset();
  metrics.priceStale.reset();
}
