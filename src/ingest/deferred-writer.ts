/**
 * Writes deferred notifications in small transactions. Watchers take turns, so that one with many notifications does not
 * delay the others.
 */
import type { Clock } from '../core/clock.ts';
import type { Step } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import { noMark, writeDeferred } from '../store/blocks/write-deferred.ts';
import type { Database } from '../store/db/db.ts';
import { type DeferralLimits, deferralLimits } from '../store/matching/deferred.ts';

/** The writer pauses this many times as long as it wrote, because deferred rows must not slow down block commits. */
const PAUSE_SHARE = 3;
/** Limits the pause on a busy machine, where each transaction takes longer but the backlog is the same. */
const PAUSE_MS_MAX = 200;

export function createDeferredWriter({
  database,
  clock,
  confirmations,
  metrics,
  limits = deferralLimits,
  term = () => undefined,
}: {
  database: Database;
  clock: Clock;
  /** The same as the follower's. */
  confirmations: number;
  metrics: Pick<Metrics, 'ingestNotifications'>;
  limits?: DeferralLimits;
  /** As the follower's. */
  term?(): object | undefined;
}): Step {
  /** The number of each watcher's last turn. */
  const turns = new Map<number, number>();
  let turn = 0;
  const mark = noMark();
  let markTerm: object | undefined;

  function sortWatchers(watcherIds: readonly number[]): readonly number[] {
    const waiting = new Set(watcherIds);
    for (const id of turns.keys()) if (!waiting.has(id)) turns.delete(id);
    return watcherIds.toSorted((one, other) => (turns.get(one) ?? 0) - (turns.get(other) ?? 0));
  }

  return async (signal) => {
    const startedMs = clock.steadyMs();
    const current = term();
    if (current !== markTerm) Object.assign(mark, noMark());
    markTerm = current;
    const written = await writeDeferred(database, {
      confirmations,
      now: clock.now(),
      sortWatchers,
      limits,
      mark,
    });
    if (written === undefined) return 'idle';
    turn += 1;
    for (const id of written.watcherIds) turns.set(id, turn);
    metrics.ingestNotifications.inc(written.notificationCount);
    await clock.wait(Math.min(PAUSE_SHARE * (clock.steadyMs() - startedMs), PAUSE_MS_MAX), signal);
    return 'worked';
  };
}
