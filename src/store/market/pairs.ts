/**
 * Which pairs are followed and since which block, and how far their past has been read.
 */
import { Fault } from '../../core/fault.ts';
import { fromBytes, type Hash, toBytes } from '../../core/hex.ts';
import type { BlockHeader } from '../../domain/block.ts';
import type { Pair } from '../../domain/pair.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';

/** A pair without a read past is read back to this long before it was first followed. */
const BACKFILL_MS = 24 * 60 * 60 * 1000;

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
 * @throws Fault `conflict` when the facts of a pair were made with another contract, other tokens or another valued side
 * than the configuration says now.
 */
export async function requirePairs(db: Db, pairs: readonly Pair[]): Promise<void> {
  requireSame(await listPairRows(db), pairs);
}

/**
 * From this block on these pairs are followed and no others. A pair that was not followed in the block before
 * begins here, and its past is to be read.
 * @throws Fault `conflict` as requirePairs.
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
      update pair set followed_from = null, backfill_number = null, backfill_hash = null
      where followed_from is not null and id <> all(${listOf(ids)}::integer[])`);
  }
  const followed = new Set(rows.flatMap(({ id, followed_from }) => (followed_from === null ? [] : [id])));
  const begun = pairs.filter(({ id }) => !followed.has(id));
  if (begun.length > 0) await beginPairs(tx, begun, first);
}

/** What was read of a contract before the block before this one says nothing of the blocks in between. */
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
      backfill_hash = excluded.backfill_hash, backfill_until = excluded.backfill_until`);
  await tx.query(sql`
    delete from pair_reading where pair_id = any(${ids}::integer[]) and block_number < ${number - 1}`);
}

/** After a fork: a pair whose followed blocks are all gone starts over with the next block. */
export async function unfollowPairsAbove(tx: Tx, ancestorNumber: number): Promise<void> {
  await tx.query(sql`
    update pair set followed_from = null, backfill_number = null, backfill_hash = null
    where followed_from > ${ancestorNumber}`);
}

/** Pairs whose past is to be read, all from the same block downwards. */
export type PairBackfill = {
  pairIds: number[];
  /** The next block to be read. */
  number: number;
  hash: Hash;
  /** How far down it may be read in one go: the block above is where others have to be read too, or 1. */
  lowest: number;
  /** Blocks up to this time are not read. */
  until: Date;
};

/** What is to be read next of the past of these pairs: the newest of it. */
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
 * Moves the past of these pairs on to the block below what was read; undefined: all is read. False, and nothing is changed,
 * when it is not where it was any more.
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
    update pair set backfill_number = ${next?.number}, backfill_hash = ${next && toBytes(next.hash)}
    where id = any(${ids}::integer[])`);
  return true;
}

/** Of which blocks everything of a pair is stored: those from `readFrom` on that are followed, or later than `readAfter`. */
export type PairCoverage = { pairId: number; followedFrom: number; readFrom: number; readAfter: Date };

/** Of those of these pairs that are followed. */
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

/** A block that was stored later than this after it was mined was read while catching up. */
const LIVE_DELAY = sql`interval '5 minutes'`;

/** Those of these pairs of which everything of the last 24 hours is stored, as far as the stored blocks tell. */
export async function findReadPairs(db: Db, pairIds: readonly number[]): Promise<Set<number>> {
  const rows = await db.query<{ id: number }>(sql`
    select id from pair
    where id = any(${listOf(pairIds)}::integer[]) and followed_from is not null and backfill_number is null
      and (select stored_at <= mined_at + ${LIVE_DELAY} from block order by number desc limit 1)
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
        `pair ${pair.id} (${pair.name}): ${pair.address} is stored as pair ${owner}`,
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
        `pair ${pair.id} (${pair.name}): its swaps are stored with ${field} ${value}, the configuration says ${configured}: another pair needs another id`,
      );
    }
  }
}
