/**
 * The matching join, the heart of the product: transfers of new blocks become notifications of the records that watch them,
 * and notifications that were held become due.
 */
import { type Address, fromBytes, type Hash } from '../../core/hex.ts';
import { type BlockHeader, createOccurrences, sidesOf, type Transfer } from '../../domain/block.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { unsentEpoch } from '../delivery/lanes.ts';
import { isRemovalNotice, isTransferMessage, transferRevision } from '../delivery/message-kind.ts';
import type { OrderedRecord } from '../delivery/sequence.ts';

/** Turns of one block: more than a commit has transfers. */
const BLOCK_POSITIONS = 2 ** 20;

type MatchedBlock = { header: Pick<BlockHeader, 'number'>; transfers: readonly Transfer[] };
/** Notifications of blocks up to `releasedNumber` may be sent. */
type Moment = { releasedNumber: number; now: Date };

/** The records of one watcher for one address. */
export type RecordGroup = { watcherId: number; address: Address };

/**
 * Notifications that were created, included again or released, of one lane and state, and of one record in strict order;
 * `count` of the created ones.
 */
export type StoredCount = {
  laneId: number;
  state: string;
  count: number;
  ordered: OrderedRecord | undefined;
};

type StoredCountRow = {
  shard_id: number;
  lane_id: number;
  state: string;
  ordered_id: string | null;
  count: number;
};

function toStoredCount({ shard_id, lane_id, state, ordered_id, count }: StoredCountRow): StoredCount {
  const ordered = ordered_id === null ? undefined : { shardId: shard_id, id: ordered_id };
  return { laneId: lane_id, state, count, ordered };
}

/** Of rows `n`, grouped. */
const storedCountColumns = sql`shard_id, lane_id, state, ordered_id, count(*) filter (where is_new) as count`;
// A row that `on conflict` updated carries the number of this transaction as its last one.
const changedRow = sql`n.shard_id, n.lane_id, n.state, n.xmax = 0 as is_new,
  case when n.sequence is not null then n.watched_address_id end as ordered_id`;

/**
 * The join of DESIGN §5: one row for each record whose address is sender or receiver and whose flags and settings fit. A
 * transfer that was orphaned meets its old row, which is on the canonical chain again.
 */
export async function insertNotifications(
  tx: Tx,
  {
    blocks,
    matches,
    releasedNumber,
    now,
    confirmations = (blocks.at(-1)?.header.number ?? 0) - releasedNumber,
    records,
    without = [],
    isMet: isKnownMet,
  }: Moment & {
    blocks: readonly MatchedBlock[];
    /** Of these blocks, as `listMatches` finds them. */
    matches: readonly Match[];
    /** Of the service; by default those of a commit at the tip. */
    confirmations?: number;
    /** The only records whose notifications are made: these matched, whatever they watch by now. */
    records?: { shardId: number; ids: readonly string[] };
    /** Those whose notifications are deferred. */
    without?: readonly RecordGroup[];
    /** Whether transactions of the matches had notifications before; found out unless it is known. */
    isMet?: boolean;
  },
  reorgId: number | undefined,
): Promise<StoredCount[]> {
  if (matches.length === 0) return [];
  // Commits take turns (isTip): what is not there now cannot come in between, and looking at each row costs more.
  const isMet = isKnownMet ?? (await isAnyMetBefore(tx, matches));
  if (isMet) await lockLanesOf(tx, matches);
  const rows = await tx.query<StoredCountRow>(sql`
    with t as (
      select * from unnest(
        ${listOf(matches.map(({ side }) => side))}::text[],
        ${listOf(matches.map(({ transfer }) => transfer.kind))}::text[],
        ${bytesOf(matches.map(({ transfer }) => transfer.txHash))}::bytea[],
        ${listOf(matches.map(({ transfer }) => transfer.ordinal))}::integer[],
        ${bytesOf(matches.map(({ transfer }) => transfer.sender))}::bytea[],
        ${bytesOf(matches.map(({ transfer }) => transfer.receiver))}::bytea[],
        ${listOf(matches.map(({ transfer }) => transfer.amount))}::numeric[],
        ${bytesOf(matches.map(({ transfer }) => transfer.token))}::bytea[],
        ${listOf(matches.map(({ occurrence }) => occurrence))}::integer[],
        ${listOf(matches.map(({ block }) => block))}::bigint[]
      ) with ordinality as t (side, kind, tx_hash, ordinal, sender, receiver, amount, token, occurrence, block, position)
    ), made as (
      insert into notification as n (shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, ordinal, sender,
        receiver, amount, token, occurrence, block_number, state, release_number, sequence, next_attempt_at, created_at,
        unsent_epoch, replaces)
      select w.shard_id, w.lane_id, w.id, w.watcher_id, t.kind, t.tx_hash, t.ordinal, t.sender, t.receiver, t.amount,
        t.token, t.occurrence, t.block,
        case when release.number <= ${releasedNumber} and not w.strict_order then 'waiting' else 'held' end,
        case when release.number > ${releasedNumber} then release.number end,
        case when w.strict_order then t.block * ${BLOCK_POSITIONS}::bigint + t.position end,
        ${now}::timestamptz, ${now}::timestamptz,
        ${unsentEpoch},
        ${isMet ? REPLACED : sql`null::bigint`}
      from t
      join watched_address w on ${records === undefined ? sql`w.address = ${matchedAddress}` : isOf(records)}
      join lane l on l.id = w.lane_id
      cross join lateral (select t.block + greatest(w.confirmations - ${confirmations}::integer, 0) as number) as release
      where ${isWanted}${without.length === 0 ? sql`` : isNotOf(without)}
      order by t.position, w.created_at, w.id
      ${isMet ? onReinclusion(reorgId) : sql``}
      returning ${changedRow}
    )
    select ${storedCountColumns} from made group by shard_id, lane_id, state, ordered_id order by lane_id, state, ordered_id`);
  return rows.map(toStoredCount);
}

