/**
 * Lost shards, on Citus (db/lost-shards.ts): how they are declared lost, and how they catch up.
 */
import type { Database } from '../db/db.ts';
import {
  doesAnswer,
  findLost,
  type LostShards,
  limitStatements,
  listPlaces,
  listPlacesOf,
  listShardsOf,
  type Place,
  recoverCommits,
} from '../db/lost-shards.ts';
import { within } from '../db/shard-rows.ts';
import { sql } from '../db/sql.ts';
import { isOfReorg } from '../delivery/notification-rows.ts';
import { listMatches, type Match, placeOf } from '../matching/matching.ts';
import { findTip } from './blocks.ts';
import { lockCommits, lockForIds } from './commit-lock.ts';
import { listKept } from './kept-transfers.ts';
import { listMissed, raiseLost } from './missed-blocks.ts';
import { beginMissedReorgs, orphanStrays } from './reorgs.ts';
import { writeNotifications } from './write-notifications.ts';

/** Blocks and transfers of one transaction, which holds up commits. After a reorg it writes as many blocks as a commit does. */
const catchUpLimits = { blocksMax: 64, transfersMax: 2_000 };
/** Longer than a statement of such a transaction takes. */
const STATEMENT_MS_MAX = 30_000;

/**
 * Probes the workers, and declares the shards of those that don't answer lost: from now on blocks leave them out. That is safe also if
 * they answer again at once, because under the commit lock all shards that are not lost have the same blocks. Returns the workers.
 */
export async function declareLost(
  database: Database,
  now: Date,
  probe = doesAnswer,
): Promise<{ worker: string; blockNumber: number }[]> {
  if (database.isDistributed !== true) return [];
  const silent: Place[] = [];
  for (const place of await listPlaces(database)) if (!(await probe(database, place))) silent.push(place);
  if (silent.length === 0) return [];
  return database.transaction(async (tx) => {
    await lockCommits(tx);
    const blockNumber = (await findTip(tx))?.number ?? -1;
    const rows = await tx.query<{ worker: string }>(sql`
      insert into lost_shards (worker, hashes, since, block_number)
      select worker, hashes, ${now}::timestamptz, ${blockNumber}::bigint from (
        select worker, hashes::int8multirange - coalesce((select range_agg(s.hashes) from lost_shards s), '{}') as hashes
        from unnest(${silent.map(({ worker }) => worker)}::text[], ${silent.map(({ hashes }) => hashes)}::text[])
          as silent (worker, hashes)) as lost
      where not isempty(hashes) order by worker returning worker`);
    return rows.map(({ worker }) => ({ worker, blockNumber }));
  });
}

/** `left`: the shards miss further blocks. `silent`: their worker doesn't answer yet. */
type CaughtUp =
  | { outcome: 'silent' }
  | { outcome: 'left' | 'done'; blocks: number; notificationCount: number };

/**
 * Gives lost shards the next blocks that they miss, in one transaction: first it orphans the notifications of blocks that they have
 * and that a reorg has orphaned since, as the commit of the reorg did in the other shards.
 */
export async function catchUp(
  database: Database,
  { id }: Pick<LostShards, 'id'>,
  {
    confirmations,
    now,
    limits = catchUpLimits,
  }: { confirmations: number; now: Date; limits?: typeof catchUpLimits },
): Promise<CaughtUp> {
  // Before the commit lock is taken, because a worker that hangs takes seconds.
  const seen = await findLost(database, id);
  const places = await listPlacesOf(database, { id });
  for (const place of places) if (!(await doesAnswer(database, place))) return { outcome: 'silent' };
  if (!(await recoverCommits(database, places))) return { outcome: 'silent' };
  return database.transaction(async (all) => {
    await limitStatements(all, STATEMENT_MS_MAX);
    await lockForIds(all);
    const lost = await findLost(all, id);
    const tip = await findTip(all);
    if (lost === undefined) return { outcome: 'done', blocks: 0, notificationCount: 0 };
    // Another process may have written to the shards since the recovery.
    if (lost.version !== seen?.version) return { outcome: 'left', blocks: 0, notificationCount: 0 };
    const tx = within(all, await listShardsOf(all, lost));
    const { reorgIds: missedIds, blockNumber: above } = lost;
    const transfersMax = missedIds.length > 0 ? Number.MAX_SAFE_INTEGER : limits.transfersMax;
    const blocks = await listMissed(tx, { above, blocksMax: limits.blocksMax, transfersMax });
    await beginMissedReorgs(tx, missedIds, now);
    const strayIds = tip === undefined ? [] : await orphanStrays(tx, above, { tip, now });
    const reorgIds = [...missedIds, ...strayIds];
    const matches = await listMatches(tx, blocks);
    const kept = new Map<string, Match>();
    for (const one of reorgIds)
      for (const match of (await listKept(tx, blocks, isOfReorg(tx, one))).kept)
        kept.set(placeOf(match.transfer), match);
    const { notificationCount } = await writeNotifications(tx, {
      ...{ blocks, reorgIds, now, confirmations, matches, kept: [...kept.values()] },
      tipNumber: tip?.number ?? -1,
      // The blocks may be final by now, so the usual check would look at too few.
      hasEarlier: true,
    });
    const isLeft = await raiseLost(tx, lost, blocks.at(-1)?.header.number ?? above);
    return { outcome: isLeft ? 'left' : 'done', blocks: blocks.length, notificationCount };
  });
}
