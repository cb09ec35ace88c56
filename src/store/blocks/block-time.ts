/**
 * The usual time between blocks, and how regular it is.
 */
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

const BLOCKS = 100;
/** A day of Ethereum is 7,200 blocks, and an hour of a chain with five blocks a second 18,000. */
export const PACE_BLOCKS = 20_000;

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

/**
 * The pace of the chain over the newest 20,000 stored blocks, by the times in their headers: how many they are, the median time
 * between them, how much time they cover, and how many pauses were longer than `pauseMsMin` and than `pauseBlockTimes` of these
 * medians. Undefined with fewer than two blocks.
 */
export async function measurePace(
  db: Db,
  { pauseMsMin, pauseBlockTimes }: { pauseMsMin: number; pauseBlockTimes: number },
): Promise<{ blocks: number; blockMs: number; historyMs: number; pauses: number } | undefined> {
  const [row] = await db.query<{
    blocks: number;
    block_ms: number | null;
    history_ms: number;
    pauses: number;
  }>(sql`
    with gap as materialized (
      select extract(epoch from mined_at - lag(mined_at) over (order by number)) * 1000 as ms
      from (select number, mined_at from block order by number desc limit ${PACE_BLOCKS}) as newest
    ), usual as (
      select count(*) as blocks, percentile_cont(0.5) within group (order by ms) as block_ms, sum(ms) as history_ms from gap
    )
    select blocks, round(block_ms)::bigint as block_ms, round(history_ms)::bigint as history_ms,
      (select count(*) from gap where ms > greatest(${pauseMsMin}::bigint, block_ms * ${pauseBlockTimes}::integer)) as pauses
    from usual`);
  if (row === undefined || row.block_ms === null) return undefined;
  return { blocks: row.blocks, blockMs: row.block_ms, historyMs: row.history_ms, pauses: row.pauses };
}
