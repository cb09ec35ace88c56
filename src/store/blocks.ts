/**
 * The chain as far as it was followed: the tip, the commit of new blocks with their notifications, the undoing of a fork.
 */
import { type BlockHeader, type BlockId, sidesOf, type Transfer } from '../core/block.ts';
import { Fault } from '../core/fault.ts';
import { fromBytes, type Hash, toBytes } from '../core/hex.ts';
import { bytesOf, listOf } from './arrays.ts';
import type { Database, Db } from './db.ts';
import { wakeLanes } from './lanes.ts';
import { takeBack } from './removals.ts';
import { sql } from './sql.ts';
import { giveTurns, type OrderedRecord } from './turns.ts';

/** Advisory lock that makes commits of several followers take turns; the compare-and-set decides. */
const COMMIT_LOCK = 0x6362_0002;
/** Turns of one block: more than a commit has transfers. */
const BLOCK_TURNS = 2 ** 20;

export type ChainRow = {
  chainId: number;
  genesisHash: Hash | undefined;
  /** The first block that was ever stored. */
  startNumber: number | undefined;
  finalizedNumber: number;
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
  /** Only added to what is stored. */
  enforcedChecks?: readonly string[];
  now: Date;
  /** Of these transfers those that must not be told yet; nothing is stored while there are any. */
  findUnproved?(matched: readonly MatchedTransfer[]): readonly MatchedTransfer[];
  /** Written in the same transaction, last. */
  also?(tx: Db): Promise<void>;
};

export type Reorg = {
  ancestorNumber: number;
  /** Undone in the same transaction, before the blocks go. */
  undo?(tx: Db): Promise<void>;
};

/** A transfer of a watched address, and the number of its block. */
export type MatchedTransfer = { transfer: Transfer; block: number };

/** `orphanedCount`: stored blocks that the reorg undid. */
export type Committed =
  | { outcome: 'committed'; notificationCount: number; orphanedCount: number }
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

/** The hash that is stored at a height. */
export async function findBlockHash(db: Db, number: number): Promise<Hash | undefined> {
  const [row] = await db.query<{ hash: Uint8Array }>(sql`select hash from block where number = ${number}`);
  return row && fromBytes(row.hash);
}

/** The chain that this database belongs to, once a follower has started on it. */
export async function findChain(db: Db): Promise<ChainRow | undefined> {
  const [row] = await db.query<{
    chain_id: number;
    genesis_hash: Uint8Array | null;
    start_number: number | null;
    finalized_number: number;
    enforced_checks: string[];
  }>(sql`select chain_id, genesis_hash, start_number, finalized_number, enforced_checks from chain`);
  return (
    row && {
      chainId: row.chain_id,
      genesisHash: row.genesis_hash === null ? undefined : fromBytes(row.genesis_hash),
      startNumber: row.start_number ?? undefined,
      finalizedNumber: row.finalized_number,
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
    const matches = await findMatches(tx, onceEach(commit.blocks));
    const unproved = commit.findUnproved?.(matches) ?? [];
    if (unproved.length > 0) return { outcome: 'unproved', transfers: unproved };
    const orphanedCount = await undoReorg(tx, commit);
    await insertHeaders(tx, commit);
    const made = await insertNotifications(tx, commit, matches);
    const news = [...made, ...(await releaseHeld(tx, commit))];
    await updateChain(tx, commit);
    const ordered = news.flatMap((one) => one.ordered ?? []);
    // Whoever gives turns has the lanes first, as a worker that settles: the other way round they would stop each other.
    const woken = news.filter((one) => one.state === 'waiting' || one.ordered !== undefined);
    await wakeLanes(tx, [...new Set(woken.map(({ laneId }) => laneId))], commit.now);
    await giveTurns(tx, ordered, commit.now);
    await commit.also?.(tx);
    const notificationCount = made.reduce((sum, { count }) => sum + count, 0);
    return { outcome: 'committed', notificationCount, orphanedCount };
  });
}

/**
 * Undoes the blocks above the ancestor: their headers go, and their notifications that were never attempted are
 * withdrawn. Attempted ones keep their row; where the record wants `removed`, it tells that from now on.
 * Returns how many blocks went.
 */
async function undoReorg(tx: Db, { reorg, expectedTip, now }: BlockCommit): Promise<number> {
  if (reorg === undefined || expectedTip === undefined) return 0;
  const { ancestorNumber } = reorg;
  await reorg.undo?.(tx);
  // What lies above the tip died in an earlier fork: it was told then, or its record did not want that.
  const told = sql`n.block_number > ${ancestorNumber} and n.block_number <= ${expectedTip.number}
    and n.revision % 2 = 0 and (n.state = 'processed'
    or n.state in ('held', 'waiting') and (n.retry_count > 0 or n.revision > 0))`;
  const ordered = await takeBack(tx, told, now);
  await tx.query(sql`
    update notification set state = 'withdrawn'
    where block_number > ${ancestorNumber} and state in ('held', 'waiting') and retry_count = 0 and revision % 2 = 0
      and redelivery_count = 0`);
  await giveTurns(tx, ordered, now);
  const gone = await tx.query(sql`delete from block where number > ${ancestorNumber} returning number`);
  return gone.length;
}

