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
import { insertNotifications, type Moment } from '../matching/matching.ts';
import { type GroupKey, releaseHeld } from '../matching/release-held.ts';
import type { StoredCount } from '../matching/stored-count.ts';
import { findTip } from './blocks.ts';
import { lockForIds } from './commit-lock.ts';
import { lanesToWake } from './write-notifications.ts';

/** All that are held until block `number`, or an older one, are released, unless a reorg came after `reorgId`. `last`: where the last transaction stopped. */
type ReleaseMark = { reorgId: number; number: number; last: GroupKey | undefined };
export const noMark = (): ReleaseMark => ({ reorgId: -1, number: -1, last: undefined });

type Turns = {
  sortWatchers(watcherIds: readonly number[]): readonly number[];
  limits: DeferralLimits;
};

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
    mark?: ReleaseMark;
  } & Turns,
): Promise<{ notificationCount: number; watcherIds: number[] } | undefined> {
  await requireAnswers(database, 'present', 'a transaction of deferred notifications');
  let next = mark;
  const written = await database.transaction(async (all) => {
    await lockForIds(all);
    const tx = await withoutLost(all, await listLost(all));
    const tip = await findTip(tx);
    if (tip === undefined) return undefined;
    const moment = { now, confirmations, tipNumber: tip.number };
    const { made, watcherIds } = await writeInTurns(tx, moment, { sortWatchers, limits });
    const reorgId = await findLastReorg(tx);
    const from = reorgId === mark.reorgId ? mark : { ...noMark(), reorgId };
    const released = await releaseHeld(tx, {
      ...{ ...moment, laneIds: lanesToWake(made), limits: limits.release },
      ...{ releasedBefore: from.number, after: from.last },
    });
    // On Citus, shards that catch up hold notifications of older blocks.
    const areAllReleased = !released.hasMore && tx.isDistributed !== true;
    next = { ...from, ...(areAllReleased && { number: tip.number }), last: released.last };
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

/** Matches of one transaction, each of which takes a few statements. As many groups of more than `recordsMin` records make `rowsMax` rows. */
const TURNS_MAX = 16;

/**
 * Writes the oldest deferred match of each watcher, then the next one of each, and so on, up to about `rowsMax` rows.
 */
async function writeInTurns(
  tx: Tx,
  moment: Moment,
  { sortWatchers, limits }: Turns,
): Promise<{ made: StoredCount[]; watcherIds: number[] }> {
  const made: StoredCount[] = [];
  const watcherIds = new Set<number>();
  let [rowsLeft, turnsLeft] = [limits.rowsMax, TURNS_MAX];
  for (let heads = await listDeferred(tx); heads.size > 0; heads = await listDeferred(tx)) {
    for (const watcherId of sortWatchers([...heads.keys()])) {
      const deferred = await takeDeferred(tx, heads.get(watcherId) ?? 0, { rowsMax: rowsLeft });
      if (deferred !== undefined) {
        const { recordIds, matches, hasEarlier } = deferred;
        const records = recordKeys(watcherId, recordIds);
        made.push(...(await insertNotifications(tx, { ...moment, matches, records, hasEarlier })));
        watcherIds.add(watcherId);
        rowsLeft -= recordIds.length * matches.length;
      }
      turnsLeft -= 1;
      // Earlier notifications are locked with their lanes, in one order only for one match.
      const isLast = rowsLeft <= 0 || turnsLeft === 0 || deferred?.hasEarlier === true;
      if (isLast) return { made, watcherIds: [...watcherIds] };
    }
  }
  return { made, watcherIds: [...watcherIds] };
}

async function findLastReorg(tx: Tx): Promise<number> {
  const [row] = await tx.query<{ id: number | null }>(sql`select max(id) as id from reorg`);
  return row?.id ?? 0;
}
