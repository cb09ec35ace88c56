/**
 * Awards of points, and their sums by day and month, which are updated in the same transaction, so they always match.
 */
import { type Decimal, decimal, decimalText } from '../../core/decimal.ts';
import { type Address, fromBytes, type Hash, toBytes } from '../../core/hex.ts';
import type { Award } from '../../domain/award.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';

/** Advisory lock that serializes writers of awards: blocks and imports would otherwise deadlock on each other's rows. */
const POINTS_LOCK = 0x6362_000b;
/** Limit of the awards of one transaction that are listed. More than that is not useful to a person. */
const AWARDS_MAX = 10_000;

/** Takes the lock for writing awards, which is held until the transaction ends. */
export async function lockPoints(tx: Tx): Promise<void> {
  await tx.query(sql`select pg_advisory_xact_lock(${POINTS_LOCK})`);
}

/**
 * Stores awards and updates their sums in the caller's transaction. Returns the number of new awards. An award whose rule,
 * version, transaction, ordinal and role are already stored stays as it is.
 */
export async function insertAwards(tx: Tx, awards: readonly Award[]): Promise<number> {
  if (awards.length === 0) return 0;
  await lockPoints(tx);
  const [row] = await tx.query<{ count: number }>(sql`
    with added as (
      insert into point (rule, version, category, user_address, points, tx_hash, ordinal, role, block_number, block_hash,
        awarded_at, inputs)
      select rule, version, category, user_address, points, tx_hash, ordinal, role, block_number, block_hash, awarded_at,
        inputs::jsonb
      from unnest(
        ${awards.map(({ rule }) => rule)}::text[],
        ${listOf(awards.map(({ version }) => version))}::integer[],
        ${awards.map(({ category }) => category)}::text[],
        ${bytesOf(awards.map(({ user }) => user))}::bytea[],
        ${listOf(awards.map(({ points }) => decimalText(points)))}::numeric[],
        ${bytesOf(awards.map(({ txHash }) => txHash))}::bytea[],
        ${listOf(awards.map(({ ordinal }) => ordinal))}::bigint[],
        ${listOf(awards.map(({ role }) => role))}::text[],
        ${listOf(awards.map(({ block }) => block?.number ?? 'null'))}::bigint[],
        ${bytesOf(awards.map(({ block }) => block?.hash))}::bytea[],
        ${listOf(awards.map(({ awardedAt }) => awardedAt.toISOString()))}::timestamptz[],
        ${awards.map(({ inputs }) => JSON.stringify(inputs))}::text[]
      ) with ordinality as t (rule, version, category, user_address, points, tx_hash, ordinal, role, block_number,
        block_hash, awarded_at, inputs, position)
      order by position
      on conflict do nothing
      returning ${summedColumns}
    ), days as (
      insert into point_day as d (user_address, day, category, rule, version, role, points, award_count)
      select user_address, day, category, rule, version, role, sum(points), count(*) from added
      group by user_address, day, category, rule, version, role
      on conflict (user_address, day, category, rule, version, role) do update
        set points = d.points + excluded.points, award_count = d.award_count + excluded.award_count
    ), months as (
      insert into point_month as m (month, user_address, points, award_count)
      select month, user_address, sum(points), count(*) from added
      group by month, user_address
      on conflict (month, user_address) do update
        set points = m.points + excluded.points, award_count = m.award_count + excluded.award_count
    )
    select count(*) from added`);
  return row?.count ?? 0;
}

/**
 * Deletes the awards of all blocks above the ancestor and updates their sums, in the caller's transaction. Imported awards stay.
 */
export async function deleteAwardsAbove(tx: Tx, ancestorNumber: number): Promise<void> {
  await lockPoints(tx);
  await tx.query(sql`
    with gone as (
      delete from point where block_number > ${ancestorNumber}
      returning ${summedColumns}
    ), day_sums as (
      select user_address, day, category, rule, version, role, sum(points) as points, count(*) as award_count
      from gone group by user_address, day, category, rule, version, role
    ), month_sums as (
      select month, user_address, sum(points) as points, count(*) as award_count from gone group by month, user_address
    ), emptied_days as (
      delete from point_day d using day_sums s
      where (d.user_address, d.day, d.category, d.rule, d.version, d.role)
        = (s.user_address, s.day, s.category, s.rule, s.version, s.role) and d.award_count = s.award_count
    ), emptied_months as (
      delete from point_month m using month_sums s
      where (m.month, m.user_address) = (s.month, s.user_address) and m.award_count = s.award_count
    ), lessened_days as (
      update point_day d set points = d.points - s.points, award_count = d.award_count - s.award_count
      from day_sums s
      where (d.user_address, d.day, d.category, d.rule, d.version, d.role)
        = (s.user_address, s.day, s.category, s.rule, s.version, s.role) and d.award_count > s.award_count
    )
    update point_month m set points = m.points - s.points, award_count = m.award_count - s.award_count
    from month_sums s
    where (m.month, m.user_address) = (s.month, s.user_address) and m.award_count > s.award_count`);
}

