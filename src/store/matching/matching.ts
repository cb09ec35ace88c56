/**
 * The matching join, the heart of the product. It turns transfers of new blocks into notifications for the records (watched
 * addresses) of their senders and receivers, and makes held notifications due.
 */
import { type Address, fromBytes, type Hash } from '../../core/hex.ts';
import { type BlockHeader, createOccurrences, sidesOf, type Transfer } from '../../domain/block.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { unsentEpoch } from '../delivery/lanes.ts';
import { isRemovalNotice, isTransferMessage, transferRevision } from '../delivery/message-kind.ts';
import type { OrderedRecord } from '../delivery/sequence.ts';

/** Positions that a sequence reserves for each block: more than the matched transfers of a commit. */
const BLOCK_POSITIONS = 2 ** 20;

type MatchedBlock = { header: Pick<BlockHeader, 'number'>; transfers: readonly Transfer[] };
/** Notifications of blocks up to `releasedNumber` may be sent. */
type Moment = { releasedNumber: number; now: Date };

/** All records of one watcher with the same address. */
export type RecordGroup = { watcherId: number; address: Address };

/**
 * A group of notifications that a commit created, included again or released. They share lane and state, and in strict order
 * the record. `count` counts only the created ones.
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

/** The columns of a StoredCount, grouped from rows with the columns `changedRow`. */
const storedCountColumns = sql`shard_id, lane_id, state, ordered_id, count(*) filter (where is_new) as count`;
// PostgreSQL sets xmax on a row that `on conflict` updated, and leaves it 0 on an inserted one.
const changedRow = sql`n.shard_id, n.lane_id, n.state, n.xmax = 0 as is_new,
  case when n.sequence is not null then n.watched_address_id end as ordered_id`;

/**
 * The matching join: inserts one row for each record whose address is the sender or receiver and whose flags and settings
 * select the transfer. An orphaned transfer that is mined again updates its existing row.
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
    hasEarlier: hasKnownEarlier,
  }: Moment & {
    blocks: readonly MatchedBlock[];
    /** The matches of these blocks, as `listMatches` returns them. */
    matches: readonly Match[];
    /** The service's setting. By default it is derived from a commit at the tip. */
    confirmations?: number;
    /** Insert only for these records. They matched when the block was committed, even if they have changed since. */
    records?: { shardId: number; ids: readonly string[] };
    /** Groups whose notifications are deferred. */
    without?: readonly RecordGroup[];
    /** Whether transactions of the matches already have notifications. Queried if undefined. */
    hasEarlier?: boolean;
  },
  reorgId: number | undefined,
): Promise<StoredCount[]> {
  if (matches.length === 0) return [];
  // The commit lock keeps other commits out, so one check is enough. A check for each row would cost more.
  const hasEarlier = hasKnownEarlier ?? (await hasEarlierNotifications(tx, matches));
  if (hasEarlier) await lockLanesOf(tx, matches);
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
        ${hasEarlier ? replacedId : sql`null::bigint`}
      from t
      join watched_address w on ${records === undefined ? sql`w.address = ${matchedAddress}` : isOf(records)}
      join lane l on l.id = w.lane_id
      cross join lateral (select t.block + greatest(w.confirmations - ${confirmations}::integer, 0) as number) as release
      where ${isWanted}${without.length === 0 ? sql`` : isNotOf(without)}
      order by t.position, w.created_at, w.id
      ${hasEarlier ? onReinclusion(reorgId) : sql``}
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

/** Whether the record's flags and settings select the transfer. audit/compare.ts implements the same rule independently. */
const isWanted = sql`
  case when t.kind = 'token'
    then w.watch_token and (w.tokens is null or t.amount >= (w.tokens ->> encode(t.token, 'hex'))::numeric)
    else w.watch_coin and t.amount >= coalesce(w.min_amount, 0) end
  and case w.direction when 'in' then t.receiver = ${matchedAddress} when 'out' then t.sender = ${matchedAddress} else true end`;

/**
 * The notification that the new row replaces: of the same record and transaction, possibly seen by the receiver, with content
 * that the transaction no longer has. If there are several, the one at the nearest position.
 */
const replacedId = sql`(
  select o.id from notification o
  where o.tx_hash = t.tx_hash and o.shard_id = w.shard_id and o.watched_address_id = w.id and o.kind = t.kind
    and o.reorg_id is not null and o.may_be_seen
    and not exists (
      select from t same where same.tx_hash = o.tx_hash and same.kind = o.kind and same.sender = o.sender
        and same.receiver is not distinct from o.receiver and same.token is not distinct from o.token
        and same.amount = o.amount and same.occurrence = o.occurrence)
  order by abs(o.ordinal - t.ordinal), o.id desc limit 1)`;

/**
 * Updates a row whose transfer is canonical again. An acknowledged one stays processed. One that this commit orphaned only
 * moves to its new block, and waits for its confirmations again unless a receiver may have seen it. After a removal notice
 * the row gets the next even revision. A withdrawn one starts its delivery again.
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

/** Whether one of the transactions has notifications already, from an orphaned block or a repeated transaction. */
export async function hasEarlierNotifications(tx: Tx, matches: readonly Match[]): Promise<boolean> {
  const hashes = new Set(matches.map(({ transfer }) => transfer.txHash));
  const found = await tx.query(sql`
    select from unnest(${bytesOf([...hashes])}::bytea[]) as t (tx_hash)
    cross join lateral (select from notification n where n.tx_hash = t.tx_hash limit 1) as n
    limit 1`);
  return found.length > 0;
}

/** Locks lanes before rows, as a worker that settles does. */
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
/** A transfer with the side that is watched. `occurrence` counts equal transfers of one transaction. */
export type Match = MatchedTransfer & { side: 'sender' | 'receiver'; occurrence: number };

/** The addresses that may be watched. It leaves out only ones that are not. */
export type Narrow = (tx: Tx, addresses: readonly Address[]) => Promise<readonly Address[]>;

/** The watched sides of these blocks' transfers, in the order of the transfers. */
export function listMatches(tx: Tx, blocks: readonly MatchedBlock[], narrow?: Narrow): Promise<Match[]> {
  return findMatches(tx, withoutRepeats(blocks), narrow);
}

/**
 * Leaves out a transaction hash that an earlier block has, because one statement can't update a row twice. Some chains have had
 * the same transaction hash in two blocks.
 */
function withoutRepeats(blocks: readonly MatchedBlock[]): MatchedTransfer[] {
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

/**
 * Each transfer once for each watched side. Most transfers have none, so only their addresses are sent to the database, and
 * with an address filter only those that may be watched.
 */
async function findMatches(tx: Tx, transfers: readonly MatchedTransfer[], narrow?: Narrow): Promise<Match[]> {
  const all = [...new Set(transfers.flatMap(({ transfer }) => sidesOf(transfer)))];
  const addresses = narrow === undefined ? all : await narrow(tx, all);
  if (addresses.length === 0) return [];
  const rows = await tx.query<{ address: Uint8Array }>(sql`
    select p.address from unnest(${bytesOf(addresses)}::bytea[]) as p (address)
    where exists (select from watched_address w where w.address = p.address)
    order by p.address limit ${addresses.length}`);
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
 * Makes notifications due that now have their confirmations. Locks lanes before rows, as a worker that settles does, and
 * together with `laneIds`, which the caller locks next, so that all are locked in one order. `releasedBefore` keeps the scan
 * off dead index entries: without it a block read 2,500 of them.
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
