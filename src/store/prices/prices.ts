/**
 * The price feed: accepted prices in USD, by asset. The newest one is the current price (spec 4.2). A past event is valued with
 * the price that was in force at its time.
 */
import { type Decimal, decimal, decimalText } from '../../core/decimal.ts';
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';

export type Price = {
  id: number;
  /** The symbol of the coin or token. */
  asset: string;
  /** USD for one whole coin. */
  price: Decimal;
  observedAt: Date;
  source: string;
};

/** Among prices of this age the one stored last counts, even if another has a later time because a clock was set back. */
const RECENT_MS = 600_000;

type Row = { id: number; asset: string; price: string; observed_at: Date; source: string };

/** The price of the asset that was in force at this time: the newest one observed up to then. */
export async function findPrice(db: Db, asset: string, at: Date): Promise<Price | undefined> {
  const [row] = await db.query<Row>(sql`
    select id, asset, price, observed_at, source from price
    where asset = ${asset} and observed_at <= ${at}
    order by observed_at desc, id desc limit 1`);
  return row && toPrice(row);
}

/**
 * The price of the asset that was accepted last, unless it is older than `maxAgeMs`. The last one is found by id, because after
 * the clock was set back earlier prices have later times. A price further in the future than `maxAgeMs` isn't fresh either.
 */
export async function findFreshPrice(
  db: Db,
  asset: string,
  { now, maxAgeMs }: { now: Date; maxAgeMs: number },
): Promise<Price | undefined> {
  return findFresh(db, asset, { now, maxAgeMs, only: sql``, first: sql`id desc` });
}

/**
 * The price that decides between sources that disagree, unless it is older than `maxAgeMs`: the last one on which sources agreed.
 * Without one, the last one of a source that was the only believable one.
 */
export async function findAnchorPrice(
  db: Db,
  asset: string,
  { now, maxAgeMs }: { now: Date; maxAgeMs: number },
): Promise<Price | undefined> {
  return findFresh(db, asset, {
    now,
    maxAgeMs,
    only: sql`and not is_disputed`,
    first: sql`is_agreed desc, id desc`,
  });
}

async function findFresh(
  db: Db,
  asset: string,
  { now, maxAgeMs, only, first }: { now: Date; maxAgeMs: number; only: Sql; first: Sql },
): Promise<Price | undefined> {
  const [row] = await db.query<Row>(sql`
    select id, asset, price, observed_at, source from price
    where asset = ${asset} and observed_at >= ${new Date(now.getTime() - maxAgeMs)} ${only}
    order by ${first} limit 1`);
  const isFresh = row !== undefined && row.observed_at.getTime() - now.getTime() <= maxAgeMs;
  return isFresh ? toPrice(row) : undefined;
}

/**
 * The current price: the newest of the asset (spec 4.2), unless it is older than `maxAgeMs`. Among those of the last minutes
 * it is the one accepted last (see findFreshPrice).
 */
export async function findCurrentPrice(
  db: Db,
  asset: string,
  { now, maxAgeMs }: { now: Date; maxAgeMs: number | undefined },
): Promise<Price | undefined> {
  const fresh = await findFreshPrice(db, asset, { now, maxAgeMs: maxAgeMs ?? RECENT_MS });
  return fresh === undefined && maxAgeMs === undefined ? findPrice(db, asset, now) : fresh;
}

/** The price of the asset that was in force at each of these times, in the same order. */
export async function listPrices(
  db: Db,
  asset: string,
  times: readonly Date[],
): Promise<(Price | undefined)[]> {
  return listAtTimes(
    db,
    times,
    sql`
      select id, asset, price, observed_at, source from price
      where asset = ${asset} and observed_at <= t.at
      order by observed_at desc, id desc limit 1`,
  );
}

/** The prices with these ids. */
export async function listPricesById(db: Db, ids: readonly number[]): Promise<Price[]> {
  const rows = await db.query<Row>(sql`
    select id, asset, price, observed_at, source from price where id = any(${listOf(ids)}::bigint[])
    order by id limit ${ids.length}`);
  return rows.map(toPrice);
}

/** The first price of the asset that was observed after each of these times, in the same order. */
export async function listNextPrices(
  db: Db,
  asset: string,
  times: readonly Date[],
): Promise<(Price | undefined)[]> {
  return listAtTimes(
    db,
    times,
    sql`
      select id, asset, price, observed_at, source from price
      where asset = ${asset} and observed_at > t.at
      order by observed_at, id limit 1`,
  );
}

/** The result of the select for each time `t.at`. */
async function listAtTimes(db: Db, times: readonly Date[], select: Sql): Promise<(Price | undefined)[]> {
  const rows = await db.query<Row & { position: number }>(sql`
    select p.*, t.position from unnest(${times}::timestamptz[]) with ordinality as t (at, position)
    cross join lateral (${select}) p
    order by t.position limit ${times.length}`);
  const byPosition = new Map(rows.map(({ position, ...row }) => [position, toPrice(row)]));
  return times.map((_, index) => byPosition.get(index + 1));
}

/** Adds a price to the feed and returns its id. */
export async function insertPrice(
  db: Db,
  {
    asset,
    price,
    observedAt,
    source,
    isAgreed = false,
    isDisputed = false,
  }: Omit<Price, 'id'> & { isAgreed?: boolean; isDisputed?: boolean },
): Promise<number> {
  const [row] = await db.query<{ id: number }>(sql`
    insert into price (asset, price, observed_at, source, is_agreed, is_disputed)
    values (${asset}, ${decimalText(price)}::numeric, ${observedAt}, ${source}, ${isAgreed}, ${isDisputed})
    returning id`);
  if (row === undefined) throw new Error('an inserted price has no id');
  return row.id;
}

function toPrice({ observed_at, price, ...row }: Row): Price {
  return { ...row, price: decimal(price), observedAt: observed_at };
}
