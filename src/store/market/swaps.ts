/**
 * Swaps with their USD value, which never changes, and their sums over five minutes, which are updated in the same transaction.
 * Together they give the exact volume of any period.
 */
import { type Decimal, decimal, decimalText } from '../../core/decimal.ts';
import { fromBytes } from '../../core/hex.ts';
import type { Swap } from '../../domain/pair.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';

/** The value of a swap, and the id of the price that gave it, if that came from a feed. */
export type SwapPrice = { usdValue: Decimal; priceId: number | undefined };

export type BlockSwap = Swap & { pairId: number; blockNumber: number; minedAt: Date };

/** `price` is undefined while the valued token has no price. */
export type PricedSwap = BlockSwap & { price: SwapPrice | undefined };

/** A swap as it is stored. `usdValue` is undefined without a price, `priceId` without a price from a feed. */
export type StoredSwap = BlockSwap & { usdValue: Decimal | undefined; priceId: number | undefined };

/** The start of the five minutes (UTC) that contain a time. All queries identify sums by it. */
export const bucketOf = (time: Sql) =>
  sql`date_bin('5 minutes', ${time}, '1970-01-01T00:00:00Z'::timestamptz)`;

/** Stores swaps and updates their sums. Swaps that are stored already stay as they are. */
export async function insertSwaps(tx: Tx, swaps: readonly PricedSwap[]): Promise<void> {
  await tx.query(sql`
    with made as (
      insert into swap (pair_id, block_number, tx_hash, ordinal, log_index, mined_at, amount0_in, amount1_in, amount0_out,
        amount1_out, usd_value, price_id)
      select * from unnest(
        ${listOf(swaps.map(({ pairId }) => pairId))}::integer[],
        ${listOf(swaps.map(({ blockNumber }) => blockNumber))}::bigint[],
        ${bytesOf(swaps.map(({ txHash }) => txHash))}::bytea[],
        ${listOf(swaps.map(({ ordinal }) => ordinal))}::integer[],
        ${listOf(swaps.map(({ logIndex }) => logIndex))}::integer[],
        ${swaps.map(({ minedAt }) => minedAt)}::timestamptz[],
        ${listOf(swaps.map(({ amount0In }) => amount0In))}::numeric[],
        ${listOf(swaps.map(({ amount1In }) => amount1In))}::numeric[],
        ${listOf(swaps.map(({ amount0Out }) => amount0Out))}::numeric[],
        ${listOf(swaps.map(({ amount1Out }) => amount1Out))}::numeric[],
        ${listOf(swaps.map(({ price }) => (price === undefined ? 'null' : decimalText(price.usdValue))))}::numeric[],
        ${listOf(swaps.map(({ price }) => price?.priceId ?? 'null'))}::bigint[]
      )
      on conflict do nothing
      returning pair_id, mined_at, usd_value
    )
    insert into swap_volume as v (pair_id, started_at, usd_value, swap_count)
    select pair_id, ${bucketOf(sql`mined_at`)}, coalesce(sum(usd_value), 0), count(*) from made group by 1, 2
    on conflict (pair_id, started_at) do update
      set usd_value = v.usd_value + excluded.usd_value, swap_count = v.swap_count + excluded.swap_count`);
}

/** Deletes the swaps of all blocks above this one. */
export async function deleteSwapsAbove(tx: Tx, blockNumber: number): Promise<void> {
  await deleteSwaps(tx, sql`block_number > ${blockNumber}`);
}

/** Deletes the swaps of these pairs in a range of blocks. */
export async function deleteSwapsBetween(
  tx: Tx,
  pairIds: readonly number[],
  { from, to }: { from: number; to: number },
): Promise<void> {
  await deleteSwaps(
    tx,
    sql`pair_id = any(${listOf(pairIds)}::integer[]) and block_number between ${from} and ${to}`,
  );
}

