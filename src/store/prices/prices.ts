/**
 * The price feed: accepted prices in USD, by asset. The newest one counts (spec 4.2); what happened at a time is valued by
 * the one that was in force then.
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

/** Of these prices the last one counts even if its time is not the latest, because a clock was set back. */
const RECENT_MS = 600_000;

type Row = { id: number; asset: string; price: string; observed_at: Date; source: string };

/** The price of the asset that was in force at this time: the newest one observed until then. */
export async function findPrice(db: Db, asset: string, at: Date): Promise<Price | undefined> {
  const [row] = await db.query<Row>(sql`
    select id, asset, price, observed_at, source from price
    where asset = ${asset} and observed_at <= ${at}
    order by observed_at desc, id desc limit 1`);
  return row && toPrice(row);
}

/**
 * The price of the asset that was accepted last, unless it is older than `maxAgeMs`. Last by its id: once the clock was set
 * back, prices of before carry later times. Those lie further ahead than clocks differ, so they are not young either.
 */
export async function findFreshPrice(
  db: Db,
  asset: string,
  { now, maxAgeMs }: { now: Date; maxAgeMs: number },
): Promise<Price | undefined> {
  const [row] = await db.query<Row>(sql`
    select id, asset, price, observed_at, source from price
    where asset = ${asset} and observed_at >= ${new Date(now.getTime() - maxAgeMs)}
    order by id desc limit 1`);
  const isYoung = row !== undefined && row.observed_at.getTime() - now.getTime() <= maxAgeMs;
  return isYoung ? toPrice(row) : undefined;
}

/**
 * The price that counts now: the newest of the asset (spec 4.2), unless it is older than `maxAgeMs`. Of the last minutes the one
 * that was accepted last, as findFreshPrice says.
 */
export async function findCurrentPrice(
  db: Db,
  asset: string,
  { now, maxAgeMs }: { now: Date; maxAgeMs: number | undefined },
): Promise<Price | undefined> {
  const young = await findFreshPrice(db, asset, { now, maxAgeMs: maxAgeMs ?? RECENT_MS });
  return young === undefined && maxAgeMs === undefined ? findPrice(db, asset, now) : young;
}

/** The price of the asset that was in force at each of these times, in their order. */
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

/** The prices of these ids that exist. */
export async function listPricesById(db: Db, ids: readonly number[]): Promise<Price[]> {
  const rows = await db.query<Row>(sql`
    select id, asset, price, observed_at, source from price where id = any(${listOf(ids)}::bigint[])
    order by id limit ${ids.length}`);
  return rows.map(toPrice);
}

/** The first price of the asset that was observed after each of these times, in their order. */
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

/** Adds a price to the feed; returns its id. */
export async function insertPrice(
  db: Db,
  { asset, price, observedAt, source }: Omit<Price, 'id'>,
): Promise<number> {
  const [row] = await db.query<{ id: number }>(sql`
    insert into price (asset, price, observed_at, source)
    values (${asset}, ${decimalText(price)}::numeric, ${observedAt}, ${source})
    returning id`);
  if (row === undefined) throw new Error('an inserted price has no id');
  return row.id;
}

function toPrice({ observed_at, price, ...row }: Row): Price {
  return { ...row, price: decimal(price), observedAt: observed_at };
}
