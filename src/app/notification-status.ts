/**
 * Notifications that need an operator's attention: orphaned after delivery, or too many pending. Every process shows the same,
 * because it is read from the database.
 */
import type { Config } from '../config/schema.ts';
import type { Metrics } from '../core/metrics.ts';
import type { Db } from '../store/db/db.ts';
import { countOrphaned } from '../store/delivery/orphaned.ts';
import { listPendingAbove } from '../store/delivery/pending.ts';
import { limitsOf } from './watcher-limits.ts';

/** For /status: delivered transfers that were orphaned without a removal notice, and the number of watchers above their pending limit. */
export async function describeNotifications(config: Config, database: Db) {
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

/** While they can't be read. */
export const unknownNotifications = { orphaned: null, watchers_over_pending_limit: null };

/** Sets the gauges; the one of the pending limit only where there is a limit. */
export async function refreshNotificationMetrics(
  config: Config,
  { database, metrics }: { database: Db; metrics: Metrics },
): Promise<void> {
  const { orphaned, watchers_over_pending_limit: above } = await describeNotifications(config, database);
  removeNotificationMetrics(metrics);
  metrics.webhookOrphaned.set(orphaned.count);
  if (above !== null) metrics.watchersOverPendingLimit.set(above);
}

/** While the database can't be read, because the counts would be old. */
export function removeNotificationMetrics(metrics: Metrics): void {
  metrics.webhookOrphaned.remove();
  metrics.watchersOverPendingLimit.remove();
}
