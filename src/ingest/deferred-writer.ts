/**
 * The step that writes deferred notifications: the watchers take turns, the one that has waited longest first.
 */
import type { Clock } from '../core/clock.ts';
import type { Step } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import { writeDeferred } from '../store/blocks/write-deferred.ts';
import type { Database } from '../store/db/db.ts';
import { type DeferralLimits, deferralLimits } from '../store/matching/deferred.ts';

/** Of each writing time this many times as long is the others': these rows were not to delay them. */
const PAUSE_SHARE = 3;
/** On a busy machine a transaction takes longer, and as much still has to be written. */
const PAUSE_MS_MAX = 200;

export function createDeferredWriter({
  database,
  clock,
  confirmations,
  metrics,
  limits = deferralLimits,
}: {
  database: Database;
  clock: Clock;
  /** As the follower has it. */
  confirmations: number;
  metrics: Pick<Metrics, 'ingestNotifications'>;
  limits?: DeferralLimits;
}): Step {
  /** When each watcher had its last turn, as a count of turns. */
  const turns = new Map<number, number>();
  let turn = 0;

  function sortWatchers(watcherIds: readonly number[]): readonly number[] {
    const waiting = new Set(watcherIds);
    for (const id of turns.keys()) if (!waiting.has(id)) turns.delete(id);
    return watcherIds.toSorted((one, other) => (turns.get(one) ?? 0) - (turns.get(other) ?? 0));
  }

  return async (signal) => {
    const startedMs = clock.steadyMs();
    const written = await writeDeferred(database, { confirmations, now: clock.now(), sortWatchers, limits });
    if (written === undefined) return 'idle';
    turn += 1;
    for (const id of written.watcherIds) turns.set(id, turn);
    metrics.ingestNotifications.inc(written.notificationCount);
    await clock.wait(Math.min(PAUSE_SHARE * (clock.steadyMs() - startedMs), PAUSE_MS_MAX), signal);
    return 'worked';
  };
}
