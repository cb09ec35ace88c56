/**
 * Queries for points: leaderboards, a user's awards, totals. The database renders lists as JSON in pieces, so this process can
 * pass on a million entries without handling each of them.
 */
import assert from 'node:assert/strict';
import { type Decimal, decimal, decimalText } from '../../core/decimal.ts';
import { type Address, fromBytes, toBytes } from '../../core/hex.ts';
import type { Comparison, Month, Period } from '../../domain/month.ts';
import type { Database, Db } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';

/**
 * Entries in a piece: some 70 KB of JSON. PostgreSQL takes the same time for 1,000 to 8,000, and smaller strings are easier
 * on the garbage collector.
 */
const PIECE_ROWS = 1_000;
/** Limit of the categories that a user's totals list. */
const CATEGORIES_MAX = 10_000;

const BEFORE_LEADERS = sql`'-Infinity'::numeric, ''::bytea`;
const BEFORE_AWARDS = sql`'infinity'::timestamptz, 0::bigint`;

/** Entries of a list as JSON, separated by commas and without brackets. `last` is the cursor of the last one. */
export type Page<Cursor> = { entries: string; count: number; last: Cursor } | undefined;

/**
 * Takes a list. `onPiece` is called with the entries of each piece in order; the comma between two pieces is missing. The piece with which
 * they exceed `bytesMax` is the last one.
 */
export type ListReader = { bytesMax: number; onPiece(entries: string): void };

export type LeaderCursor = { points: Decimal; user: Address };

/** Renders all users with points in that month, most points first, then by address, as `{user, points}`. */
export async function renderLeaders(database: Database, month: Month, reader: ListReader): Promise<void> {
  const next = leaderPage(month, sql`p.minus_points, p.user_address`, PIECE_ROWS);
  await renderAll(database, {
    start: BEFORE_LEADERS,
    cursor: sql`minus_points, user_address`,
    next,
    reader,
  });
}

/** Renders up to `limit` of these users after a cursor. */
export async function renderLeaderPage(
  db: Db,
  month: Month,
  { after, limit }: { after: LeaderCursor | undefined; limit: number },
): Promise<Page<LeaderCursor>> {
  const start =
    after === undefined
      ? BEFORE_LEADERS
      : sql`-${decimalText(after.points)}::numeric, ${toBytes(after.user)}::bytea`;
  const [row] = await db.query<PageRow & { points: string; user_address: Uint8Array }>(
    sql`select *, (-minus_points)::text as points from (${leaderPage(month, start, limit)}) as page`,
  );
  return toPage(row, ({ points, user_address }) => ({
    points: decimal(points),
    user: fromBytes(user_address),
  }));
}

/** Takes the last user from a concatenation of all addresses. Arrays of both columns took a fifth longer. */
const leaderPage = (month: Month, after: Sql, limit: number) => sql`
  select l.entries, l.count, m.minus_points, l.user_address
  from (
    select string_agg(e.entry, ',') as entries, count(*) as count,
      substr(string_agg(e.user_address, ''), 20 * count(*)::integer - 19) as user_address
    from (
      select entry, user_address from point_month
      where month = ${firstDay(month)}::date and points <> 0 and (minus_points, user_address) > (${after})
      order by minus_points, user_address limit ${limit}) as e) as l
  left join point_month m on m.month = ${firstDay(month)}::date and m.user_address = l.user_address`;

export type AwardCursor = { awardedAt: Date; id: number };

/** Renders all of the user's awards in that period, newest first, as `{category, points, created_at, hash}`. */
export async function renderAwards(
  database: Database,
  of: { user: Address; period: Period },
  reader: ListReader,
): Promise<void> {
  const next = awardPage(of, sql`p.awarded_at, p.id`, PIECE_ROWS);
  await renderAll(database, { start: BEFORE_AWARDS, cursor: sql`awarded_at, id`, next, reader });
}

/** Renders up to `limit` of these awards after a cursor. */
export async function renderAwardPage(
  db: Db,
  of: { user: Address; period: Period },
  { after, limit }: { after: AwardCursor | undefined; limit: number },
): Promise<Page<AwardCursor>> {
  const start =
    after === undefined ? BEFORE_AWARDS : sql`${after.awardedAt}::timestamptz, ${after.id}::bigint`;
  const [row] = await db.query<PageRow & { awarded_at: Date; id: number }>(awardPage(of, start, limit));
  return toPage(row, ({ awarded_at, id }) => ({ awardedAt: awarded_at, id }));
}

