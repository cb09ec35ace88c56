/**
 * Deletes data of pairs that no response needs any longer, in small steps: replaced readings, old states and sums, and swaps
 * whose sums are enough. Data that a reorg may still orphan stays.
 */
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { changesSupply } from '../market/pair-readings.ts';

const finalNumber = sql`(select finalized_number from chain)`;

/** Whether the LP supply no longer depends on state `s`, because it didn't change that or a final reading follows it. */
const isRead = sql`(not ${changesSupply(sql`s`)} or exists (
  select from pair_reading r
  where r.pair_id = s.pair_id and r.block_number >= s.block_number and r.block_number <= ${finalNumber}))`;

/**
 * Deletes up to `limit` states of this period that are followed by a final one in the same hour, because histories need only the
 * last state of each hour. Returns the number of deleted rows.
 */
export async function prunePairStates(
  db: Db,
  { from, before, limit }: { from: Date; before: Date; limit: number },
): Promise<number> {
  const rows = await db.query(sql`
    with old as (
      select pair_id, block_number from pair_state s
      where mined_at >= ${from} and mined_at < ${before} and ${isRead}
        and exists (
          select from pair_state n
          where n.pair_id = s.pair_id and n.block_number > s.block_number and n.block_number <= ${finalNumber}
            and n.mined_at >= s.mined_at and n.mined_at < date_trunc('hour', s.mined_at, 'UTC') + interval '1 hour'
        )
      order by mined_at, pair_id, block_number limit ${limit}
    )
    delete from pair_state s using old
    where s.pair_id = old.pair_id and s.block_number = old.block_number
    returning s.pair_id`);
  return rows.length;
}

/**
 * The hour before which all states are stored and final. Blocks that are followed late, and a backfill, store states of the hours
 * since then. Undefined while no block is final.
 */
export async function findSettledHour(db: Db): Promise<Date | undefined> {
  const [row] = await db.query<{ hour: Date }>(sql`
    select date_trunc('hour', least(
      mined_at, (select min(backfill_until) from pair where backfill_number is not null)
    ), 'UTC') as hour
    from block where number <= ${finalNumber} order by number desc limit 1`);
  return row?.hour;
}

/**
 * Deletes up to `limit` states that were replaced by a final one before this time. The state of a pair at this time and later
 * stays known. Returns the number of deleted rows.
 */
export async function pruneOldPairStates(
  db: Db,
  { before, limit }: { before: Date; limit: number },
): Promise<number> {
  const rows = await db.query(sql`
    with old as (
      select o.pair_id, o.block_number from pair p
      cross join lateral (
        select block_number from pair_state
        where pair_id = p.id and mined_at <= ${before} and block_number <= ${finalNumber}
        order by mined_at desc, block_number desc limit 1
      ) newest
      cross join lateral (
        select pair_id, block_number from pair_state s
        where pair_id = p.id and block_number < newest.block_number and ${isRead}
        order by block_number limit ${limit}
      ) o
      order by p.id limit ${limit}
    )
    delete from pair_state s using old
    where s.pair_id = old.pair_id and s.block_number = old.block_number
    returning s.pair_id`);
  return rows.length;
}

/** Deletes up to `limit` readings that a newer final one has replaced. Returns the number of deleted rows. */
export async function prunePairReadings(db: Db, limit: number): Promise<number> {
  const rows = await db.query(sql`
    with old as (
      select pair_id, block_number from pair_reading r
      where exists (
        select from pair_reading n
        where n.pair_id = r.pair_id and n.block_number > r.block_number and n.block_number <= ${finalNumber}
      )
      order by pair_id, block_number limit ${limit}
    )
    delete from pair_reading r using old
    where r.pair_id = old.pair_id and r.block_number = old.block_number
    returning r.pair_id`);
  return rows.length;
}

/**
 * Deletes up to `limit` final swaps from before this time. Their sums stay. A swap without a value stays until `unvaluedBefore`,
 * when its sum may be deleted too. Skips pairs during their backfill, because it replaces stored swaps. Returns the number of
 * deleted rows.
 */
export async function pruneSwaps(
  db: Db,
  { before, unvaluedBefore, limit }: { before: Date; unvaluedBefore: Date; limit: number },
): Promise<number> {
  const rows = await db.query(sql`
    with old as (
      select s.* from pair p
      cross join lateral (
        select block_number, tx_hash, ordinal from swap
        where pair_id = p.id and mined_at < ${before} and (usd_value is not null or mined_at < ${unvaluedBefore})
          and block_number <= ${finalNumber}
        order by mined_at limit ${limit}
      ) s
      where p.backfill_number is null
      order by p.id limit ${limit}
    )
    delete from swap s using old
    where s.block_number = old.block_number and s.tx_hash = old.tx_hash and s.ordinal = old.ordinal
    returning s.pair_id`);
  return rows.length;
}

/** Deletes up to `limit` sums from before this time whose swaps are deleted. Returns the number of deleted rows. */
export async function pruneSwapVolumes(
  db: Db,
  { before, limit }: { before: Date; limit: number },
): Promise<number> {
  const rows = await db.query(sql`
    with old as (
      select v.* from pair p
      cross join lateral (
        select pair_id, started_at from swap_volume
        where pair_id = p.id and started_at < ${before} and not exists (
          select from swap s
          where s.pair_id = p.id and s.mined_at >= started_at and s.mined_at < started_at + interval '5 minutes'
        )
        order by started_at limit ${limit}
      ) v
      order by p.id limit ${limit}
    )
    delete from swap_volume v using old
    where v.pair_id = old.pair_id and v.started_at = old.started_at
    returning v.pair_id`);
  return rows.length;
}
