/**
 * Deletes deferred notifications (deferred.ts): those of blocks that a reorg orphans, and those of a watcher that is deleted.
 */
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';

/** Deletes the deferred matches of blocks that a reorg orphans. */
export async function dropDeferred(tx: Tx, ancestorNumber: number): Promise<void> {
  await tx.query(sql`delete from deferred_match where block_number > ${ancestorNumber}`);
  await tx.query(sql`
    with gone as (delete from deferred_records where block_number > ${ancestorNumber})
    delete from deferred_transfers where block_number > ${ancestorNumber}`);
}

/** Parts of groups that `dropDeferredOf` deletes at a time, because each has up to 10,000 ids. */
const DROPPED_PARTS_MAX = 50;

/** Whether something of the watcher is deferred. */
export async function hasDeferred(tx: Tx, watcherId: number): Promise<boolean> {
  const rows = await tx.query(sql`
    (select from deferred_match where watcher_id = ${watcherId} limit 1)
    union all (select from deferred_records where watcher_id = ${watcherId} limit 1)`);
  return rows.length > 0;
}

/**
 * Deletes the watcher's next deferred matches, up to `matchesMax`, and with the last ones their records. Returns whether there were any. The caller holds
 * the commit lock, as each transaction that deletes matches, because the last of a set deletes its transfers.
 */
export async function dropDeferredOf(tx: Tx, watcherId: number, matchesMax: number): Promise<boolean> {
  const matches = await tx.query<{ set_id: number }>(sql`
    delete from deferred_match where id = any(array(
      select id from deferred_match where watcher_id = ${watcherId} order by id limit ${matchesMax}))
    returning set_id`);
  if (matches.length > 0) {
    await tx.query(dropTransfers([...new Set(matches.map((row) => row.set_id))]));
    if (matches.length === matchesMax) return true;
  }
  const parts = await tx.query(sql`
    delete from deferred_records where (group_id, part) in (
      select group_id, part from deferred_records where watcher_id = ${watcherId} order by group_id, part limit ${DROPPED_PARTS_MAX})
    returning group_id`);
  return matches.length > 0 || parts.length > 0;
}

/** Deletes those of these sets of transfers of which no match is left. */
export const dropTransfers = (setIds: readonly number[]): Sql => sql`
  delete from deferred_transfers t using unnest(${listOf(setIds)}::bigint[]) as s (id)
  where t.set_id = s.id and not exists (select from deferred_match d where d.set_id = s.id)`;
