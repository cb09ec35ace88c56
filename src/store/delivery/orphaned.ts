/**
 * Transfers that a receiver acknowledged, that a reorg then orphaned, and for which no removal notice was sent.
 */
import type { Db } from '../db/db.ts';
import { inReach, rowsOf } from '../db/shard-rows.ts';
import { sql } from '../db/sql.ts';
import { isTransferMessage } from './message-kind.ts';

type OrphanedStatistics = {
  /** Counts only transfers that retention has not deleted. */
  count: number;
  /** When the first of them was orphaned. */
  since: Date | undefined;
};

export async function countOrphaned(db: Db): Promise<OrphanedStatistics> {
  const orphaned = await rowsOf(
    db,
    sql`select n.reorg_id, count(*) as count from ended n
      where n.reorg_id is not null and n.state = 'processed' and ${isTransferMessage}${inReach(db, sql`n.shard_id`)} group by n.reorg_id`,
    'reorg_id bigint, count bigint',
  );
  const [row] = await db.query<{ count: number; since: Date | null }>(sql`
    select coalesce(sum(n.count), 0)::bigint as count, min(r.happened_at) as since
    from ${orphaned} as n join reorg r on r.id = n.reorg_id`);
  return { count: row?.count ?? 0, since: row?.since ?? undefined };
}
