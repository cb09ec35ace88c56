/**
 * Notifications that a worker finds in its lane, and that must not be sent from it: their watched address was deleted, has another lane or
 * no longer wants removal notices, and they have not followed that change yet.
 */
import { listOf } from '../db/arrays.ts';
import type { Database } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { unlessLocked } from '../db/unless-locked.ts';
import type { Lane } from './lanes.ts';
import { moveToEnded } from './notification-rows.ts';
import { alignUnlessLocked, tryLockLanesOf } from './record-changes.ts';
import { advanceSequences } from './sequence.ts';

type AstrayRow = { id: number; recordId: string };

/** Of one lane. `unwanted`: removal notices that are no longer wanted. */
export type Astray = {
  lane: Lane;
  misplaced: readonly AstrayRow[];
  unwanted: readonly (AstrayRow & { revision: number })[];
};

/** Cancels, moves or withdraws them. Those whose lanes another transaction has locked are left to the next read. */
export async function correctAstray(
  database: Database,
  { lane, misplaced, unwanted }: Astray,
  now: Date,
): Promise<void> {
  if (misplaced.length > 0) await alignUnlessLocked(database, lane, misplaced, now);
  if (unwanted.length > 0) await withdraw(database, lane, unwanted, now);
}

/**
 * The receiver would take such a notice for a transfer. Its watched address may have turned `removed` on again since the lane was read:
 * then the notice stays, because nothing sends a withdrawn one.
 */
async function withdraw(
  database: Database,
  { shardId }: Lane,
  unwanted: Astray['unwanted'],
  now: Date,
): Promise<void> {
  await unlessLocked(database, async (tx) => {
    const free = new Set(
      await tryLockLanesOf(
        tx,
        shardId,
        unwanted.map(({ id }) => id),
      ),
    );
    const locked = unwanted.filter(({ id }) => free.has(id));
    if (locked.length === 0) return;
    const ids = locked.map(({ id }) => id);
    const revisions = locked.map(({ revision }) => revision);
    const withdrawn = await moveToEnded(
      tx,
      sql`n.shard_id = ${shardId} and n.state = 'waiting'
        and (n.id, n.revision) in (select * from unnest(${listOf(ids)}::bigint[], ${listOf(revisions)}::integer[]))
        and not exists (
          select from watched_address w where w.shard_id = n.shard_id and w.id = n.watched_address_id and w.removed)`,
      { state: 'withdrawn', now },
    );
    const gone = new Set(withdrawn.map(({ id }) => id));
    const records = unwanted.flatMap(({ id, recordId }) => (gone.has(id) ? [{ shardId, id: recordId }] : []));
    await advanceSequences(tx, records, now);
  });
}
