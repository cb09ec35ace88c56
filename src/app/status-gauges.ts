/**
 * The gauges that are set when metrics are read.
 */
import { never } from '../core/abort.ts';
import { ageSeconds } from '../core/age.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import { shareReading } from '../core/shared-reading.ts';
import { countMissed } from '../store/blocks/missed-blocks.ts';
import { withLimit, withoutLost } from '../store/db/lost-shards.ts';
import { queueStatistics } from '../store/delivery/pending.ts';
import type { Trouble } from './deployment-status.ts';
import { refreshNotificationMetrics, removeNotificationMetrics } from './notification-status.ts';
import { refreshPairMetrics, removePairMetrics } from './pair-status.ts';
import { refreshPriceMetrics, removePriceMetrics } from './price-status.ts';
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
  const refreshStored = createStoredRefresh(options);

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
    const [stored] = await Promise.allSettled([refreshStored(now), refreshState(now), refreshShown()]);
    if (stored.status === 'rejected') throw stored.reason;
  };
}

/** Gauges that are read from the database together. */
type Part = {
  /** Reads and sets them. */
  refresh(now: Date): Promise<void>;
  /** Removes them, because their values would be old. */
  remove(): void;
};

/**
 * Sets the gauges of what is stored. A part that can't be read in time loses its gauges and no others. Rejects after all parts if one
 * can't be read at all.
 */
function createStoredRefresh(options: StatusOptions): (now: Date) => Promise<void> {
  const { clock } = options;
  const parts = partsOf(options).map(({ refresh, remove }) => ({
    // Scrapes share it, so that those that a slow database holds up don't take all connections.
    refresh: shareReading(refresh, { clock, keepMs: 0 }),
    remove,
  }));
  return async (now) => {
    const outcomes = await Promise.allSettled(
      parts.map(({ refresh }) => firstOrLate({ clock, signal: never }, [refresh(now)], DATABASE_MS_MAX)),
    );
    for (const [index, outcome] of outcomes.entries())
      if (outcome.status === 'rejected' || outcome.value === 'late') parts[index]?.remove();
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  };
}

function partsOf({ config, database, metrics, clock }: StatusOptions): Part[] {
  const findLost = shareReading(() => countMissed(database), { clock, keepMs: 0 });
  const present = async (now: Date) => withoutLost(withLimit(database, DATABASE_MS_MAX), await findLost(now));
  return [
    {
      async refresh(now) {
        const lost = await findLost(now);
        metrics.lostWorkers.set(lost.length);
        metrics.missedBlocks.set(Math.max(0, ...lost.map(({ blocks }) => blocks)));
      },
      remove: () => removeAll([metrics.lostWorkers, metrics.missedBlocks]),
    },
    {
      async refresh(now) {
        const { oldestDueAt, ...counts } = await queueStatistics(await present(now), now);
        metrics.webhookWaiting.set(counts.waiting + counts.held + counts.deferred);
        metrics.webhookDue.set(counts.due);
        metrics.webhookOldestDueSeconds.set(oldestDueAt === undefined ? 0 : ageSeconds(oldestDueAt, now));
      },
      remove: () => removeAll([metrics.webhookWaiting, metrics.webhookDue, metrics.webhookOldestDueSeconds]),
    },
    {
      refresh: async (now) => refreshNotificationMetrics(config, { database: await present(now), metrics }),
      remove: () => removeNotificationMetrics(metrics),
    },
    {
      refresh: (now) => refreshPriceMetrics(config, { database, metrics }, now),
      remove: () => removePriceMetrics(metrics),
    },
    {
      refresh: (now) => refreshPairMetrics(config, { database, metrics }, now),
      remove: () => removePairMetrics(metrics),
    },
  ];
}

function removeAll(gauges: readonly { remove(): void }[]): void {
  for (const gauge of gauges) gauge.remove();
}