async function deleteSwaps(tx: Tx, where: Sql): Promise<void> {
  await tx.query(sql`
    with gone as (delete from swap where ${where} returning pair_id, mined_at, usd_value),
    sums as (
      select pair_id, ${bucketOf(sql`mined_at`)} as started_at, coalesce(sum(usd_value), 0) as usd_value, count(*) as count
      from gone group by 1, 2
    )
    update swap_volume v set usd_value = v.usd_value - s.usd_value, swap_count = v.swap_count - s.count
    from sums s where v.pair_id = s.pair_id and v.started_at = s.started_at`);
}

/** Up to `limit` swaps of a range of blocks, in the order of the blocks. */
export async function listSwapsOf(
  db: Db,
  { from, to }: { from: number; to: number },
  limit: number,
): Promise<StoredSwap[]> {
  const rows = await db.query<SwapRow & { usd_value: string | null; price_id: number | null }>(sql`
    select pair_id, block_number, tx_hash, ordinal, log_index, mined_at, amount0_in, amount1_in, amount0_out, amount1_out, usd_value,
      price_id
    from swap where block_number between ${from} and ${to}
    order by block_number, tx_hash, ordinal limit ${limit}`);
  return rows.map((row) => ({
    ...toSwap(row),
    usdValue: row.usd_value === null ? undefined : decimal(row.usd_value),
    priceId: row.price_id ?? undefined,
  }));
}

/** The ones among these pairs that have swaps without a value. */
export async function listUnvaluedPairs(db: Db, pairIds: readonly number[]): Promise<number[]> {
  const rows = await db.query<{ id: number }>(sql`
    select id from unnest(${listOf(pairIds)}::integer[]) as p (id)
    where exists (select from swap s where s.pair_id = p.id and s.usd_value is null)
    order by id limit ${pairIds.length}`);
  return rows.map(({ id }) => id);
}

/** The oldest swaps of a pair that have no value. */
export async function listUnvaluedSwaps(db: Db, pairId: number, limit: number): Promise<BlockSwap[]> {
  const rows = await db.query<SwapRow>(sql`
    select pair_id, block_number, tx_hash, ordinal, log_index, mined_at, amount0_in, amount1_in, amount0_out, amount1_out from swap
    where pair_id = ${pairId} and usd_value is null
    order by block_number, tx_hash, ordinal limit ${limit}`);
  return rows.map(toSwap);
}

/** Stores the values of swaps that have none. Swaps that have one or were deleted are skipped. */
export async function valueSwaps(
  tx: Tx,
  swaps: readonly (BlockSwap & { price: SwapPrice })[],
): Promise<void> {
  await tx.query(sql`
    with valued as (
      update swap s set usd_value = t.usd_value, price_id = t.price_id
      from unnest(
        ${listOf(swaps.map(({ blockNumber }) => blockNumber))}::bigint[],
        ${bytesOf(swaps.map(({ txHash }) => txHash))}::bytea[],
        ${listOf(swaps.map(({ ordinal }) => ordinal))}::integer[],
        ${listOf(swaps.map(({ price }) => decimalText(price.usdValue)))}::numeric[],
        ${listOf(swaps.map(({ price }) => price.priceId ?? 'null'))}::bigint[]
      ) as t (block_number, tx_hash, ordinal, usd_value, price_id)
      where s.block_number = t.block_number and s.tx_hash = t.tx_hash and s.ordinal = t.ordinal and s.usd_value is null
      returning s.pair_id, s.mined_at, s.usd_value
    ),
    sums as (
      select pair_id, ${bucketOf(sql`mined_at`)} as started_at, sum(usd_value) as usd_value from valued group by 1, 2
    )
    update swap_volume v set usd_value = v.usd_value + s.usd_value
    from sums s where v.pair_id = s.pair_id and v.started_at = s.started_at`);
}

/** Later than `after` and not later than `until`. */
export type SwapPeriod = { after: Date; until: Date };

/** The USD value of a pair's swaps (spec 4.3). */
export async function sumSwapValue(db: Db, pairId: number, period: SwapPeriod): Promise<Decimal> {
  const [row] = await db.query<{ usd_value: string }>(
    sql`select ${swapValueOf(sql`${pairId}`, period)} as usd_value`,
  );
  if (row === undefined) throw new Error('a select without a table has one row');
  return decimal(row.usd_value);
}

