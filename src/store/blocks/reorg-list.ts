/**
 * The reorgs that orphaned stored blocks, for the operator.
 */
import { fromBytes, type Hash } from '../../core/hex.ts';
import type { Db } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';

export type StoredReorg = {
  id: number;
  at: Date;
  /** The first and the last orphaned block. */
  fromBlock: number;
  toBlock: number;
  /** Number of orphaned blocks. */
  depth: number;
  /** The hash of the first orphaned block, and of the block that replaced it; undefined until one did. */
  oldHash: Hash;
  newHash: Hash | undefined;
  /** Notifications that are still orphaned by it; ORPHANED_MAX + 1 if there are more than ORPHANED_MAX. */
  notifications: number;
};

export const ORPHANED_MAX = 1_000;

/** A page of reorgs below the id `before`, newest first. Repairs, which orphan notifications of blocks that stay, are left out. */
export async function listReorgs(
  db: Db,
  { before, limit }: { before: number | undefined; limit: number },
): Promise<StoredReorg[]> {
  const marked = (table: Sql) =>
    sql`select from ${table} n where n.reorg_id = r.id limit ${ORPHANED_MAX + 1}`;
  const rows = await db.query<{
    id: number;
    happened_at: Date;
    from_block: number;
    to_block: number;
    depth: number;
    old_hash: Uint8Array;
    new_hash: Uint8Array | null;
    notifications: number;
  }>(sql`
    select r.id, r.happened_at, first.number as from_block, orphaned.to_block, orphaned.depth, first.hash as old_hash,
      -- What replaced the block was orphaned by a later reorg, or is there.
      coalesce(
        (select o.hash from orphaned_block o join reorg l on l.id = o.reorg_id
          where o.number = first.number and o.reorg_id > r.id and l.ancestor_number < o.number order by o.reorg_id limit 1),
        (select b.hash from block b where b.number = first.number)) as new_hash,
      (select count(*) from (
        (${marked(sql`queue`)}) union all (${marked(sql`ended`)}) limit ${ORPHANED_MAX + 1}) as counted) as notifications
    from reorg r join orphaned_block first on first.reorg_id = r.id and first.number = r.ancestor_number + 1
    cross join lateral (
      select max(o.number) as to_block, count(*) as depth from orphaned_block o where o.reorg_id = r.id) as orphaned
    where ${before === undefined ? sql`true` : sql`r.id < ${before}`}
    order by r.id desc limit ${limit}`);
  return rows.map((row) => ({
    ...{
      id: row.id,
      at: row.happened_at,
      fromBlock: row.from_block,
      toBlock: row.to_block,
      depth: row.depth,
    },
    oldHash: fromBytes(row.old_hash),
    newHash: row.new_hash === null ? undefined : fromBytes(row.new_hash),
    notifications: row.notifications,
  }));
}
