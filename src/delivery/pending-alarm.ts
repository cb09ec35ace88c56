/**
 * Logs when a watcher has too many pending notifications. They are still delivered.
 */
import type { Step } from '../core/loop.ts';
import type { Db } from '../store/db/db.ts';
import { listPendingAbove } from '../store/delivery/pending.ts';

/** How often to check; each check counts what waits. */
export const PENDING_ALARM_MS = 30_000;

/** The step checks once, if there is a limit. It logs each watcher that rises above the limit, and that falls below it again. */
export function createPendingAlarm({
  database,
  log,
  limits: { pendingNotifications: limit },
}: {
  database: Db;
  log: Record<'info' | 'warn', (fields: object, event: string) => void>;
  limits: { pendingNotifications?: number | undefined };
}): Step {
  let alarmed = new Set<number>();
  return async () => {
    if (limit === undefined) return 'idle';
    const above = await listPendingAbove(database, limit);
    for (const { watcherId, pending } of above)
      if (!alarmed.has(watcherId)) log.warn({ watcher: watcherId, pending, limit }, 'delivery.pending_alarm');
    const now = new Set(above.map(({ watcherId }) => watcherId));
    for (const watcher of alarmed)
      if (!now.has(watcher)) log.info({ watcher, limit }, 'delivery.pending_ended');
    alarmed = now;
    return 'idle';
  };
}