/** Undoes every block above the ancestor; returns how many went, 'lost' as in commitBlocks. */
export async function rollbackTo(
  database: Database,
  {
    ancestorNumber,
    expectedTip,
    now,
    also: undo,
  }: { ancestorNumber: number; expectedTip: BlockId; now: Date; also?(tx: Db): Promise<void> },
): Promise<number | 'lost'> {
  const reorg = { ancestorNumber, ...(undo !== undefined && { undo }) };
  const nothing = { blocks: [], releasedNumber: -1, finalizedNumber: 0 };
  const committed = await commitBlocks(database, { expectedTip, reorg, ...nothing, now });
  return committed.outcome === 'committed' ? committed.orphanedCount : 'lost';
}

/** Until this transaction ends nobody commits blocks and nobody undoes any. */
export async function holdBlocks(tx: Db): Promise<void> {
  await tx.query(sql`select pg_advisory_xact_lock(${COMMIT_LOCK})`);
}

/** The compare of the compare-and-set; the lock is held until the transaction ends. */
async function isTip(tx: Db, expected: BlockId | undefined): Promise<boolean> {
  await holdBlocks(tx);
  const tip = await findTip(tx);
  return tip?.number === expected?.number && tip?.hash === expected?.hash;
}

async function updateChain(
  tx: Db,
  { blocks, finalizedNumber, enforcedChecks = [] }: BlockCommit,
): Promise<void> {
  await tx.query(sql`
    update chain set finalized_number = greatest(finalized_number, ${finalizedNumber}),
      start_number = coalesce(start_number, ${blocks[0]?.header.number}),
      enforced_checks = array(select unnest(enforced_checks) union select unnest(${enforcedChecks}::text[]) order by 1)
    where finalized_number < ${finalizedNumber} or start_number is null
      or not enforced_checks @> ${enforcedChecks}::text[]`);
}