/** The columns of an award by which it is summed. Days and months are in UTC. */
const summedColumns = sql`user_address, category, rule, version, role, points,
  (awarded_at at time zone 'UTC')::date as day, date_trunc('month', awarded_at at time zone 'UTC')::date as month`;

/** The points that each user has earned by this version of a rule on that day (UTC), without referral awards, for caps. */
export async function sumUserDays(
  db: Db,
  queries: readonly { rule: string; version: number; user: Address; day: Date }[],
): Promise<Decimal[]> {
  if (queries.length === 0) return [];
  const rows = await db.query<{ points: string }>(sql`
    select coalesce((
      select sum(d.points) from point_day d
      where d.user_address = q.user_address and d.day = q.day and d.rule = q.rule and d.version = q.version
        and d.role = 'user'), 0)::text as points
    from unnest(
      ${queries.map(({ rule }) => rule)}::text[],
      ${listOf(queries.map(({ version }) => version))}::integer[],
      ${bytesOf(queries.map(({ user }) => user))}::bytea[],
      ${listOf(queries.map(({ day }) => day.toISOString().slice(0, 10)))}::date[]
    ) with ordinality as q (rule, version, user_address, day, position)
    order by q.position limit ${queries.length}`);
  return rows.map(({ points }) => decimal(points));
}

/**
 * Like `sumUserDays`, but only awards of earlier blocks, of these transactions of the block, and imported ones. A day has 24 hours, because
 * a day that is added to a time is one of the session's time zone.
 */
export async function sumUserDaysBefore(
  db: Db,
  queries: readonly { rule: string; version: number; user: Address; day: Date }[],
  blockNumber: number,
  txHashes: readonly Hash[] = [],
): Promise<Decimal[]> {
  if (queries.length === 0) return [];
  const rows = await db.query<{ points: string }>(sql`
    select coalesce((
      select sum(p.points) from point p
      where p.user_address = q.user_address and p.awarded_at >= q.day and p.awarded_at < q.day + interval '24 hours'
        and p.rule = q.rule and p.version = q.version and p.role = 'user'
        and (p.block_number is null or p.block_number < ${blockNumber}
          or p.block_number = ${blockNumber} and p.tx_hash = any(${bytesOf(txHashes)}::bytea[]))), 0)::text as points
    from unnest(
      ${queries.map(({ rule }) => rule)}::text[],
      ${listOf(queries.map(({ version }) => version))}::integer[],
      ${bytesOf(queries.map(({ user }) => user))}::bytea[],
      ${listOf(queries.map(({ day }) => day.toISOString()))}::timestamptz[]
    ) with ordinality as q (rule, version, user_address, day, position)
    order by q.position limit ${queries.length}`);
  return rows.map(({ points }) => decimal(points));
}

type AwardRow = {
  rule: string;
  version: number;
  category: string;
  user_address: Uint8Array;
  points: string;
  tx_hash: Uint8Array;
  ordinal: number;
  role: Award['role'];
  block_number: number | null;
  block_hash: Uint8Array | null;
  awarded_at: Date;
  inputs: Record<string, string>;
};

/** The awards of a transaction, in the order of their ordinals. */
export async function listAwards(db: Db, txHash: Hash): Promise<Award[]> {
  const rows = await db.query<AwardRow>(sql`
    select * from point where tx_hash = ${toBytes(txHash)}
    order by ordinal, rule, version, role desc limit ${AWARDS_MAX}`);
  return rows.map(toAward);
}

/** Up to `limit` awards of a range of blocks, in the order of the blocks. */
export async function listAwardsOf(
  db: Db,
  { from, to }: { from: number; to: number },
  limit: number,
): Promise<Award[]> {
  const rows = await db.query<AwardRow>(sql`
    select * from point where block_number between ${from} and ${to}
    order by block_number, tx_hash, ordinal, rule, version, role limit ${limit}`);
  return rows.map(toAward);
}

/** The ones among these rule versions that have awards in a block before this one. */
export async function listRulesBefore(
  db: Db,
  rules: readonly { rule: string; version: number }[],
  blockNumber: number,
): Promise<{ rule: string; version: number }[]> {
  return db.query<{ rule: string; version: number }>(sql`
    select r.rule, r.version
    from unnest(${rules.map(({ rule }) => rule)}::text[], ${listOf(rules.map(({ version }) => version))}::integer[])
      as r (rule, version)
    where exists (
      select from point p where p.rule = r.rule and p.version = r.version and p.block_number < ${blockNumber})
    order by r.rule, r.version limit ${rules.length}`);
}

const toAward = (row: AwardRow): Award => ({
  rule: row.rule,
  version: row.version,
  category: row.category,
  user: fromBytes(row.user_address),
  points: decimal(row.points),
  txHash: fromBytes(row.tx_hash),
  ordinal: row.ordinal,
  role: row.role,
  block:
    row.block_number === null || row.block_hash === null
      ? undefined
      : { number: row.block_number, hash: fromBytes(row.block_hash) },
  awardedAt: row.awarded_at,
  inputs: row.inputs,
});
