/**
 * The gauges that are set when metrics are read.
 */
import { never } from '../core/abort.ts';
import { ageSeconds } from '../core/age.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Metrics } from '../core/metrics.ts';
import { countMissed } from '../store/blocks/missed-blocks.ts';
import { withLimit, withoutLost } from '../store/db/lost-shards.ts';
import { queueStatistics } from '../store/delivery/pending.ts';
import type { Trouble } from './deployment-status.ts';
import { refreshNotificationMetrics, removeNotificationMetrics } from './notification-status.ts';
import { refreshPairMetrics } from './pair-status.ts';
import { refreshPriceMetrics } from './price-status.ts';
import { DATABASE_MS_MAX } from './readiness.ts';
import type { StatusOptions } from './stored-status.ts';

type States = {
  /** The trouble of following here. */
  findOwn(): Promise<Trouble | undefined>;
  /** The state that the gauge shows. */
  findState(): Promise<(typeof states)[number]>;
};

const states = ['ok', 'degraded', 'holding'] as const;

/** Sets the gauges, in a limited time. Without the database, the nodes still give their part. */
export function createRefresh(options: StatusOptions, { findOwn, findState }: States): () => Promise<void> {
  const { nodes, clock, metrics, deployment } = options;
  /** Scrapes share it, so that those that a slow database holds up don't take all connections. */
  let refreshing: Promise<void> | undefined;

  async function refreshState(now: Date): Promise<void> {
    const own = nodes && (await findOwn().catch(() => undefined));
    await deployment?.refreshMetrics(now, own);
    if (deployment === undefined) metrics.chainHeld.set(own?.state === 'holding' ? 1 : 0);
  }

  async function refreshShown(): Promise<void> {
    const current = await findState().catch((error: unknown) => {
      metrics.state.reset();
      throw error;
    });
    for (const state of states) metrics.state.set({ state }, state === current ? 1 : 0);
  }

  return async () => {
    const now = clock.now();
    for (const { name, throttle } of nodes?.status() ?? [])
      metrics.rpcConcurrencyMax.set({ node: name }, throttle.concurrency);
    refreshing ??= refreshStored(options, now).finally(() => {
      refreshing = undefined;
    });
    const [stored] = await Promise.allSettled([
      firstOrLate({ clock, signal: never }, [refreshing], DATABASE_MS_MAX),
      refreshState(now),
      refreshShown(),
    ]);
    if (stored.status === 'rejected') throw stored.reason;
    if (stored.value === 'late') removeStoredGauges(metrics);
  };
}

/** Sets the gauges of what is stored. When the database can't be read, removes those whose values would be old, and rejects. */
async function refreshStored({ config, database, metrics }: StatusOptions, now: Date): Promise<void> {
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
