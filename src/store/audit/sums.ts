/**
 * Compares stored sums with the rows that they sum: volumes of swaps, points by day and by month.
 */
import { type Address, fromBytes, toBytes } from '../../core/hex.ts';
import { listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { bucketOf } from '../market/swaps.ts';
import { lockPoints } from '../points/awards.ts';
import { readPruneMarks } from '../retention/prune-marks.ts';

/** A sum as stored and as derived from its rows, as text; undefined if there is none. */
type Sum = { stored: string | undefined; derived: string | undefined };

type VolumeKey = { pairId: number; startedAt: Date };
type DayKey = {
  user: Address;
  day: string;
  category: string;
  rule: string;
  version: number;
  role: string;
};
type MonthKey = { user: Address; month: string };

type SumRow = { stored: string | null; derived: string | null };
const toSum = ({ stored, derived }: SumRow): Sum => ({
  stored: stored ?? undefined,
  derived: derived ?? undefined,
});

/** Value and count as one text, without trailing zeros. */
const sumText = (value: Sql, count: Sql) => sql`trim_scale(${value})::text || ' in ' || ${count}::text`;

/** Up to `limit` sums of five minutes that start in this period and differ from their swaps. */
export async function listWrongVolumes(
  db: Db,
  pairIds: readonly number[],
  { from, before, limit }: { from: Date; before: Date; limit: number },
): Promise<(VolumeKey & Sum)[]> {
  const ids = listOf(pairIds);
  const rows = await db.query<SumRow & { pair_id: number; started_at: Date }>(sql`
    with derived as (
      select pair_id, ${bucketOf(sql`mined_at`)} as started_at, coalesce(sum(usd_value), 0) as usd_value,
        count(*) as swap_count
      from swap where pair_id = any(${ids}::integer[]) and mined_at >= ${from} and mined_at < ${before} group by 1, 2
    ), stored as (
      select pair_id, started_at, usd_value, swap_count from swap_volume
      -- Swaps that a reorg deleted leave a sum of 0.
      where pair_id = any(${ids}::integer[]) and started_at >= ${from} and started_at < ${before}
        and (swap_count <> 0 or usd_value <> 0)
    )
    select pair_id, started_at, ${sumText(sql`s.usd_value`, sql`s.swap_count`)} as stored,
      ${sumText(sql`d.usd_value`, sql`d.swap_count`)} as derived
    from stored s full join derived d using (pair_id, started_at)
    where (s.usd_value, s.swap_count) is distinct from (d.usd_value, d.swap_count)
    order by pair_id, started_at limit ${limit}`);
  return rows.map((row) => ({ pairId: row.pair_id, startedAt: row.started_at, ...toSum(row) }));
}

const dayColumns = sql`user_address, day, category, rule, version, role`;
const dayOfAward = sql`(awarded_at at time zone 'UTC')::date`;

/** Up to `limit` sums of a day (`2026-11-22`, UTC) that differ from their awards. */
export async function listWrongDays(db: Db, day: string, limit: number): Promise<(DayKey & Sum)[]> {
  const rows = await db.query<
    SumRow & { user_address: Uint8Array; category: string; rule: string; version: number; role: string }
  >(sql`
    with derived as (
      select ${dayColumns}, sum(points) as points, count(*) as award_count
      from (select *, ${dayOfAward} as day from point where ${awardedFrom(day, sql`interval '1 day'`)}) as p
      group by ${dayColumns}
    ), stored as (select ${dayColumns}, points, award_count from point_day where day = ${day}::date)
    select user_address, category, rule, version, role, ${sumText(sql`s.points`, sql`s.award_count`)} as stored,
      ${sumText(sql`d.points`, sql`d.award_count`)} as derived
    from stored s full join derived d using (${dayColumns})
    where (s.points, s.award_count) is distinct from (d.points, d.award_count)
    order by user_address, category, rule, version, role limit ${limit}`);
  return rows.map((row) => ({
    ...{ user: fromBytes(row.user_address), day, category: row.category, rule: row.rule },
    ...{ version: row.version, role: row.role },
    ...toSum(row),
  }));
}

/** Up to `limit` sums of a month (given by its first day) that differ from their awards. */
export async function listWrongMonths(db: Db, month: string, limit: number): Promise<(MonthKey & Sum)[]> {
  const rows = await db.query<SumRow & { user_address: Uint8Array }>(sql`
    with derived as (
      select user_address, sum(points) as points, count(*) as award_count from point
      where ${awardedFrom(month, sql`interval '1 month'`)} group by user_address
    ), stored as (select user_address, points, award_count from point_month where month = ${month}::date)
    select user_address, ${sumText(sql`s.points`, sql`s.award_count`)} as stored,
      ${sumText(sql`d.points`, sql`d.award_count`)} as derived
    from stored s full join derived d using (user_address)
    where (s.points, s.award_count) is distinct from (d.points, d.award_count)
    order by user_address limit ${limit}`);
  return rows.map((row) => ({ user: fromBytes(row.user_address), month, ...toSum(row) }));
}

const awardedFrom = (day: string, length: Sql) => sql`
  awarded_at >= ${day}::date::timestamp at time zone 'UTC'
    and awarded_at < (${day}::date::timestamp + ${length}) at time zone 'UTC'`;

/**
 * Recomputes a sum from its swaps. The caller holds the commit lock, because block commits write both. False if retention may have
 * deleted some of the swaps, of which only the sum is left.
 */
export async function recomputeVolume(tx: Tx, { pairId, startedAt }: VolumeKey): Promise<boolean> {
  const [sum] = await tx.query<{ usd_value: string; swap_count: number }>(sql`
    select coalesce(sum(usd_value), 0)::text as usd_value, count(*) as swap_count from swap
    where pair_id = ${pairId} and mined_at >= ${startedAt}
      and mined_at < ${startedAt}::timestamptz + interval '5 minutes'`);
  // After the swaps: retention raises its mark before it deletes.
  const keptFrom = (await readPruneMarks(tx)).get('swap');
  if (sum === undefined || (keptFrom !== undefined && startedAt < keptFrom)) return false;
  await tx.query(sql`delete from swap_volume where pair_id = ${pairId} and started_at = ${startedAt}`);
  if (sum.swap_count > 0)
    await tx.query(sql`
      insert into swap_volume (pair_id, started_at, usd_value, swap_count)
      values (${pairId}, ${startedAt}, ${sum.usd_value}::numeric, ${sum.swap_count})`);
  return true;
}

/** Recomputes a sum from its awards. */
export async function recomputeDay(
  tx: Tx,
  { user, day, category, rule, version, role }: DayKey,
): Promise<boolean> {
  await lockPoints(tx);
  const own = sql`user_address = ${toBytes(user)} and category = ${category} and rule = ${rule}
    and version = ${version} and role = ${role}`;
  await tx.query(sql`delete from point_day where day = ${day}::date and ${own}`);
  await tx.query(sql`
    insert into point_day (${dayColumns}, points, award_count)
    select user_address, ${day}::date, category, rule, version, role, sum(points), count(*) from point
    where ${awardedFrom(day, sql`interval '1 day'`)} and ${own}
    group by user_address, category, rule, version, role`);
  return true;
}

/** Recomputes a sum from its awards. */
export async function recomputeMonth(tx: Tx, { user, month }: MonthKey): Promise<boolean> {
  await lockPoints(tx);
  const own = sql`user_address = ${toBytes(user)}`;
  await tx.query(sql`delete from point_month where month = ${month}::date and ${own}`);
  await tx.query(sql`
    insert into point_month (month, user_address, points, award_count)
    select ${month}::date, user_address, sum(points), count(*) from point
    where ${awardedFrom(month, sql`interval '1 month'`)} and ${own}
    group by user_address`);
  return true;
}
