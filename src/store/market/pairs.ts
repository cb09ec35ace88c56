/**
 * The followed pairs, the block since which each is followed, and the progress of its backfill.
 */
import { Fault } from '../../core/fault.ts';
import { fromBytes, type Hash, toBytes } from '../../core/hex.ts';
import type { BlockHeader } from '../../domain/block.ts';
import type { Pair } from '../../domain/pair.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';

/** The backfill of a pair reads back to this long before it was first followed. */
const BACKFILL_MS = 24 * 60 * 60 * 1000;

/** Far above the number of times that a pair is taken out of a configuration. */
const GAPS_MAX = 10_000;

type PairRow = {
  id: number;
  address: Uint8Array;
  token0: Uint8Array;
  token1: Uint8Array;
  token0_decimals: number;
  token1_decimals: number;
  usd_value_from: number;
  followed_from: number | null;
};

/**
 * @throws Fault `conflict` if the stored data of a pair belongs to another contract, other tokens or another token for the USD
 * value than the configuration says.
 */
export async function requirePairs(db: Db, pairs: readonly Pair[]): Promise<void> {
  requireSame(await listPairRows(db), pairs);
}

/** The ids of the pairs that have been followed at some time. Their data agrees with the configuration (`requirePairs`). */
export async function listStoredPairs(db: Db): Promise<number[]> {
  return (await listPairRows(db)).map(({ id }) => id);
}

/**
 * Follows exactly these pairs from this block on. A pair that was not followed in the previous block starts here and needs a
 * backfill. @throws Fault `conflict` like requirePairs.
 */
export async function followPairs(
  tx: Tx,
  pairs: readonly Pair[],
  first: { header: BlockHeader; now: Date },
): Promise<void> {
  const rows = await listPairRows(tx);
  requireSame(rows, pairs);
  const ids = pairs.map(({ id }) => id);
  if (rows.some((row) => row.followed_from !== null && !ids.includes(row.id))) {
    await tx.query(sql`
      update pair set followed_from = null, backfill_number = null, backfill_hash = null,
        gaps = gaps + tstzmultirange(tstzrange(${first.header.minedAt}, null))
      where followed_from is not null and id <> all(${listOf(ids)}::integer[])`);
  }
  const followed = new Set(rows.flatMap(({ id, followed_from }) => (followed_from === null ? [] : [id])));
  const begun = pairs.filter(({ id }) => !followed.has(id));
  if (begun.length > 0) await beginPairs(tx, begun, first);
}

/**
 * Starts pairs with this block. Deletes readings from before the previous block, because events since then are missing. A gap ends
 * with this block, until the backfill is complete (`advanceBackfill`).
 */
async function beginPairs(
  tx: Tx,
  pairs: readonly Pair[],
  { header, now }: { header: BlockHeader; now: Date },
): Promise<void> {
  const { number, parentHash } = header;
  // The genesis block has no transactions.
  const past = number > 1 ? number - 1 : undefined;
  const ids = listOf(pairs.map(({ id }) => id));
  await tx.query(sql`
    insert into pair (id, address, token0, token1, token0_decimals, token1_decimals, usd_value_from, followed_from,
      backfill_number, backfill_hash, backfill_until)
    select t.*, ${number}::bigint, ${past}::bigint, ${past && toBytes(parentHash)}::bytea,
      ${new Date(now.getTime() - BACKFILL_MS)}::timestamptz
    from unnest(
      ${ids}::integer[],
      ${bytesOf(pairs.map(({ address }) => address))}::bytea[],
      ${bytesOf(pairs.map(({ token0 }) => token0))}::bytea[],
      ${bytesOf(pairs.map(({ token1 }) => token1))}::bytea[],
      ${listOf(pairs.map(({ token0Decimals }) => token0Decimals))}::smallint[],
      ${listOf(pairs.map(({ token1Decimals }) => token1Decimals))}::smallint[],
      ${listOf(pairs.map(({ usdValueFrom }) => usdValueFrom))}::smallint[]
    ) as t
    on conflict (id) do update set followed_from = excluded.followed_from, backfill_number = excluded.backfill_number,
      backfill_hash = excluded.backfill_hash, backfill_until = excluded.backfill_until,
      gaps = pair.gaps * tstzmultirange(tstzrange(null, ${header.minedAt}))`);
  await tx.query(sql`
    delete from pair_reading where pair_id = any(${ids}::integer[]) and block_number < ${number - 1}`);
}

