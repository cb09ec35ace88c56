/**
 * The stored chain: its tip, and the commit of new blocks with their notifications, which may replace orphaned blocks.
 */
import { never } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import { systemClock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { fromBytes, type Hash, toBytes } from '../../core/hex.ts';
import type { BlockHeader, BlockId } from '../../domain/block.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { limitStatements, listLost, listPlaces, recoverCommits, withoutLost } from '../db/lost-shards.ts';
import { sql } from '../db/sql.ts';
import type { AddressFilter, FilteredTransaction } from '../matching/address-filter.ts';
import type { DeferralLimits } from '../matching/deferred.ts';
import { dropDeferred } from '../matching/drop-deferred.ts';
import { listMatches, type MatchedBlock, type MatchedTransfer, notAmong } from '../matching/matching.ts';
import { lockForIds } from './commit-lock.ts';
import { listKept } from './kept-transfers.ts';
import { createCandidates, storeMissed } from './missed-blocks.ts';
import { beginReorg, isAbove } from './reorgs.ts';
import { withKnownCalls } from './untraced.ts';
import { writeNotifications } from './write-notifications.ts';

/** A recovery takes milliseconds, unless a worker hangs. */
const RECOVERY_MS_MAX = 5_000;
/** On Citus, a worker that hangs must not hold up the other shards. Longer than a statement of a commit takes. */
const STATEMENT_MS_MAX = 10_000;

export type ChainRow = {
  chainId: number;
  genesisHash: Hash | undefined;
  /** The first block that was ever stored. */
  startNumber: number | undefined;
  finalizedNumber: number;
  /** The newest stored block that a quorum of the nodes was seen to have; undefined until there is one. */
  corroboratedNumber: number | undefined;
  /** Proof checks that this chain was seen to honor. */
  enforcedChecks: string[];
  /** Transaction types that this chain was seen to have, and that Chainbell can't prove. */
  unprovedTypes: string[];
  /** Whether a node has traced a stored block. */
  hasTraces: boolean;
};

export type BlockCommit = {
  /** The tip that the follower saw; undefined for the very first block. */
  expectedTip: BlockId | undefined;
  /** Set if `blocks` replace stored ones. The same transaction orphans the stored blocks above the ancestor. */
  reorg?: Reorg | undefined;
  blocks: readonly (MatchedBlock & { header: BlockHeader; proved: boolean })[];
  /** How many blocks must be stored above that of a notification before it is sent, unless its record asks for more. */
  confirmations: number;
  /** All that are held until this block, or an older one, are released already; undefined if the caller does not know. */
  releasedBefore?: number | undefined;
  finalizedNumber: number;
  /** The newest block that a quorum of the nodes was seen to have; undefined keeps what is stored. */
  corroboratedNumber?: number | undefined;
  /** Added to the stored checks. */
  enforcedChecks?: readonly string[];
  /** Added to the stored types. */
  unprovedTypes?: readonly string[];
  /** Whether a node has traced one of the blocks. */
  hasTraces?: boolean;
  now: Date;
  /** Decides which notifications are left to `writeDeferred`. */
  deferral?: DeferralLimits;
  /** Returns the matched transfers that must be proved before notification. If there are any, nothing is stored. */
  findUnproved?(matched: readonly MatchedTransfer[]): readonly MatchedTransfer[];
  /** Of the same database. Without it, the database is asked for every address. */
  filter?: Pick<AddressFilter, 'transaction'> | undefined;
  /** Whether the blocks were read too long ago. Called once the commit lock is held, for which a commit may wait for long. */
  isStale?(): boolean;
  /** Writes further data in the same transaction, after everything else. */
  also?(tx: Tx): Promise<void>;
};

type Reorg = {
  /** The newest block that stays. */
  ancestorNumber: number;
  /** Removes further data of the orphaned blocks in the same transaction, before the blocks are deleted. */
  undo?(tx: Tx): Promise<void>;
  /** The time once their notifications are locked, which may take seconds. What was due by then may have been sent. Default: `now`. */
  readNow?(): Date;
};

/** `orphanedCount`: stored blocks that the reorg orphaned. `idsAfter`: as `lockForIds` returns it. */
export type Committed =
  | {
      outcome: 'committed';
      notificationCount: number;
      orphanedCount: number;
      hasDeferred: boolean;
      idsAfter?: number;
    }
  | { outcome: 'unproved'; transfers: readonly MatchedTransfer[] }
  | { outcome: 'lost' | 'stale' };

/** The tip: the newest stored block, from which following continues. */
export async function findTip(db: Db): Promise<BlockId | undefined> {
  const [row] = await db.query<{ number: number; hash: Uint8Array }>(
    sql`select number, hash from block order by number desc limit 1`,
  );
  return row && { number: row.number, hash: fromBytes(row.hash) };
}

/** The header of the newest stored block. */
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

/** When the newest stored block was mined and stored, for /status. */
export async function findTipTimes(
  db: Db,
): Promise<{ number: number; minedAt: Date; storedAt: Date } | undefined> {
  const [row] = await db.query<{ number: number; mined_at: Date; stored_at: Date }>(
    sql`select number, mined_at, stored_at from block order by number desc limit 1`,
  );
  return row && { number: row.number, minedAt: row.mined_at, storedAt: row.stored_at };
}

/** The newest of the stored blocks that were stored before this time; -1 without any. */
export async function findStoredBefore(db: Db, time: Date): Promise<number> {
  const [row] = await db.query<{ number: number }>(
    sql`select number from block where stored_at < ${time} order by number desc limit 1`,
  );
  return row?.number ?? -1;
}

/** The first stored block and the hash of its parent, which is not stored; undefined without blocks. */
export async function findFirst(db: Db): Promise<Pick<BlockHeader, 'number' | 'parentHash'> | undefined> {
  const [row] = await db.query<{ number: number; parent_hash: Uint8Array }>(
    sql`select number, parent_hash from block order by number limit 1`,
  );
  return row && { number: row.number, parentHash: fromBytes(row.parent_hash) };
}

/** The hash of the stored block at a height, or of the first stored block's parent. */
export async function findKnownHash(db: Db, number: number): Promise<Hash | undefined> {
  const stored = await findBlockHash(db, number);
  if (stored !== undefined) return stored;
  const first = await findFirst(db);
  return number >= 0 && first?.number === number + 1 ? first.parentHash : undefined;
}

/** The hash of the stored block at a height. */
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

/** Notes that the stored block at this height is final. A commit does so too, but the chain may rest. */
export async function raiseFinalized(db: Db, number: number): Promise<void> {
  await db.query(sql`
    update chain set finalized_number = ${number}
    where finalized_number < ${number} and exists (select from block where number = ${number})`);
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
    unproved_types: string[];
    has_traces: boolean;
  }>(sql`
    select chain_id, genesis_hash, start_number, finalized_number, corroborated_number, enforced_checks, unproved_types, has_traces
    from chain`);
  return (
    row && {
      chainId: row.chain_id,
      genesisHash: row.genesis_hash === null ? undefined : fromBytes(row.genesis_hash),
      startNumber: row.start_number ?? undefined,
      finalizedNumber: row.finalized_number,
      corroboratedNumber: row.corroborated_number ?? undefined,
      enforcedChecks: row.enforced_checks,
      unprovedTypes: row.unproved_types,
      hasTraces: row.has_traces,
    }
  );
}