const isOf = ({ shardId, ids }: { shardId: number; ids: readonly string[] }) =>
  sql`w.shard_id = ${shardId} and w.id = any(${listOf(ids)}::uuid[])`;

const matchedAddress = sql`case t.side when 'sender' then t.sender else t.receiver end`;

const isNotOf = (groups: readonly RecordGroup[]) => sql` and not exists (
  select from unnest(
    ${listOf(groups.map(({ watcherId }) => watcherId))}::bigint[],
    ${bytesOf(groups.map(({ address }) => address))}::bytea[]
  ) as deferred (watcher_id, address)
  where deferred.watcher_id = w.watcher_id and deferred.address = w.address)`;

/** The record's flags and settings (audit/compare.ts says the same of a record in its own way). */
const isWanted = sql`
  case when t.kind = 'token'
    then w.watch_token and (w.tokens is null or t.amount >= (w.tokens ->> encode(t.token, 'hex'))::numeric)
    else w.watch_coin and t.amount >= coalesce(w.min_amount, 0) end
  and case w.direction when 'in' then t.receiver = ${matchedAddress} when 'out' then t.sender = ${matchedAddress} else true end`;

/**
 * The notification of the same record and transaction that this one stands in for: one that a receiver may have seen, whose
 * content the transaction no longer has; the nearest, where there are several.
 */
const REPLACED = sql`(
  select o.id from notification o
  where o.tx_hash = t.tx_hash and o.shard_id = w.shard_id and o.watched_address_id = w.id and o.kind = t.kind
    and o.reorg_id is not null and o.may_be_seen
    and not exists (
      select from t same where same.tx_hash = o.tx_hash and same.kind = o.kind and same.sender = o.sender
        and same.receiver is not distinct from o.receiver and same.token is not distinct from o.token
        and same.amount = o.amount and same.occurrence = o.occurrence)
  order by abs(o.ordinal - t.ordinal), o.id desc limit 1)`;

/**
 * A row whose transfer is canonical again. Acknowledged, it stays so. Orphaned in this very commit, it only moves to its
 * new block, and waits for its confirmations again unless a receiver may have seen it. After a removal notice it gets the
 * next even revision; withdrawn, its delivery begins again.
 */
function onReinclusion(reorgId: number | undefined): Sql {
  const isSentAgain = sql`(${isRemovalNotice} or n.state = 'withdrawn')`;
  const stays = sql`(${isTransferMessage} and (n.state = 'processed'
    or n.state = 'waiting' and n.may_be_seen and n.reorg_id = ${reorgId ?? null}::bigint))`;
  return sql`
  on conflict (tx_hash, content, watched_address_id, shard_id) do update
    set reorg_id = null, block_number = excluded.block_number, ordinal = excluded.ordinal, sequence = excluded.sequence,
      revision = ${transferRevision},
      state = case when ${stays} then n.state else excluded.state end,
      release_number = case when ${stays} then null else excluded.release_number end,
      lane_id = case when ${isSentAgain} then excluded.lane_id else n.lane_id end,
      unsent_epoch = case when ${isSentAgain} then excluded.unsent_epoch else n.unsent_epoch end,
      retry_count = case when ${isSentAgain} then 0 else n.retry_count end,
      next_retry_at = case when not ${isSentAgain} then n.next_retry_at end,
      next_attempt_at = case when ${isSentAgain} then excluded.next_attempt_at else n.next_attempt_at end,
      processed_at = case when not ${isSentAgain} then n.processed_at end
    where n.reorg_id is not null or n.state = 'withdrawn'`;
}

