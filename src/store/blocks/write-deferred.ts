/**
 * Writes deferred notifications (deferred.ts), and releases held ones that were too many for the commit of a block (release-held.ts), in
 * transactions of bounded size, which alternate with those commits.
 */
import type { Database, Tx } from '../db/db.ts';
import { listLost, requireAnswers, withoutLost } from '../db/lost-shards.ts';
import { sql } from '../db/sql.ts';
import { wakeLanes } from '../delivery/lanes.ts';
import { advanceSequences } from '../delivery/sequence.ts';
import { recordKeys } from '../delivery/shards.ts';
import { type DeferralLimits, listDeferred, takeDeferred } from '../matching/deferred.ts';
import { insertNotifications } from '../matching/matching.ts';
import { releaseHeld } from '../matching/release-held.ts';
import type { StoredCount } from '../matching/stored-count.ts';
import { findTip, lockCommits } from './blocks.ts';
import { lanesToWake } from './write-notifications.ts';

/** All held notifications up to `number` are released, unless a reorg came after `reorgId`. */
type ReleaseMark = { reorgId: number; number: number };
export const noMark = (): ReleaseMark => ({ reorgId: -1, number: -1 });

/**
 * Writes deferred notifications of some watchers, in the order that `sortWatchers` gives their ids, up to about
 * `limits.rowsMax` rows, and releases held ones. Returns the watchers that it wrote for, or undefined if there was nothing to do.
 * It looks for held ones from `mark` on, which it moves: index entries of those that were released may be there for hours.
 */
export async function writeDeferred(
  database: Database,
  {
    confirmations,
    now,
    sortWatchers,
    limits,
    mark = noMark(),
  }: {
    confirmations: number;
    now: Date;
    sortWatchers(watcherIds: readonly number[]): readonly number[];
    limits: DeferralLimits;
    mark?: ReleaseMark;
  },
): Promise<{ notificationCount: number; watcherIds: number[] } | undefined> {
  await requireAnswers(database, 'present', 'a transaction of deferred notifications');
  let next = mark;
  const written = await database.transaction(async (all) => {
    await lockCommits(all);
    const tx = await withoutLost(all, await listLost(all));
    const heads = await listDeferred(tx);
    const tip = await findTip(tx);
    if (tip === undefined) return undefined;
    const releasedNumber = tip.number - confirmations;
    const made: StoredCount[] = [];
    const watcherIds: number[] = [];
    let left = limits.rowsMax;
    for (const watcherId of sortWatchers([...heads.keys()])) {
      const deferred = await takeDeferred(tx, heads.get(watcherId) ?? 0, limits);
      made.push(
        ...(await insertNotifications(
          tx,
          {
            ...{ now, confirmations, releasedNumber },
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
    const reorgId = await findLastReorg(tx);
    const released = await releaseHeld(tx, {
      ...{ releasedNumber, now, laneIds: lanesToWake(made), limits: limits.release },
      releasedBefore: reorgId === mark.reorgId ? mark.number : -1,
    });
    // On Citus, shards that catch up hold notifications of older blocks.
    if (!released.hasMore && tx.isDistributed !== true) next = { reorgId, number: releasedNumber };
    const stored = [...made, ...released.counts];
    if (stored.length === 0 && watcherIds.length === 0) return undefined;
    await wakeLanes(tx, lanesToWake(stored), now);
    await advanceSequences(
      tx,
      stored.flatMap(({ ordered }) => ordered ?? []),
      now,
    );
    return { notificationCount: made.reduce((sum, { count }) => sum + count, 0), watcherIds };
  });
  Object.assign(mark, next);
  return written;
}

async function findLastReorg(tx: Tx): Promise<number> {
  const [row] = await tx.query<{ id: number | null }>(sql`select max(id) as id from reorg`);
  return row?.id ?? 0;
}