/** The same as an expression. Adds the sums of whole five minutes, and single swaps at both ends. */
export function swapValueOf(pairId: Sql, { after, until }: SwapPeriod): Sql {
  const first = ceilToBucket(after);
  const end = floorToBucket(until);
  // If both times lie in the same five minutes, only single swaps are added.
  const [headEnd, tailStart] = first <= end ? [first, end] : [until, until];
  return sql`(
    (select coalesce(sum(usd_value), 0) from swap_volume
      where pair_id = ${pairId} and started_at >= ${headEnd} and started_at < ${tailStart})
    + (select coalesce(sum(usd_value), 0) from swap
      where pair_id = ${pairId} and mined_at > ${after} and mined_at < ${headEnd})
    + (select coalesce(sum(usd_value), 0) from swap
      where pair_id = ${pairId} and mined_at > ${after} and mined_at >= ${tailStart} and mined_at <= ${until}))`;
}

const BUCKET_MS = 300_000;

const floorToBucket = (time: Date) => new Date(Math.floor(time.getTime() / BUCKET_MS) * BUCKET_MS);

/** The start of the first five minutes that lie wholly after this time. */
const ceilToBucket = (time: Date) => new Date((Math.floor(time.getTime() / BUCKET_MS) + 1) * BUCKET_MS);

/** The newest swaps of a pair, newest first. */
export async function listNewestSwaps(db: Db, pairId: number, limit: number): Promise<StoredSwap[]> {
  const rows = await db.query<SwapRow & { usd_value: string | null; price_id: number | null }>(sql`
    select pair_id, block_number, tx_hash, ordinal, log_index, mined_at, amount0_in::text, amount1_in::text, amount0_out::text,
      amount1_out::text, usd_value::text, price_id
    from swap
    where pair_id = ${pairId}
    order by mined_at desc, block_number desc, log_index desc
    limit ${limit}`);
  return rows.map((row) => ({
    ...toSwap(row),
    usdValue: row.usd_value === null ? undefined : decimal(row.usd_value),
    priceId: row.price_id ?? undefined,
  }));
}

export type VolumeHour = { hour: Date; usdValue: Decimal; swapCount: number };

/** The volumes of the hours (UTC) with swaps, from `from` up to but not including `to`, oldest first. */
export async function listVolumeHours(
  db: Db,
  pairId: number,
  { from, to, limit }: { from: Date; to: Date; limit: number },
): Promise<VolumeHour[]> {
  const rows = await db.query<{ hour: Date; usd_value: string; swap_count: number }>(sql`
    select date_bin('1 hour', started_at, '1970-01-01T00:00:00Z'::timestamptz) as hour, sum(usd_value) as usd_value,
      sum(swap_count)::bigint as swap_count
    from swap_volume
    where pair_id = ${pairId} and started_at >= ${from} and started_at < ${to} and swap_count > 0
    group by 1 order by 1 limit ${limit}`);
  return rows.map(({ hour, usd_value, swap_count }) => ({
    hour,
    usdValue: decimal(usd_value),
    swapCount: swap_count,
  }));
}

type SwapRow = {
  pair_id: number;
  block_number: number;
  tx_hash: Uint8Array;
  ordinal: number;
  log_index: number;
  mined_at: Date;
  amount0_in: string;
  amount1_in: string;
  amount0_out: string;
  amount1_out: string;
};

const toSwap = (row: SwapRow): BlockSwap => ({
  pairId: row.pair_id,
  blockNumber: row.block_number,
  txHash: fromBytes(row.tx_hash),
  ordinal: row.ordinal,
  logIndex: row.log_index,
  minedAt: row.mined_at,
  amount0In: BigInt(row.amount0_in),
  amount1In: BigInt(row.amount1_in),
  amount0Out: BigInt(row.amount0_out),
  amount1Out: BigInt(row.amount1_out),
});