/** After a reorg: a pair whose followed blocks are all orphaned starts over with the next block. */
export async function unfollowPairsAbove(tx: Tx, ancestorNumber: number): Promise<void> {
  await tx.query(sql`
    update pair set followed_from = null, backfill_number = null, backfill_hash = null
    where followed_from > ${ancestorNumber}`);
}

/** A backfill of pairs that continues at the same block, going down. */
export type PairBackfill = {
  pairIds: number[];
  /** The next block to read. */
  number: number;
  hash: Hash;
  /** The lowest block to read in one go: the one above the block where other pairs join in, or 1. */
  lowest: number;
  /** Only blocks later than this time are read. */
  until: Date;
};

/** The next backfill of these pairs, the one at the highest block. */
export async function findBackfill(db: Db, pairIds: readonly number[]): Promise<PairBackfill | undefined> {
  const rows = await db.query<{
    id: number;
    backfill_number: number;
    backfill_hash: Uint8Array;
    backfill_until: Date;
  }>(sql`
    select id, backfill_number, backfill_hash, backfill_until from pair
    where id = any(${listOf(pairIds)}::integer[]) and backfill_number is not null
    order by backfill_number desc, id limit ${pairIds.length}`);
  const [first] = rows;
  if (first === undefined) return undefined;
  const members = rows.filter(({ backfill_number }) => backfill_number === first.backfill_number);
  const untilMs = Math.min(...members.map(({ backfill_until }) => backfill_until.getTime()));
  return {
    pairIds: members.map(({ id }) => id),
    number: first.backfill_number,
    hash: fromBytes(first.backfill_hash),
    lowest: (rows[members.length]?.backfill_number ?? 0) + 1,
    until: new Date(untilMs),
  };
}

/**
 * Moves the backfill of these pairs on to `next`, undefined when it is complete. Then gaps end where it ended, and one of less than a day
 * is no longer there. Returns false and changes nothing if the backfill is no longer at `number` and `hash`.
 */
export async function advanceBackfill(
  tx: Tx,
  { pairIds, number, hash }: Pick<PairBackfill, 'pairIds' | 'number' | 'hash'>,
  next: { number: number; hash: Hash } | undefined,
): Promise<boolean> {
  const ids = listOf(pairIds);
  const there = await tx.query(sql`
    select id from pair
    where id = any(${ids}::integer[]) and backfill_number = ${number} and backfill_hash = ${toBytes(hash)}
    order by id limit ${pairIds.length} for update`);
  if (there.length < pairIds.length) return false;
  await tx.query(sql`
    update pair set backfill_number = ${next?.number}, backfill_hash = ${next && toBytes(next.hash)},
      gaps = case when ${next === undefined} then gaps * tstzmultirange(tstzrange(null, backfill_until)) else gaps end
    where id = any(${ids}::integer[])`);
  return true;
}

/**
 * The blocks for which the data of a pair is complete: from `followedFrom` on, and earlier ones from `readFrom` on that are
 * later than `readAfter`.
 */
export type PairCoverage = { pairId: number; followedFrom: number; readFrom: number; readAfter: Date };

/** Whether the block belongs to the coverage; false for a pair that isn't followed. */
export const isInCoverage = (
  { blockNumber, minedAt }: { blockNumber: number; minedAt: Date },
  coverage: PairCoverage | undefined,
): boolean =>
  coverage !== undefined &&
  (blockNumber >= coverage.followedFrom ||
    (blockNumber >= coverage.readFrom && minedAt > coverage.readAfter));

/**
 * Whether the present following of its pair covers this state: it is of a block of `PairCoverage`, or the contract was read at its
 * end. Older states are of an earlier following, and blocks since then may have changed the pair. A pair is followed from the next block
 * on, which a resting chain may not have for hours, so a reading at the newest stored block counts before that.
 */
export const isCovered = (state: Sql) => sql`(exists (
  select from pair f
  where f.id = ${state}.pair_id and f.followed_from is not null and (
    ${state}.block_number >= f.followed_from
    or ${state}.block_number > coalesce(f.backfill_number, -1) and ${state}.mined_at > f.backfill_until
    or exists (select from pair_reading r where r.pair_id = f.id and r.block_number = ${state}.block_number)))
  or exists (
    select from pair_reading r
    where r.pair_id = ${state}.pair_id and r.block_number = ${state}.block_number
      and not exists (select from block b where b.number > r.block_number)))`;

