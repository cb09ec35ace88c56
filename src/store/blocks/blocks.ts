/**
 * The chain as far as it was followed: the tip, the commit of new blocks with their notifications, the undoing of a fork.
 */
import { Fault } from '../../core/fault.ts';
import { fromBytes, type Hash, toBytes } from '../../core/hex.ts';
import type { BlockHeader, BlockId, Transfer } from '../../domain/block.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { wakeLanes } from '../delivery/lanes.ts';
import { advanceSequences } from '../delivery/sequence.ts';
import {
  type DeferralLimits,
  deferMatches,
  deferralLimits,
  dropDeferred,
  listDeferrable,
  withoutDeferred,
} from '../matching/deferred.ts';
import {
  insertNotifications,
  isAnyMetBefore,
  listMatches,
  type MatchedTransfer,
  releaseHeld,
  type StoredCount,
} from '../matching/matching.ts';
import { beginReorg, endReorg } from './reorgs.ts';

/** Advisory lock that makes commits of several followers take turns; the compare-and-set decides. */
const COMMIT_LOCK = 0x6362_0002;

export type ChainRow = {
  chainId: number;
  genesisHash: Hash | undefined;
  /** The first block that was ever stored. */
  startNumber: number | undefined;
  finalizedNumber: number;
  /** The newest stored block that a quorum of the nodes was seen to have; undefined until a version that asks them. */
  corroboratedNumber: number | undefined;
  /** Checks of blocks that this chain was seen to honour. */
  enforcedChecks: string[];
};

export type BlockCommit = {
  /** The tip that the follower saw; undefined for the very first block. */
  expectedTip: BlockId | undefined;
  /** Set where `blocks` replace stored ones: the newest block that stays. The same transaction undoes those above it. */
  reorg?: Reorg | undefined;
  blocks: readonly { header: BlockHeader; proved: boolean; transfers: readonly Transfer[] }[];
  /** Notifications of blocks up to this number may be sent (the newest stored minus confirmations). */
  releasedNumber: number;
  /** Up to here everything was released before; undefined when the caller does not know. */
  releasedBefore?: number | undefined;
  finalizedNumber: number;
  /** The newest block that a quorum of the nodes was seen to have; undefined keeps what is stored. */
  corroboratedNumber?: number | undefined;
  /** Only added to what is stored. */
  enforcedChecks?: readonly string[];
  now: Date;
  /** Which notifications are left to `writeDeferred`. */
  deferral?: DeferralLimits;
  /** Of these transfers those that must not be told yet; nothing is stored while there are any. */
  findUnproved?(matched: readonly MatchedTransfer[]): readonly MatchedTransfer[];
  /** Written in the same transaction, last. */
  also?(tx: Tx): Promise<void>;
};

type Reorg = {
  ancestorNumber: number;
  /** Undone in the same transaction, before the blocks go. */
  undo?(tx: Tx): Promise<void>;
};

/** `orphanedCount`: stored blocks that the reorg undid. */
export type Committed =
  | { outcome: 'committed'; notificationCount: number; orphanedCount: number; hasDeferred: boolean }
  | { outcome: 'unproved'; transfers: readonly MatchedTransfer[] }
  | { outcome: 'lost' };

/** The newest stored block: the cursor. */
export async function findTip(db: Db): Promise<BlockId | undefined> {
  const [row] = await db.query<{ number: number; hash: Uint8Array }>(
    sql`select number, hash from block order by number desc limit 1`,
  );
  return row && { number: row.number, hash: fromBytes(row.hash) };
}

/** The newest stored block with its time. */
export async function findTipHeader(db: Db): Promise<BlockHeader | undefined> {
  const [row] = await db.query<{ number: number; hash: Uint8Array; parent_hash: Uint8Array; mined_at: Date }>(
    sql`select number, hash, parent_hash, mined_at from block order by number desc limit 1`,
  );
  return (
    row && {
      number: row.number,
      hash: fromBytes(row.hash),
      parentHash: fromBytes(row.parent_hash),
      minedAt: row.mined_at,
    }
  );
}

