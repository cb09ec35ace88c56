/**
 * Writes the notifications of new blocks, after the notifications that a reorg orphans have been marked. Used by the commit of
 * blocks and, on Citus, by shards that catch up.
 */
import type { Tx } from '../db/db.ts';
import { within } from '../db/shard-rows.ts';
import { wakeLanes } from '../delivery/lanes.ts';
import { advanceSequences, type OrderedRecord } from '../delivery/sequence.ts';
import {
  type DeferralLimits,
  deferMatches,
  deferralLimits,
  listDeferrable,
  withoutDeferred,
} from '../matching/deferred.ts';
import { hasEarlierNotifications } from '../matching/earlier.ts';
import {
  hashesOf,
  insertNotifications,
  type Match,
  type MatchedBlock,
  type Moment,
  notAmong,
} from '../matching/matching.ts';
import { releaseHeld } from '../matching/release-held.ts';
import type { StoredCount } from '../matching/stored-count.ts';
import { endReorg } from './reorgs.ts';

type NewNotifications = {
  blocks: readonly MatchedBlock[];
  /** The matches of these blocks, as `listMatches` returns them. */
  matches: readonly Match[];
  /** The transfers of these blocks of which notifications are marked (`listKept`). */
  kept?: readonly Match[];
  /** The reorgs whose notifications are marked. */
  reorgIds: readonly number[];
  releasedBefore?: number | undefined;
  /** Whether transactions of the matches may have notifications already. Queried if undefined. */
  hasEarlier?: boolean;
  deferral?: DeferralLimits;
} & Moment;

/** Inserts, includes again, withdraws and releases notifications, and wakes their lanes. `hasDeferred`: `writeDeferred` has work left. */
export async function writeNotifications(
  tx: Tx,
  { matches, kept = [], reorgIds, deferral: limits = deferralLimits, ...moment }: NewNotifications,
): Promise<{ notificationCount: number; hasDeferred: boolean }> {
  const { now } = moment;
  const deferrable = await listDeferrable(tx, matches, { isReorg: reorgIds.length > 0, limits });
  const { groups: without, shards } = deferrable;
  // Notifications are in the shards of their records, but a reorg may have orphaned some whose records have changed since.
  const own = within(tx, reorgIds.length > 0 ? tx.reach : (shards ?? tx.reach));
  const all = [...matches, ...kept];
  const hasEarlier =
    all.length > 0 && (moment.hasEarlier ?? (await hasEarlierNotifications(own, hashesOf(all))));
  const storing = await deferMatches(own, without, { matches, hasEarlier, limits });
  const written = withoutDeferred(matches, deferrable);
  const made = await insertNotifications(
    own,
    { ...moment, matches: written, kept: notAmong(written, kept), without, storing, hasEarlier },
    reorgIds,
  );
  const left: OrderedRecord[][] = [];
  for (const reorgId of reorgIds) left.push(await endReorg(tx, reorgId, now));
  const released = await releaseHeld(tx, { ...moment, laneIds: lanesToWake(made), limits: limits.release });
  const stored = [...made, ...released.counts];
  const ordered = [...left.flat(), ...stored.flatMap((one) => one.ordered ?? [])];
  // Lock lanes before sequences, as a worker that settles does. The opposite order would deadlock.
  // Workers drop what they have read: a transfer that stays has another block now.
  await wakeLanes(tx, lanesToWake(stored), now, reorgIds.length > 0 ? 'reorg' : 'due');
  await advanceSequences(tx, ordered, now);
  return {
    notificationCount: made.reduce((sum, { count }) => sum + count, 0),
    hasDeferred: without.length > 0 || released.hasMore,
  };
}

/** The lanes of notifications that are due, or that their sequence may make due. */
export function lanesToWake(stored: readonly StoredCount[]): number[] {
  const woken = stored.filter((one) => one.state === 'waiting' || one.ordered !== undefined);
  return [...new Set(woken.map(({ laneId }) => laneId))];
}