/** @throws Fault `conflict` if the database belongs to another chain than the configured one. */
export function requireChain({ chainId }: Pick<ChainRow, 'chainId'>, configuredId: number): void {
  if (chainId === configuredId) return;
  throw new Fault(
    'conflict',
    `the database belongs to chain ${chainId}, but chain.id is ${configuredId}. Change chain.id, or use another database`,
  );
}

/** Binds the database to a chain. Does nothing if another follower has already done so. */
export async function insertChain(db: Db, chainId: number, genesisHash: Hash | undefined): Promise<void> {
  const genesis = genesisHash && toBytes(genesisHash);
  await db.query(
    sql`insert into chain (chain_id, genesis_hash) values (${chainId}, ${genesis}) on conflict do nothing`,
  );
}

/**
 * Stores blocks with the notifications of their transfers in one transaction. Stores nothing and returns 'lost' if the tip is
 * no longer the expected one because another follower was first, or 'unproved' with the transfers that `findUnproved`
 * returned.
 */
export async function commitBlocks(database: Database, given: BlockCommit): Promise<Committed> {
  if (given.reorg !== undefined) await endInterruptedCommits(database);
  const begin: FilteredTransaction = given.filter?.transaction ?? ((work) => database.transaction(work));
  return begin(async (all, narrow) => {
    if (all.isDistributed === true) await limitStatements(all, STATEMENT_MS_MAX);
    const idsAfter = await lockForIds(all);
    if (!(await isTip(all, given.expectedTip))) return { outcome: 'lost' };
    if (given.isStale?.() === true) return { outcome: 'stale' };
    const lost = await listLost(all);
    const tx = await withoutLost(all, lost);
    const commit = { ...given, blocks: await blocksOf(tx, given) };
    const candidates = createCandidates(narrow);
    const matches = await listMatches(tx, commit.blocks, candidates.narrow);
    const { kept, related } = await keptBy(tx, commit);
    // Notifications of lost shards may be of transfers that nothing watches any more, and a reorg keeps those too.
    const ofLost = commit.reorg === undefined ? candidates : createCandidates(undefined);
    const missed = lost.length === 0 ? [] : ofLost.among(commit.blocks);
    // Lost shards may watch any of them, and the nodes may not have the block later.
    const told = lost.length === 0 ? matches : missed;
    const unproved = commit.findUnproved?.([...told, ...notAmong(told, related)]) ?? [];
    if (unproved.length > 0) return { outcome: 'unproved', transfers: unproved };
    const orphaned = await orphanBlocks(tx, commit);
    await insertHeaders(tx, commit);
    if (lost.length > 0) await storeMissed(tx, { blocks: commit.blocks, transfers: missed }, orphaned);
    const { notificationCount, hasDeferred } = await writeNotifications(tx, {
      ...commit,
      tipNumber: tipNumberOf(commit),
      matches,
      kept,
      reorgIds: orphaned === undefined ? [] : [orphaned.reorgId],
    });
    await updateChain(tx, commit);
    await commit.also?.(tx);
    const orphanedCount = orphaned?.orphanedCount ?? 0;
    const committed = { outcome: 'committed' as const, notificationCount, orphanedCount, hasDeferred };
    return idsAfter === undefined ? committed : { ...committed, idsAfter };
  });
}