/** The newest stored header with its time and when it was stored; for /status. */
export async function findTipTimes(
  db: Db,
): Promise<{ number: number; minedAt: Date; storedAt: Date } | undefined> {
  const [row] = await db.query<{ number: number; mined_at: Date; stored_at: Date }>(
    sql`select number, mined_at, stored_at from block order by number desc limit 1`,
  );
  return row && { number: row.number, minedAt: row.mined_at, storedAt: row.stored_at };
}

/** The first stored block and the hash of its parent, which no block of ours holds; undefined without blocks. */
export async function findFirst(db: Db): Promise<Pick<BlockHeader, 'number' | 'parentHash'> | undefined> {
  const [row] = await db.query<{ number: number; parent_hash: Uint8Array }>(
    sql`select number, parent_hash from block order by number limit 1`,
  );
  return row && { number: row.number, parentHash: fromBytes(row.parent_hash) };
}

/** The hash that is stored at a height, or that the first stored block names as its parent. */
export async function findKnownHash(db: Db, number: number): Promise<Hash | undefined> {
  const stored = await findBlockHash(db, number);
  if (stored !== undefined) return stored;
  const first = await findFirst(db);
  return number >= 0 && first?.number === number + 1 ? first.parentHash : undefined;
}

/** The hash that is stored at a height. */
export async function findBlockHash(db: Db, number: number): Promise<Hash | undefined> {
  const [row] = await db.query<{ hash: Uint8Array }>(sql`select hash from block where number = ${number}`);
  return row && fromBytes(row.hash);
}

/** Whether this block was stored, and a reorg has orphaned it. */
export async function isOrphaned(db: Db, { number, hash }: BlockId): Promise<boolean> {
  // A reorg orphans what lies above its ancestor.
  const rows = await db.query(sql`
    select from orphaned_block o join reorg r on r.id = o.reorg_id
    where o.number = ${number} and o.hash = ${toBytes(hash)} and o.number > r.ancestor_number limit 1`);
  return rows.length > 0;
}

/** The chain that this database belongs to, once a follower has started on it. */
export async function findChain(db: Db): Promise<ChainRow | undefined> {
  const [row] = await db.query<{
    chain_id: number;
    genesis_hash: Uint8Array | null;
    start_number: number | null;
    finalized_number: number;
    corroborated_number: number | null;
    enforced_checks: string[];
  }>(sql`
    select chain_id, genesis_hash, start_number, finalized_number, corroborated_number, enforced_checks from chain`);
  return (
    row && {
      chainId: row.chain_id,
      genesisHash: row.genesis_hash === null ? undefined : fromBytes(row.genesis_hash),
      startNumber: row.start_number ?? undefined,
      finalizedNumber: row.finalized_number,
      corroboratedNumber: row.corroborated_number ?? undefined,
      enforcedChecks: row.enforced_checks,
    }
  );
}

/** @throws Fault `conflict` when the database holds another chain than the configured one. */
export function requireChain({ chainId }: Pick<ChainRow, 'chainId'>, configuredId: number): void {
  if (chainId === configuredId) return;
  throw new Fault('conflict', `the database holds chain ${chainId}, the configuration says ${configuredId}`);
}

/** Binds the database to a chain; the first follower's word stays. */
export async function insertChain(db: Db, chainId: number, genesisHash: Hash | undefined): Promise<void> {
  const genesis = genesisHash && toBytes(genesisHash);
  await db.query(
    sql`insert into chain (chain_id, genesis_hash) values (${chainId}, ${genesis}) on conflict do nothing`,
  );
}

/**
 * Stores blocks with the notifications of their transfers in one transaction: all or nothing. 'lost' when the tip is
 * not the expected one any more, because another follower was first; 'unproved' names what `findUnproved` found. Nothing is
 * stored then.
 */
