/**
 * Says in the log when notifications of a watcher pile up. They are delivered all the same.
 */
import type { Step } from '../core/loop.ts';
import type { Db } from '../store/db/db.ts';
import { listPendingAbove } from '../store/delivery/pending.ts';

/** How often to look: each look reads the index of everything that waits. */
export const PENDING_ALARM_MS = 30_000;

/** The step that looks once, where there is a limit; it logs each watcher when it comes above the limit and when it is below again. */
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