async function insertHeaders(tx: Db, { blocks, now }: BlockCommit): Promise<void> {
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

/** Notifications that were made, revived or released, of one lane and state, and of one record where that has turns. */
type News = { laneId: number; state: string; count: number; ordered: OrderedRecord | undefined };

type NewsRow = { shard_id: number; lane_id: number; state: string; ordered_id: string | null; count: number };

function toNews({ shard_id, lane_id, state, ordered_id, count }: NewsRow): News {
  const ordered = ordered_id === null ? undefined : { shardId: shard_id, id: ordered_id };
  return { laneId: lane_id, state, count, ordered };
}

/** Of rows `n`, grouped. */
const newsColumns = sql`shard_id, lane_id, state, ordered_id, count(*) as count`;
const newsOf = sql`n.shard_id, n.lane_id, n.state, case when n.turn is not null then n.watched_address_id end as ordered_id`;

/**
 * The join of DESIGN §5: one row for each record whose address is sender or receiver and whose flags and settings fit. A
 * transaction that is mined again meets its old row: a withdrawn one is revived, one that was told to be gone is told
 * once more, any other stays as it is.
 */
async function insertNotifications(
  tx: Db,
  { blocks, releasedNumber, now }: BlockCommit,
  matches: readonly Match[],
): Promise<News[]> {
  if (matches.length === 0) return [];
  // Commits take turns (isTip): what is not there now cannot come in between, and looking at each row costs more.
  const onConflict = (await isAnyMetBefore(tx, matches)) ? REVIVE : sql``;
  const confirmations = (blocks.at(-1)?.header.number ?? 0) - releasedNumber;
  const rows = await tx.query<NewsRow>(sql`
    with made as (
      insert into notification as n (shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, ordinal, sender,
        receiver, amount, token, block_number, state, release_number, turn, next_attempt_at, created_at)
      select w.shard_id, w.lane_id, w.id, w.watcher_id, t.kind, t.tx_hash, t.ordinal, t.sender, t.receiver, t.amount,
        t.token, t.block,
        case when release.number <= ${releasedNumber} and not w.strict_order then 'waiting' else 'held' end,
        case when release.number > ${releasedNumber} then release.number end,
        case when w.strict_order then t.block * ${BLOCK_TURNS}::bigint + t.position end,
        ${now}::timestamptz, ${now}::timestamptz
      from unnest(
        ${listOf(matches.map(({ side }) => side))}::text[],
        ${listOf(matches.map(({ transfer }) => transfer.kind))}::text[],
        ${bytesOf(matches.map(({ transfer }) => transfer.txHash))}::bytea[],
        ${listOf(matches.map(({ transfer }) => transfer.ordinal))}::integer[],
        ${bytesOf(matches.map(({ transfer }) => transfer.sender))}::bytea[],
        ${bytesOf(matches.map(({ transfer }) => transfer.receiver))}::bytea[],
        ${listOf(matches.map(({ transfer }) => transfer.amount))}::numeric[],
        ${bytesOf(matches.map(({ transfer }) => transfer.token))}::bytea[],
        ${listOf(matches.map(({ block }) => block))}::bigint[]
      ) with ordinality as t (side, kind, tx_hash, ordinal, sender, receiver, amount, token, block, position)
      join watched_address w on w.address = case t.side when 'sender' then t.sender else t.receiver end
      cross join lateral (select t.block + greatest(w.confirmations - ${confirmations}::integer, 0) as number) as release
      where ${isWanted}
      order by t.position, w.created_at, w.id
      ${onConflict}
      returning ${newsOf}
    )
    select ${newsColumns} from made group by shard_id, lane_id, state, ordered_id order by lane_id, state, ordered_id`);
  return rows.map(toNews);
}

/** The record's flags and settings (ingest/compare.ts says the same of a record in its own way). */
const isWanted = sql`
  case when t.kind = 'token'
    then w.watch_token and (w.tokens is null or t.amount >= (w.tokens ->> encode(t.token, 'hex'))::numeric)
    else w.watch_coin and t.amount >= coalesce(w.min_amount, 0) end
  and case w.direction when 'in' then w.address = t.receiver when 'out' then w.address = t.sender else true end`;

const REVIVE = sql`
  on conflict (tx_hash, kind, ordinal, watched_address_id, shard_id) do update
    set state = excluded.state, lane_id = excluded.lane_id, block_number = excluded.block_number,
      sender = excluded.sender, receiver = excluded.receiver, amount = excluded.amount, token = excluded.token,
      release_number = excluded.release_number, turn = excluded.turn, revision = n.revision + n.revision % 2,
      retry_count = 0, next_retry_at = null, next_attempt_at = excluded.next_attempt_at, processed_at = null
    where n.state = 'withdrawn' or n.revision % 2 = 1`;

/** Whether one of the transactions has rows already, from a block that died or that another one repeats. */
async function isAnyMetBefore(tx: Db, matches: readonly Match[]): Promise<boolean> {
  const hashes = new Set(matches.map(({ transfer }) => transfer.txHash));
  const met = await tx.query(sql`
    select from unnest(${bytesOf([...hashes])}::bytea[]) as t (tx_hash)
    cross join lateral (select from notification n where n.tx_hash = t.tx_hash limit 1) as n
    limit 1`);
  return met.length > 0;
}

/** The side of it that somebody watches. */
type Match = MatchedTransfer & { side: 'sender' | 'receiver' };

/** One statement must not meet a row twice, and some chains have had one transaction hash in two blocks. */
function onceEach(blocks: BlockCommit['blocks']): MatchedTransfer[] {
  const blockOf = new Map<Hash, number>();
  const placed: MatchedTransfer[] = [];
  for (const { header, transfers } of blocks) {
    const block = header.number;
    for (const transfer of transfers) {
      const first = blockOf.get(transfer.txHash);
      if (first === undefined) blockOf.set(transfer.txHash, block);
      if (first === undefined || first === block) placed.push({ transfer, block });
    }
  }
  return placed;
}

/** Each transfer once for each side that somebody watches: of most neither is, and they need not be sent whole. */
async function findMatches(tx: Db, transfers: readonly MatchedTransfer[]): Promise<Match[]> {
  const addresses = new Set(transfers.flatMap(({ transfer }) => sidesOf(transfer)));
  if (addresses.size === 0) return [];
  const rows = await tx.query<{ address: Uint8Array }>(sql`
    select p.address from unnest(${bytesOf([...addresses])}::bytea[]) as p (address)
    where exists (select from watched_address w where w.address = p.address)
    order by p.address limit ${addresses.size}`);
  const known = new Set(rows.map(({ address }) => fromBytes(address)));
  if (known.size === 0) return [];
  return transfers.flatMap(({ transfer, block }) =>
    sidesOf(transfer)
      .filter((side) => known.has(side))
      .map((side) => ({ transfer, block, side: side === transfer.sender ? 'sender' : 'receiver' })),
  );
}

/** The lower bound keeps the scan off what lies dead in the index: without it 2,500 entries were read per block. */
async function releaseHeld(
  tx: Db,
  { releasedBefore = -1, releasedNumber, now }: BlockCommit,
): Promise<News[]> {
  const rows = await tx.query<NewsRow>(sql`
    with released as (
      update notification n set release_number = null, next_attempt_at = greatest(${now}, next_retry_at),
        state = case when turn is null then 'waiting' else 'held' end
      where state = 'held' and release_number > ${releasedBefore} and release_number <= ${releasedNumber}
      returning ${newsOf}
    )
    select ${newsColumns} from released group by shard_id, lane_id, state, ordered_id order by lane_id, state, ordered_id`);
  return rows.map(toNews);
}
