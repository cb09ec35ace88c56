/**
 * Rounds of the price feeds: the answer of each source, the verdict on it, and the resulting price, in one transaction.
 */
import { type Decimal, decimal, decimalText } from '../../core/decimal.ts';
import type { Database, Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { insertPrice } from './prices.ts';

/** The answer of a source: a price with its verdict, or the reason why there is none (`failed`). */
export type SourceReport = {
  source: string;
  price: Decimal | undefined;
  /** Half the width of the interval that the source gives, in USD. */
  conf: Decimal | undefined;
  observedAt: Date | undefined;
  verdict: 'used' | 'outlier' | 'stale' | 'not_positive' | 'uncertain' | 'failed';
  message: string | undefined;
};

export type PriceRound = {
  asset: string;
  at: Date;
  reports: readonly SourceReport[];
  /** Undefined if the round accepted no price. */
  price: Decimal | undefined;
  /** Whether sources agreed on the price, so that it may decide between them when they no longer do. */
  isAgreed: boolean;
  /** Whether at most half of the believable sources agree. */
  isDisputed: boolean;
};

/** Advisory lock space that serializes the rounds of one asset. */
const ROUND_LOCK_SPACE = 0x6362_000a;
/** Far above the number of sources that a feed may have. */
const REPORTS_MAX = 1_000;

/**
 * Stores the round, and its price as the newest of the asset. `lastRoundAt` is the time of the newest round when this one began.
 * If another process has stored a round since, stores nothing and returns `lost`.
 */
export function insertRound(
  database: Database,
  { asset, at, reports, price, isAgreed, isDisputed }: PriceRound,
  lastRoundAt: Date | undefined,
): Promise<'stored' | 'lost'> {
  return database.transaction(async (tx) => {
    await tx.query(sql`select pg_advisory_xact_lock(${ROUND_LOCK_SPACE}::int, hashtext(${asset}))`);
    if ((await findLastRoundAt(tx, asset))?.getTime() !== lastRoundAt?.getTime()) return 'lost';
    const used = reports.filter(({ verdict }) => verdict === 'used').map(({ source }) => source);
    const source = used.join(', ');
    const priceId =
      price === undefined
        ? undefined
        : await insertPrice(tx, { asset, price, observedAt: at, source, isAgreed, isDisputed });
    await tx.query(sql`
      insert into price_observation (asset, round_at, source, price, conf, observed_at, verdict, message, price_id)
      select ${asset}, ${at}::timestamptz, source, price, conf, observed_at, verdict, message, ${priceId}::bigint
      from unnest(
        ${reports.map((report) => report.source)}::text[],
        ${reports.map((report) => textOf(report.price))}::numeric[],
        ${reports.map((report) => textOf(report.conf))}::numeric[],
        ${reports.map((report) => report.observedAt?.toISOString() ?? null)}::timestamptz[],
        ${reports.map((report) => report.verdict)}::text[],
        ${reports.map((report) => report.message ?? null)}::text[]
      ) as report (source, price, conf, observed_at, verdict, message)`);
    return 'stored';
  });
}

/** The time of the round of the asset that was stored last, even if the clock was set back; undefined before the first. */
export async function findLastRoundAt(db: Db, asset: string): Promise<Date | undefined> {
  const [row] = await db.query<{ round_at: Date }>(sql`
    select round_at from price_observation where asset = ${asset} order by id desc limit 1`);
  return row?.round_at;
}

/** An accepted price with the observations that it is based on: none if they were deleted or the price has another origin. */
export type ObservedPrice = { id: number; asset: string; price: Decimal; observedAt: Date; used: Decimal[] };

/** Up to `limit` prices of the assets that were observed in this period, after the last one of the previous page. */
export async function listObservedPrices(
  db: Db,
  {
    assets,
    from,
    to,
    after,
    limit,
  }: {
    assets: readonly string[];
    from: Date;
    to: Date;
    after: Pick<ObservedPrice, 'id' | 'observedAt'> | undefined;
    limit: number;
  },
): Promise<ObservedPrice[]> {
  const rows = await db.query<{
    id: number;
    asset: string;
    price: string;
    observed_at: Date;
    used: string[];
  }>(sql`
    select p.id, p.asset, p.price, p.observed_at,
      array(
        select o.price::text from price_observation o
        where o.asset = p.asset and o.round_at = p.observed_at and o.price_id = p.id and o.verdict = 'used'
        order by o.id limit ${REPORTS_MAX}) as used
    from price p
    where p.asset = any(${assets}::text[]) and p.observed_at between ${from} and ${to}
      and (p.observed_at, p.id) > (${after?.observedAt ?? new Date(0)}::timestamptz, ${after?.id ?? 0}::bigint)
    order by p.observed_at, p.id limit ${limit}`);
  return rows.map(({ observed_at, price, used, ...row }) => ({
    ...{ ...row, price: decimal(price), observedAt: observed_at },
    used: used.map((one) => decimal(one)),
  }));
}

/** The answers of the sources in the newest round, in their order; undefined before the first round. */
export async function findLastRound(
  db: Db,
  asset: string,
): Promise<{ at: Date; reports: SourceReport[] } | undefined> {
  const at = await findLastRoundAt(db, asset);
  if (at === undefined) return undefined;
  const rows = await db.query<Row>(sql`
    select source, price, conf, observed_at, verdict, message from price_observation
    where asset = ${asset} and round_at = ${at} order by id limit ${REPORTS_MAX}`);
  return { at, reports: rows.map(toReport) };
}

/** Deletes the oldest observations of rounds before this time, at most `limit`. Returns their number. */
export async function pruneObservations(db: Db, before: Date, limit: number): Promise<number> {
  const rows = await db.query(sql`
    delete from price_observation where ctid = any(array(
      select ctid from price_observation where round_at < ${before} order by round_at limit ${limit}))
      and round_at < ${before}
    returning id`);
  return rows.length;
}

type Row = {
  source: string;
  price: string | null;
  conf: string | null;
  observed_at: Date | null;
  verdict: SourceReport['verdict'];
  message: string | null;
};

function toReport({ source, price, conf, observed_at, verdict, message }: Row): SourceReport {
  return {
    source,
    price: price === null ? undefined : decimal(price),
    conf: conf === null ? undefined : decimal(conf),
    observedAt: observed_at ?? undefined,
    verdict,
    message: message ?? undefined,
  };
}

const textOf = (value: Decimal | undefined) => (value === undefined ? null : decimalText(value));