/**
 * On Citus: makes notifications visible whose commit a worker could not finish, because a reorg would not mark them. Goes on if that is
 * not possible: Citus asks all workers, also lost ones, and blocks must not depend on one that doesn't answer.
 */
async function endInterruptedCommits(database: Database): Promise<void> {
  if (database.isDistributed !== true || (await listLost(database)).length > 0) return;
  try {
    const ended = listPlaces(database).then((places) => recoverCommits(database, places));
    await firstOrLate({ clock: systemClock(), signal: never }, [ended], RECOVERY_MS_MAX);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
  }
}

async function blocksOf(tx: Tx, { reorg, expectedTip, blocks }: BlockCommit): Promise<BlockCommit['blocks']> {
  if (reorg === undefined || expectedTip === undefined) return blocks;
  return withKnownCalls(tx, blocks, isAbove(tx, reorg.ancestorNumber, expectedTip));
}

async function keptBy(tx: Tx, { reorg, expectedTip, blocks }: BlockCommit): ReturnType<typeof listKept> {
  if (reorg === undefined || expectedTip === undefined) return { kept: [], related: [] };
  return listKept(tx, blocks, isAbove(tx, reorg.ancestorNumber, expectedTip));
}

async function orphanBlocks(tx: Tx, { reorg, expectedTip, now }: BlockCommit) {
  if (reorg === undefined || expectedTip === undefined) return undefined;
  await reorg.undo?.(tx);
  await dropDeferred(tx, reorg.ancestorNumber);
  const { ancestorNumber } = reorg;
  const readNow = () => reorg.readNow?.() ?? now;
  return { ancestorNumber, ...(await beginReorg(tx, { ancestorNumber, tip: expectedTip, now, readNow })) };
}

/** The newest block that is stored after the commit. */
const tipNumberOf = ({ blocks, reorg, expectedTip }: BlockCommit): number =>
  blocks.at(-1)?.header.number ?? reorg?.ancestorNumber ?? expectedTip?.number ?? -1;

/** The comparison of the compare-and-set, under the commit lock. */
async function isTip(tx: Tx, expected: BlockId | undefined): Promise<boolean> {
  const tip = await findTip(tx);
  return tip?.number === expected?.number && tip?.hash === expected?.hash;
}

async function updateChain(
  tx: Tx,
  { blocks, finalizedNumber, corroboratedNumber, ...commit }: BlockCommit,
): Promise<void> {
  const { enforcedChecks = [], unprovedTypes = [], hasTraces = false } = commit;
  await tx.query(sql`
    update chain set finalized_number = greatest(finalized_number, ${finalizedNumber}),
      start_number = coalesce(start_number, ${blocks[0]?.header.number}),
      corroborated_number = coalesce(${corroboratedNumber}::bigint, corroborated_number),
      enforced_checks = array(select unnest(enforced_checks) union select unnest(${enforcedChecks}::text[]) order by 1),
      unproved_types = array(select unnest(unproved_types) union select unnest(${unprovedTypes}::text[]) order by 1),
      has_traces = has_traces or ${hasTraces}::boolean
    where finalized_number < ${finalizedNumber} or start_number is null
      or ${corroboratedNumber}::bigint <> coalesce(corroborated_number, -1)
      or not enforced_checks @> ${enforcedChecks}::text[] or not unproved_types @> ${unprovedTypes}::text[]
      or ${hasTraces}::boolean and not has_traces`);
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
