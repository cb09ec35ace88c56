/**
 * Writes deferred notifications (deferred.ts) in transactions of bounded size, which take turns with the commits of blocks.
 */
import type { Database } from '../db/db.ts';
import { shardOf, wakeLanes } from '../delivery/lanes.ts';
import { advanceSequences } from '../delivery/sequence.ts';
import { type DeferralLimits, listDeferred, takeDeferred } from '../matching/deferred.ts';
import { insertNotifications, type StoredCount } from '../matching/matching.ts';
import { findTip, holdBlocks, toWake } from './blocks.ts';

/**
 * Writes some of what is deferred, of the watchers in the order that `byTurn` gives their ids; undefined when there is
 * nothing. Returns the watchers of whom something was written.
 */
export async function writeDeferred(
  database: Database,
  {
    confirmations,
    now,
    byTurn,
    limits,
  }: {
    confirmations: number;
    now: Date;
    byTurn(watcherIds: readonly number[]): readonly number[];
    limits: DeferralLimits;
  },
): Promise<{ notificationCount: number; watcherIds: number[] } | undefined> {
  return database.transaction(async (tx) => {
    await holdBlocks(tx);
    const heads = await listDeferred(tx);
    const tip = await findTip(tx);
    if (heads.size === 0 || tip === undefined) return undefined;
    const made: StoredCount[] = [];
    const watcherIds: number[] = [];
    let left = limits.rowsMax;
    for (const watcherId of byTurn([...heads.keys()])) {
      const deferred = await takeDeferred(tx, heads.get(watcherId) ?? 0);
      made.push(
        ...(await insertNotifications(
          tx,
          {
            ...{ now, confirmations, releasedNumber: tip.number - confirmations },
            blocks: [{ header: { number: deferred.block }, transfers: [] }],
            matches: deferred.matches,
            records: { shardId: shardOf(watcherId), ids: deferred.recordIds },
            isMet: deferred.isMet,
          },
          undefined,
        )),
      );
      watcherIds.push(watcherId);
      left -= deferred.recordIds.length * deferred.matches.length;
      if (left <= 0) break;
    }
    await wakeLanes(tx, toWake(made), now);
    await advanceSequences(
      tx,
      made.flatMap(({ ordered }) => ordered ?? []),
      now,
    );
    return { notificationCount: made.reduce((sum, { count }) => sum + count, 0), watcherIds };
  });
}
