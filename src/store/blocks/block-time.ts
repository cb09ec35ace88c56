/**
 * The usual time between blocks.
 */
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

const BLOCKS = 100;

/**
 * Median of the milliseconds between the newest stored blocks, by the times in their headers, so that a pause of the chain doesn't
 * count. Undefined with fewer than two.
 */
export async function measureBlockTime(db: Db): Promise<number | undefined> {
  const [row] = await db.query<{ ms: number | null }>(sql`
    select round(percentile_cont(0.5) within group (order by seconds) * 1000)::bigint as ms
    from (
      select extract(epoch from mined_at - lag(mined_at) over (order by number)) as seconds
      from (select number, mined_at from block order by number desc limit ${BLOCKS}) as newest
    ) as intervals`);
  return row?.ms ?? undefined;
}