/** The times at which following of a pair ended and left a gap that no backfill reads, oldest first. */
export async function listFollowingEnds(db: Db, pairId: number): Promise<Date[]> {
  const rows = await db.query<{ ended_at: Date }>(sql`
    select lower(gap) as ended_at from pair, unnest(gaps) as gap where id = ${pairId}
    order by ended_at limit ${GAPS_MAX}`);
  return rows.map(({ ended_at }) => ended_at);
}

/** The coverage of the followed ones among these pairs. */
export async function listPairCoverage(db: Db, pairIds: readonly number[]): Promise<PairCoverage[]> {
  const rows = await db.query<{ id: number; followed_from: number; read_from: number; read_after: Date }>(sql`
    select id, followed_from, coalesce(backfill_number + 1, 0) as read_from, backfill_until as read_after from pair
    where id = any(${listOf(pairIds)}::integer[]) and followed_from is not null
    order by id limit ${pairIds.length}`);
  return rows.map((row) => ({
    pairId: row.id,
    followedFrom: row.followed_from,
    readFrom: row.read_from,
    readAfter: row.read_after,
  }));
}

/** While following goes on, the newest stored block is younger than this, unless it is the head of the chain. */
const LATE_MS = 5 * 60_000;
/** A follower that leads tells the head several times in this time. */
const KNOWN_MS = 60_000;

const isUpToDate = (now: Date) => sql`(
  select mined_at >= ${new Date(now.getTime() - LATE_MS)} or exists (
    select from process p
    where p.leads and not p.stopped and p.problem is null and p.head <= b.number
      and p.seen_at >= clock_timestamp() - ${KNOWN_MS}::bigint * interval '1 ms')
  from block b order by number desc limit 1)`;

/** Whether the newest states of pairs are those of the last minutes, and not of a time that the follower is catching up from. */
export async function areStatesUpToDate(db: Db, now: Date): Promise<boolean> {
  const [row] = await db.query<{ is_up_to_date: boolean | null }>(
    sql`select ${isUpToDate(now)} as is_up_to_date`,
  );
  return row?.is_up_to_date === true;
}

/** Whether the data of the last 24 hours of a row of `pair` is complete, except for the last minutes. */
export const isRead = (pair: Sql, now: Date): Sql =>
  sql`(${pair}.followed_from is not null and ${pair}.backfill_number is null and ${isUpToDate(now)})`;

/** The ones among these pairs whose data is complete in this sense. */
export async function findReadPairs(db: Db, pairIds: readonly number[], now: Date): Promise<Set<number>> {
  const rows = await db.query<{ id: number }>(sql`
    select id from pair f where id = any(${listOf(pairIds)}::integer[]) and ${isRead(sql`f`, now)}
    order by id limit ${pairIds.length}`);
  return new Set(rows.map(({ id }) => id));
}

async function listPairRows(db: Db): Promise<PairRow[]> {
  return db.query<PairRow>(sql`
    select id, address, token0, token1, token0_decimals, token1_decimals, usd_value_from, followed_from from pair
    order by id`);
}

function requireSame(rows: readonly PairRow[], pairs: readonly Pair[]): void {
  const byId = new Map(rows.map((row) => [row.id, row]));
  const byAddress = new Map(rows.map((row) => [fromBytes(row.address), row.id]));
  for (const pair of pairs) {
    const row = byId.get(pair.id);
    const owner = byAddress.get(pair.address);
    if (owner !== undefined && owner !== pair.id)
      throw new Fault(
        'conflict',
        `pair ${pair.id} (${pair.name}): ${pair.address} is already stored as pair ${owner}. Use that id`,
      );
    if (row === undefined) continue;
    const stored = {
      address: fromBytes(row.address),
      token0: fromBytes(row.token0),
      token1: fromBytes(row.token1),
      token0Decimals: row.token0_decimals,
      token1Decimals: row.token1_decimals,
      usdValueFrom: row.usd_value_from,
    };
    for (const [field, value] of Object.entries(stored)) {
      const configured = pair[field as keyof typeof stored];
      if (configured === value) continue;
      throw new Fault(
        'conflict',
        `pair ${pair.id} (${pair.name}): its swaps are stored with ${field} ${value}, but the configuration says ${configured}. Use a new id for a different pair`,
      );
    }
  }
}
