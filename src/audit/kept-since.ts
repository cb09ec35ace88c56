/**
 * From when on stored data is complete: by the configured retention, and by what retention has deleted. The two differ after a
 * retention was raised, after the clock was ahead, and while retention runs.
 */
import type { Clock } from '../core/clock.ts';
import { WHOLE_MS } from '../ingest/pairs/pair-retention.ts';
import type { Db } from '../store/db/db.ts';
import { readPruneMarks } from '../store/retention/prune-marks.ts';
import type { KeptSince } from './compare-batch.ts';

/** How far ahead of retention the second attempt stays, beside twice the time of the first. */
const MARGIN_MS = 120_000;

/** The kind of rows that each time is of. */
const kinds = { keptSince: 'notification', swapsKeptSince: 'swap', statesKeptSince: 'pair_state' } as const;
const names = ['keptSince', 'swapsKeptSince', 'statesKeptSince'] as const;

/**
 * Runs comparisons with the times from which on data is complete. Repeats one that retention has overtaken, because a dropped
 * partition is missing even in a snapshot from before.
 */
export function createKeptSince(
  { db, clock, now }: { db: Db; clock: Pick<Clock, 'steadyMs'>; now: Date },
  { notificationsMs, swapsMs }: { notificationsMs: number; swapsMs: number },
): <T>(compare: (kept: KeptSince) => Promise<T>) => Promise<T> {
  const retentionMs = { keptSince: notificationsMs, swapsKeptSince: swapsMs, statesKeptSince: WHOLE_MS };
  async function read(marginMs = 0): Promise<KeptSince> {
    const marks = await readPruneMarks(db);
    const timeOf = (name: keyof KeptSince) =>
      new Date(
        Math.max(now.getTime() - retentionMs[name], marks.get(kinds[name])?.getTime() ?? 0) + marginMs,
      );
    return {
      keptSince: timeOf('keptSince'),
      swapsKeptSince: timeOf('swapsKeptSince'),
      statesKeptSince: timeOf('statesKeptSince'),
    };
  }
  return async (compare) => {
    for (let marginMs = 0; ; ) {
      const startedMs = clock.steadyMs();
      const kept = await read(marginMs);
      const result = await compare(kept);
      const after = await read();
      if (names.every((name) => after[name] <= kept[name])) return result;
      marginMs = MARGIN_MS + 2 * (clock.steadyMs() - startedMs);
    }
  };
}