export async function commitBlocks(database: Database, commit: BlockCommit): Promise<Committed> {
  return database.transaction(async (tx) => {
    if (!(await isTip(tx, commit.expectedTip))) return { outcome: 'lost' };
    const matches = await listMatches(tx, commit.blocks);
    const unproved = commit.findUnproved?.(matches) ?? [];
    if (unproved.length > 0) return { outcome: 'unproved', transfers: unproved };
    const orphaned = await orphanBlocks(tx, commit);
    await insertHeaders(tx, commit);
    const limits = commit.deferral ?? deferralLimits;
    const deferrable = await listDeferrable(tx, matches, { isReorg: orphaned !== undefined, limits });
    const { groups: without } = deferrable;
    const isMet = matches.length > 0 && (await isAnyMetBefore(tx, matches));
    await deferMatches(tx, without, { matches, isMet, limits });
    const written = withoutDeferred(matches, deferrable);
    const made = await insertNotifications(
      tx,
      { ...commit, matches: written, without, isMet },
      orphaned?.reorgId,
    );
    const left = orphaned === undefined ? [] : await endReorg(tx, orphaned.reorgId, commit.now);
    const released = await releaseHeld(tx, { ...commit, laneIds: toWake(made) });
    const stored = [...made, ...released];
    await updateChain(tx, commit);
    const ordered = [...left, ...stored.flatMap((one) => one.ordered ?? [])];
    // Lock lanes before turns, as a worker that settles does; the other order would deadlock.
    await wakeLanes(tx, toWake(stored), commit.now);
    await advanceSequences(tx, ordered, commit.now);
    await commit.also?.(tx);
    const notificationCount = made.reduce((sum, { count }) => sum + count, 0);
    const orphanedCount = orphaned?.orphanedCount ?? 0;
    return { outcome: 'committed', notificationCount, orphanedCount, hasDeferred: without.length > 0 };
  });
}

/** The lanes of what is due, or may be once its turn comes. */
export function toWake(stored: readonly StoredCount[]): number[] {
  const woken = stored.filter((one) => one.state === 'waiting' || one.ordered !== undefined);
  return [...new Set(woken.map(({ laneId }) => laneId))];
}

async function orphanBlocks(tx: Tx, { reorg, expectedTip, now }: BlockCommit) {
  if (reorg === undefined || expectedTip === undefined) return undefined;
  await reorg.undo?.(tx);
  await dropDeferred(tx, reorg.ancestorNumber);
  return beginReorg(tx, { ancestorNumber: reorg.ancestorNumber, tip: expectedTip, now });
}

/** Until this transaction ends, no other one commits or undoes blocks. */
export async function holdBlocks(tx: Tx): Promise<void> {
  await tx.query(sql`select pg_advisory_xact_lock(${COMMIT_LOCK})`);
}

/** The compare of the compare-and-set; the lock is held until the transaction ends. */
async function isTip(tx: Tx, expected: BlockId | undefined): Promise<boolean> {
  await holdBlocks(tx);
  const tip = await findTip(tx);
  return tip?.number === expected?.number && tip?.hash === expected?.hash;
}

async function updateChain(
  tx: Tx,
  { blocks, finalizedNumber, corroboratedNumber, enforcedChecks = [] }: BlockCommit,
): Promise<void> {
  await tx.query(sql`
    update chain set finalized_number = greatest(finalized_number, ${finalizedNumber}),
      start_number = coalesce(start_number, ${blocks[0]?.header.number}),
      corroborated_number = coalesce(${corroboratedNumber}::bigint, corroborated_number),
      enforced_checks = array(select unnest(enforced_checks) union select unnest(${enforcedChecks}::text[]) order by 1)
    where finalized_number < ${finalizedNumber} or start_number is null
      or ${corroboratedNumber}::bigint <> coalesce(corroborated_number, -1)
      or not enforced_checks @> ${enforcedChecks}::text[]`);
}

async function insertHeaders(tx: Tx, { blocks, now }: BlockCommit): Promise<void> {
  const headers = blocks.map(({ header }) => header);
  await tx.query(sql`
    insert into block (number, hash, parent_hash, mined_at, proved, stored_at)
    select number, hash, parent_hash, mined_at, proved, ${now}::timestamptz
    from unnest(
      ${headers.map(({ number }) => number)}::bigint[],
      ${headers.map(({ hash }) => toBytes(hash))}::bytea[],
      ${headers.map(({ parentHash }) => toBytes(parentHash))}::bytea[],
      ${headers.map(({ minedAt }) => minedAt)}::timestamptz[],
      ${blocks.map(({ proved }) => proved)}::boolean[]
    ) as t (number, hash, parent_hash, mined_at, proved)`);
}
