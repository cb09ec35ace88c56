/**
 * The average time between blocks.
 */
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

/** Enough blocks for an average that single slow blocks don't change much. */
const BLOCKS = 100;

/** Average milliseconds between the newest stored blocks, by the times in their headers. Undefined with fewer than two. */
export async function measureBlockTime(db: Db): Promise<number | undefined> {
  const [row] = await db.query<{ ms: number | null }>(sql`
    select round(extract(epoch from max(mined_at) - min(mined_at)) * 1000 / nullif(max(number) - min(number), 0))::bigint as ms
    from (select number, mined_at from block order by number desc limit ${BLOCKS}) as newest`);
  return row?.ms ?? undefined;
}