const awardPage = (
  { user, period: { start, end } }: { user: Address; period: Period },
  after: Sql,
  limit: number,
) => sql`
  select string_agg('{"category":' || to_json(e.category)::text || ',"points":' || trim_scale(e.points)::text
      || ',"created_at":"' || to_char(e.awarded_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
      || '","hash":"0x' || encode(e.tx_hash, 'hex') || '"}', ',') as entries,
    count(*) as count, (array_agg(e.awarded_at))[count(*)] as awarded_at, (array_agg(e.id))[count(*)] as id
  from (
    select category, points, awarded_at, tx_hash, id from point
    where user_address = ${toBytes(user)}::bytea and awarded_at between ${start} and ${end}
      and (awarded_at, id) < (${after})
    order by awarded_at desc, id desc limit ${limit}) as e`;

type PageRow = { entries: string | null; count: number };

function toPage<Row extends PageRow, Cursor>(
  row: Row | undefined,
  cursorOf: (row: Row) => Cursor,
): Page<Cursor> {
  if (row === undefined || row.entries === null) return undefined;
  return { entries: row.entries, count: row.count, last: cursorOf(row) };
}

type List = { start: Sql; cursor: Sql; next: Sql; reader: ListReader };

/**
 * Renders all pages in one statement, and so from one snapshot. `next` selects the page after the cursor of page `p`, `start` is
 * the cursor before the first page, `cursor` names its columns. Pieces arrive in order, one by one.
 */
async function renderAll(database: Database, { start, cursor, next, reader }: List): Promise<void> {
  let pieces = 0;
  const statement = sql`
    with recursive page (entries, count, ${cursor}, piece, bytes) as (
      select null::text, ${PIECE_ROWS}::bigint, ${start}, 0, 0::bigint
      union all
      select n.*, p.piece + 1, p.bytes + octet_length(n.entries) from page p cross join lateral (${next}) as n
      where p.count = ${PIECE_ROWS} and p.bytes <= ${reader.bytesMax}
    )
    select entries, piece from page where entries is not null`;
  await database.each<{ entries: string; piece: number }>(statement, ({ entries, piece }) => {
    pieces += 1;
    assert.equal(piece, pieces);
    reader.onPiece(entries);
  });
}

type CategoryTotal = { category: string; points: Decimal };

/** The user's points in each category, most points first. */
export async function listCategoryTotals(
  db: Db,
  user: Address,
  { start, end }: Period,
): Promise<CategoryTotal[]> {
  const rows = await db.query<{ category: string; points: string }>(sql`
    select category, sum(points)::text as points from point_day
    where user_address = ${toBytes(user)} and day between ${dayOf(start)}::date and ${dayOf(end)}::date
    group by category order by sum(points) desc, category limit ${CATEGORIES_MAX}`);
  return rows.map(({ category, points }) => ({ category, points: decimal(points) }));
}

/** The user's points in that month; undefined without any award. */
export async function findMonthTotal(db: Db, user: Address, month: Month): Promise<Decimal | undefined> {
  const [row] = await db.query<{ points: string }>(sql`
    select points::text from point_month
    where month = ${firstDay(month)}::date and user_address = ${toBytes(user)}`);
  return row && decimal(row.points);
}

type ComparedTotals = { current: Decimal; lastMonth: Decimal };

/** The user's points in both periods; undefined without any award in either. */
export async function findComparedTotals(
  db: Db,
  user: Address,
  { current, lastMonth }: Comparison,
): Promise<ComparedTotals | undefined> {
  const within = ({ start, end }: Period) => sql`day between ${dayOf(start)}::date and ${dayOf(end)}::date`;
  const [row] = await db.query<{ current: string | null; last_month: string | null }>(sql`
    select sum(points) filter (where ${within(current)})::text as current,
      sum(points) filter (where ${within(lastMonth)})::text as last_month
    from point_day
    where user_address = ${toBytes(user)} and day between ${dayOf(lastMonth.start)}::date and ${dayOf(current.end)}::date`);
  const [now, before] = [row?.current ?? undefined, row?.last_month ?? undefined];
  if (now === undefined && before === undefined) return undefined;
  return { current: decimal(now ?? '0'), lastMonth: decimal(before ?? '0') };
}

const firstDay = (month: Month) => `${month}-01`;
const dayOf = (time: Date) => time.toISOString().slice(0, 10);
