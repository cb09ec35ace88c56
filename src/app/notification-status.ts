/**
 * What operators should know of notifications beyond the queue, read from the database: the same on every process.
 */
import type { Config } from '../config/schema.ts';
import type { Metrics } from '../core/metrics.ts';
import type { Db } from '../store/db/db.ts';
import { countOrphaned } from '../store/delivery/orphaned.ts';
import { listPendingAbove } from '../store/delivery/pending.ts';
import { limitsOf } from './watcher-limits.ts';

/** For /status: transfers that receivers still count, and how many watchers have more pending than their limit. */
export async function describeTold(config: Config, database: Db) {
  const { pendingNotifications: limit } = limitsOf(config);
  const [orphaned, above] = await Promise.all([
    countOrphaned(database),
    limit === undefined ? undefined : listPendingAbove(database, limit),
  ]);
  return {
    orphaned: { count: orphaned.count, since: orphaned.since?.toISOString() ?? null },
    watchers_over_pending_limit: above?.length ?? null,
  };
}

/** Without the database. */
export const nothingTold = { orphaned: null, watchers_over_pending_limit: null };

/** Sets their gauges; those that are off or unknown are absent. */
export async function refreshToldMetrics(
  config: Config,
  { database, metrics }: { database: Db; metrics: Metrics },
): Promise<void> {
  removeToldMetrics(metrics);
  const { orphaned, watchers_over_pending_limit: above } = await describeTold(config, database);
  metrics.webhookOrphaned.set(orphaned.count);
  if (above !== null) metrics.watchersOverPendingLimit.set(above);
}

/** Without the database: old counts would be of the past. */
export function removeToldMetrics(metrics: Metrics): void {
  metrics.webhookOrphaned.remove();
  metrics.watchersOverPendingLimit.remove();
}
