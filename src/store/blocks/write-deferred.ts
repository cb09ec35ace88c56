/**
 * Writes deferred notifications (deferred.ts) in transactions of bounded size, which alternate with the commits of blocks.
 */
import type { Database } from '../db/db.ts';
import { listLost, requireAnswers, withoutLost } from '../db/lost-shards.ts';
import { wakeLanes } from '../delivery/lanes.ts';
import { advanceSequences } from '../delivery/sequence.ts';
import { recordKeys } from '../delivery/shards.ts';
import { type DeferralLimits, listDeferred, takeDeferred } from '../matching/deferred.ts';
import { insertNotifications } from '../matching/matching.ts';
import type { StoredCount } from '../matching/stored-count.ts';
import { findTip, lockCommits } from './blocks.ts';
import { lanesToWake } from './write-notifications.ts';

/**
 * Writes deferred notifications of some watchers, in the order that `sortWatchers` gives their ids, up to about
 * `limits.rowsMax` rows. Returns the watchers that it wrote for, or undefined if nothing is deferred.
 */
export async function writeDeferred(
  database: Database,
  {
    confirmations,
    now,
    sortWatchers,
    limits,
  }: {
    confirmations: number;
    now: Date;
    sortWatchers(watcherIds: readonly number[]): readonly number[];
    limits: DeferralLimits;
  },
): Promise<{ notificationCount: number; watcherIds: number[] } | undefined> {
  await requireAnswers(database, 'present', 'a transaction of deferred notifications');
  return database.transaction(async (all) => {
    await lockCommits(all);
    const tx = await withoutLost(all, await listLost(all));
    const heads = await listDeferred(tx);
    const tip = await findTip(tx);
    if (heads.size === 0 || tip === undefined) return undefined;
    const made: StoredCount[] = [];
    const watcherIds: number[] = [];
    let left = limits.rowsMax;
    for (const watcherId of sortWatchers([...heads.keys()])) {
      const deferred = await takeDeferred(tx, heads.get(watcherId) ?? 0, limits);
      made.push(
        ...(await insertNotifications(
          tx,
          {
            ...{ now, confirmations, releasedNumber: tip.number - confirmations },
            blocks: [{ header: { number: deferred.block }, transfers: [] }],
            matches: deferred.matches,
            records: recordKeys(watcherId, deferred.recordIds),
            hasEarlier: deferred.hasEarlier,
          },
          undefined,
        )),
      );
      watcherIds.push(watcherId);
      left -= deferred.recordIds.length * deferred.matches.length;
      if (left <= 0) break;
    }
    await wakeLanes(tx, lanesToWake(made), now);
    await advanceSequences(
      tx,
      made.flatMap(({ ordered }) => ordered ?? []),
      now,
    );
    return { notificationCount: made.reduce((sum, { count }) => sum + count, 0), watcherIds };
  });
}
