/**
 * The configured limits of watchers, for the API and /status.
 */
import type { WatcherLimits } from '../api/context.ts';
import type { Config } from '../config/schema.ts';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Database } from '../store/db/db.ts';
import { hasLimits, startCounting, stopCounting } from '../store/watchers/limits.ts';

const numberOf = (limit: number | 'off') => (limit === 'off' ? undefined : limit);

export function limitsOf({ limits }: Config): WatcherLimits {
  return {
    records: numberOf(limits.records),
    recordsPerAddressAndUrl: numberOf(limits.recordsPerAddressAndUrl),
    receiverOrigins: numberOf(limits.receiverOrigins),
    pendingNotifications: numberOf(limits.pendingNotifications),
  };
}

/** Starts counting watched addresses if a limit needs it. The first count reads all of them, which may take minutes. */
export async function openLimits(
  config: Config,
  { database, clock, log }: { database: Database; clock: Clock; log: Log },
): Promise<WatcherLimits> {
  const all = limitsOf(config);
  const { records, recordsPerAddressAndUrl, receiverOrigins } = all;
  const limits = { records, recordsPerAddressAndUrl, receiverOrigins };
  if (!hasLimits(limits)) {
    await stopCounting(database);
    return all;
  }
  const startedMs = clock.steadyMs();
  await database.transaction(startCounting);
  log.info({ ...limits, durationMs: Math.round(clock.steadyMs() - startedMs) }, 'limits.counted');
  return all;
}