/** Whether one of the transactions has rows already, from a block that died or that another one repeats. */
export async function isAnyMetBefore(tx: Tx, matches: readonly Match[]): Promise<boolean> {
  const hashes = new Set(matches.map(({ transfer }) => transfer.txHash));
  const met = await tx.query(sql`
    select from unnest(${bytesOf([...hashes])}::bytea[]) as t (tx_hash)
    cross join lateral (select from notification n where n.tx_hash = t.tx_hash limit 1) as n
    limit 1`);
  return met.length > 0;
}

/** Lanes before rows: a worker that settles one of these has its lane. */
async function lockLanesOf(tx: Tx, matches: readonly Match[]): Promise<void> {
  const hashes = new Set(matches.map(({ transfer }) => transfer.txHash));
  await tx.query(sql`
    select from lane where id in (
      select n.lane_id from unnest(${bytesOf([...hashes])}::bytea[]) as t (tx_hash)
      join notification n on n.tx_hash = t.tx_hash)
    order by id for update`);
}

/** A transfer and the number of its block. */
export type MatchedTransfer = { transfer: Transfer; block: number };
/** The watched side of it; `occurrence`: which of several equal transfers of its transaction it is. */
export type Match = MatchedTransfer & { side: 'sender' | 'receiver'; occurrence: number };

/** The watched sides of these blocks' transfers, in the order of the transfers. */
export function listMatches(tx: Tx, blocks: readonly MatchedBlock[]): Promise<Match[]> {
  return findMatches(tx, onceEach(blocks));
}

/** One statement must not meet a row twice, and some chains have had one transaction hash in two blocks. */
function onceEach(blocks: readonly MatchedBlock[]): MatchedTransfer[] {
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

/** Each transfer once for each watched side: most have none, so they need not be sent whole. */
async function findMatches(tx: Tx, transfers: readonly MatchedTransfer[]): Promise<Match[]> {
  const addresses = new Set(transfers.flatMap(({ transfer }) => sidesOf(transfer)));
  if (addresses.size === 0) return [];
  const rows = await tx.query<{ address: Uint8Array }>(sql`
    select p.address from unnest(${bytesOf([...addresses])}::bytea[]) as p (address)
    where exists (select from watched_address w where w.address = p.address)
    order by p.address limit ${addresses.size}`);
  const known = new Set(rows.map(({ address }) => fromBytes(address)));
  if (known.size === 0) return [];
  const occurrenceOf = createOccurrences();
  return transfers.flatMap(({ transfer, block }) =>
    sidesOf(transfer)
      .filter((address) => known.has(address))
      .map((address) => {
        const side = address === transfer.sender ? 'sender' : 'receiver';
        return { transfer, block, side, occurrence: occurrenceOf(side, transfer) };
      }),
  );
}

/**
 * Notifications with their confirmations become due. Lanes are locked before rows, as a worker that settles has them, and with
 * `laneIds`, which the caller locks next: all in one order. The lower bound keeps the scan off what lies dead in the
 * index: without it 2,500 entries were read per block.
 */
export async function releaseHeld(
  tx: Tx,
  {
    releasedBefore = -1,
    releasedNumber,
    now,
    laneIds,
  }: Moment & { releasedBefore?: number | undefined; laneIds: readonly number[] },
): Promise<StoredCount[]> {
  const rows = await tx.query<StoredCountRow>(sql`
    with locked as materialized (
      select id from lane where id in (
        select unnest(${listOf(laneIds)}::bigint[])
        union
        select lane_id from notification
        where state = 'held' and release_number > ${releasedBefore} and release_number <= ${releasedNumber})
      order by id for update
    ), released as (
      update notification n set release_number = null, next_attempt_at = greatest(${now}, next_retry_at),
        state = case when sequence is null then 'waiting' else 'held' end
      where state = 'held' and release_number > ${releasedBefore} and release_number <= ${releasedNumber}
        and (select count(*) from locked) >= 0
      returning ${changedRow}
    )
    select ${storedCountColumns} from released group by shard_id, lane_id, state, ordered_id order by lane_id, state, ordered_id`);
  return rows.map(toStoredCount);
}
