/**
 * The matching join, the heart of the product. It turns transfers of new blocks into notifications for the records (watched
 * addresses) of their senders and receivers, and makes held notifications due.
 */
import { type Address, fromBytes, type Hash } from '../../core/hex.ts';
import { type BlockHeader, createOccurrences, sidesOf, type Transfer } from '../../domain/block.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { inReach, joinJson, readJson, rowsFrom, tableOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { lockLanesIn } from '../delivery/lane-locks.ts';
import { unsentEpoch } from '../delivery/lanes.ts';
import { isOfTransactions, kindCode, lockRows, storedColumns } from '../delivery/notification-rows.ts';
import { isOneOfRecords, type ShardKey } from '../delivery/shards.ts';
import { hasEarlierNotifications } from './earlier.ts';
import { beforeAmong, earlierAmong, keptAmong } from './earlier-rows.ts';
import { insertInShards, reincluded } from './insert-notifications.ts';
import { readRecordsOfOrphaned } from './kept-rows.ts';
import {
  changedRow,
  queuedColumns,
  type StoredCount,
  type StoredCountRow,
  storedCountColumns,
  toStoredCount,
  writtenColumns,
} from './stored-count.ts';

/** Positions that a sequence reserves for each block: more than its transfers. */
const BLOCK_POSITIONS = 2 ** 20;

export type MatchedBlock = {
  header: Pick<BlockHeader, 'number'>;
  transfers: readonly Transfer[];
  /** The transactions that succeeded, in order, if the block came without traces, so that its internal transfers are unknown. */
  untraced?: readonly Hash[] | undefined;
};
/**
 * A notification is held until `confirmations` blocks are stored above its block, or as many as its record asks for, if that is more.
 * `confirmations`: the service's setting. `tipNumber`: the newest stored block.
 */
export type Moment = { tipNumber: number; confirmations: number; now: Date };

/** All records of one watcher with the same address. */
export type RecordGroup = { watcherId: number; address: Address };

/**
 * The matching join: inserts one row for each record whose address is the sender or receiver and whose flags and settings
 * select the transfer. An orphaned transfer that is mined again updates its existing row.
 */
export async function insertNotifications(
  tx: Tx,
  {
    matches,
    tipNumber,
    confirmations,
    now,
    records,
    without = [],
    storing,
    kept = [],
    hasEarlier: hasKnownEarlier,
  }: Moment & {
    /** As `listMatches` returns them. */
    matches: readonly Match[];
    /** Insert only for these records. They matched when the block was committed, even if they have changed since. */
    records?: readonly ShardKey<string>[];
    /** Groups whose notifications are deferred. */
    without?: readonly RecordGroup[];
    /** CTEs that store what is deferred, in the same statement (`deferMatches`). */
    storing?: Sql | undefined;
    /** Further transfers of the same blocks, of which these reorgs have orphaned notifications (`listKept`). */
    kept?: readonly Match[];
    /** Whether transactions of the matches already have notifications. Queried if undefined. */
    hasEarlier?: boolean;
  },
  reorgIds: readonly number[] = [],
): Promise<StoredCount[]> {
  const all = [...matches, ...kept];
  if (all.length === 0) {
    if (storing !== undefined) await tx.query(sql`with ${storing} select`);
    return [];
  }
  // The commit lock keeps other commits out, so one check is enough. A check for each row would cost more.
  const hasEarlier = hasKnownEarlier ?? (await hasEarlierNotifications(tx, hashesOf(all)));
  // A part of the records has its own earlier notifications. To lock all of them for each part would take the square of their number.
  const isBefore =
    records === undefined
      ? isOfMatches(tx, all)
      : sql`${isOfMatches(tx, all)} and ${isOneOfRecords(sql`n.shard_id`, sql`n.watched_address_id`, records)}`;
  if (hasEarlier) await lockEarlier(tx, isBefore);
  const { watches, statuses } = await sourcesOf(tx, all, { records, hasEarlier, reorgIds });
  const selected = sql`
    t as (${transfersOf(all)}
    ), ${hasEarlier ? beforeAmong(statuses, isBefore) : sql``}
    ${wantedAmong(watches, { tipNumber, confirmations, records, without, hasEarlier, reorgIds })}
    ${hasEarlier ? earlierAmong(reorgIds, watches) : sql``}`;
  const made = sql`
    made as materialized (
      select nextval('notification_id_seq') as id, ${now}::timestamptz as created_at, m.*
      from (select *${hasEarlier ? sql` from fresh` : sql`, null::bigint as replaces from wanted`} order by row) as m
    )`;
  if (tx.isDistributed === true) return insertInShards(tx, { selected, made, hasEarlier, now });
  const rows = await tx.query<StoredCountRow>(sql`
    with ${storing === undefined ? sql`` : sql`${storing}, `}${selected}, ${hasEarlier ? reincluded(tx, now) : sql``} ${made}, written as (
      insert into notification (${writtenColumns}, is_held) select ${writtenColumns}, state = 'held' from made order by id
    ), queued as (
      insert into queue as q (${queuedColumns}, due_at) select ${queuedColumns}, created_at from made order by id
      returning ${changedRow}
    )
    select ${storedCountColumns} from (
      select *, true as is_new from queued${hasEarlier ? sql` union all select *, false from changed` : sql``}) as stored
    group by shard_id, lane_id, state, ordered_id order by lane_id, state, ordered_id`);
  return rows.map(toStoredCount);
}

/**
 * CTEs that join the transfers `t` with the records: `wanted` has a row for each notification that the blocks ask for, and for those that
 * reorgs have orphaned and that stay (`is_kept`).
 */
function wantedAmong(
  watches: Sql,
  {
    tipNumber,
    confirmations,
    records,
    without,
    hasEarlier,
    reorgIds,
  }: Omit<Moment, 'now'> & {
    records: readonly ShardKey<string>[] | undefined;
    without: readonly RecordGroup[];
    hasEarlier: boolean;
    reorgIds: readonly number[];
  },
): Sql {
  const rowFor = (isKept: Sql) => sql`
        w.shard_id, w.lane_id, w.id as watched_address_id, w.created_at as watched_at, t.kind, t.tx_hash, t.ordinal, t.sender, t.receiver,
        t.amount, t.token, t.occurrence, t.position, t.block as block_number,
        case when release.number <= ${tipNumber} and not w.strict_order then 'waiting' else 'held' end as state,
        case when release.number > ${tipNumber} then release.number end as release_number,
        case when w.strict_order then t.block * ${BLOCK_POSITIONS}::bigint + t.position end as sequence,
        ${unsentEpoch} as unsent_epoch, ${isKept} as is_kept`;
  const itsLane = sql`join lane l on l.id = w.lane_id
      cross join lateral (select t.block + greatest(w.confirmations, ${confirmations}::integer) as number) as release`;
  const selected = sql`
      select ${rowFor(sql`false`)}
      from t
      join ${watches} w on ${records === undefined ? sql`w.address = ${matchedAddress}` : isOneOfRecords(sql`w.shard_id`, sql`w.id`, records)}
      ${itsLane}
      where ${isWanted}${without.length === 0 ? sql`` : isNotOf(without)}`;
  // A join of the two, to leave out kept rows that are selected, took time by the square of their number.
  const both = sql`
      select distinct on (shard_id, watched_address_id, tx_hash, kind, ordinal) * from (
        ${selected} union all ${keptAmong(reorgIds, { watches, itsLane, row: rowFor(sql`true`) })}
      ) as found
      order by shard_id, watched_address_id, tx_hash, kind, ordinal, is_kept`;
  return sql`
    wanted as materialized (
      select *, row_number() over (order by block_number, position, watched_at, watched_address_id) as row
      from (${hasEarlier && reorgIds.length > 0 ? both : selected}) as each_once
    )`;
}

/** Those of the further transfers that are not among `known`. */
export function notAmong<T extends MatchedTransfer>(
  known: readonly MatchedTransfer[],
  further: readonly T[],
): readonly T[] {
  if (further.length === 0) return further;
  const places = new Set(known.map(({ transfer }) => placeOf(transfer)));
  return further.filter(({ transfer }) => !places.has(placeOf(transfer)));
}

/** Identifies a transfer among those of a branch. */
export const placeOf = ({ txHash, kind, ordinal }: Transfer): string => `${txHash} ${kind} ${ordinal}`;

/** The tables of records and earlier notifications, or on Citus their rows. */
async function sourcesOf(
  tx: Tx,
  matches: readonly Match[],
  {
    records,
    hasEarlier,
    reorgIds,
  }: { records: readonly ShardKey<string>[] | undefined; hasEarlier: boolean; reorgIds: readonly number[] },
): Promise<{ watches: Sql; statuses: Sql }> {
  if (tx.isDistributed !== true) return { watches: sql`watched_address`, statuses: sql`notification_status` };
  const isMatched =
    records === undefined
      ? sql`w.address = any(${bytesOf([...new Set(matches.map(addressOf))])}::bytea[])`
      : isOneOfRecords(sql`w.shard_id`, sql`w.id`, records);
  const json = await readJson(
    tx,
    sql`select w.* from watched_address w where ${isMatched}${inReach(tx, sql`w.shard_id`)}`,
  );
  const hashes = matches.map(({ transfer }) => transfer.txHash);
  const others = hasEarlier && reorgIds.length > 0 ? await readRecordsOfOrphaned(tx, hashes, reorgIds) : '[]';
  const watches =
    others === '[]'
      ? rowsFrom('watched_address', json)
      : sql`(
        select distinct on (w.shard_id, w.id) * from ${rowsFrom('watched_address', joinJson([json, others]))} as w
        order by w.shard_id, w.id)`;
  const statuses = hasEarlier
    ? await tableOf(tx, 'notification_status', {
        ...{ alias: 'n', columns: storedColumns },
        where: isOfMatches(tx, matches),
      })
    : sql`notification_status`;
  return { watches, statuses };
}

/** The transfers as a relation, in their order. */
const transfersOf = (matches: readonly Match[]): Sql => sql`
      select * from unnest(
        ${listOf(matches.map(({ side }) => side))}::text[],
        ${listOf(matches.map(({ transfer }) => kindCode[transfer.kind]))}::"char"[],
        ${bytesOf(matches.map(({ transfer }) => transfer.txHash))}::bytea[],
        ${listOf(matches.map(({ transfer }) => transfer.ordinal))}::integer[],
        ${bytesOf(matches.map(({ transfer }) => transfer.sender))}::bytea[],
        ${bytesOf(matches.map(({ transfer }) => transfer.receiver))}::bytea[],
        ${listOf(matches.map(({ transfer }) => transfer.amount))}::numeric[],
        ${bytesOf(matches.map(({ transfer }) => transfer.token))}::bytea[],
        ${listOf(matches.map(({ occurrence }) => occurrence))}::integer[],
        ${listOf(matches.map(({ block }) => block))}::bigint[],
        ${listOf(matches.map(({ position }) => position))}::bigint[]
      ) as t (side, kind, tx_hash, ordinal, sender, receiver, amount, token, occurrence, block, position)`;

/** The watched address of the match. */
export const addressOf = ({ side, transfer }: Match): Address =>
  side === 'receiver' && transfer.receiver !== undefined ? transfer.receiver : transfer.sender;

const matchedAddress = sql`case t.side when 'sender' then t.sender else t.receiver end`;

const isNotOf = (groups: readonly RecordGroup[]) => sql` and not exists (
  select from unnest(
    ${listOf(groups.map(({ watcherId }) => watcherId))}::bigint[],
    ${bytesOf(groups.map(({ address }) => address))}::bytea[]
  ) as deferred (watcher_id, address)
  where deferred.watcher_id = w.watcher_id and deferred.address = w.address)`;

/** Whether the record's flags and settings select the transfer. audit/compare.ts implements the same rule independently. */
const isWanted = sql`
  case when t.kind = 't'
    then w.watch_token and (w.tokens is null or t.amount >= (w.tokens ->> encode(t.token, 'hex'))::numeric)
    else w.watch_coin and t.amount >= coalesce(w.min_amount, 0) end
  and case w.direction when 'in' then t.receiver = ${matchedAddress} when 'out' then t.sender = ${matchedAddress} else true end`;

/** Whether notification `n` is of a transaction of these matches. */
const isOfMatches = (tx: Tx, matches: readonly Match[]): Sql =>
  sql`${isOfTransactions(hashesOf(matches))}${inReach(tx, sql`n.shard_id`)}`;

/** The transactions of these matches. */
export const hashesOf = (matches: readonly Match[]): Hash[] => [
  ...new Set(matches.map(({ transfer }) => transfer.txHash)),
];

/** Locks these notifications, and before them their lanes, as a worker that settles does. */
async function lockEarlier(tx: Tx, isEarlier: Sql): Promise<void> {
  await lockLanesIn(tx, sql`select n.lane_id from notification_status n where ${isEarlier}`);
  await lockRows(tx, isEarlier);
}

/** A transfer and the number of its block. */
export type MatchedTransfer = { transfer: Transfer; block: number };
/** With its place among the transfers of its block, from 1, which orders strict sequences. */
type PlacedTransfer = MatchedTransfer & { position: number };
/** A transfer with the side that is watched. `occurrence` counts equal transfers of one transaction. */
export type Match = PlacedTransfer & {
  side: 'sender' | 'receiver';
  occurrence: number;
};

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
export function withoutRepeats(blocks: readonly MatchedBlock[]): PlacedTransfer[] {
  const blockOf = new Map<Hash, number>();
  const placed: PlacedTransfer[] = [];
  for (const { header, transfers } of blocks) {
    const block = header.number;
    for (const [index, transfer] of transfers.entries()) {
      const first = blockOf.get(transfer.txHash);
      if (first === undefined) blockOf.set(transfer.txHash, block);
      if (first === undefined || first === block) placed.push({ transfer, block, position: index + 1 });
    }
  }
  return placed;
}

/**
 * Each transfer once for each watched side. Most transfers have none, so only their addresses are sent to the database, and
 * with an address filter only those that may be watched.
 */
async function findMatches(tx: Tx, transfers: readonly PlacedTransfer[], narrow?: Narrow): Promise<Match[]> {
  const all = [...new Set(transfers.flatMap(({ transfer }) => sidesOf(transfer)))];
  const addresses = narrow === undefined ? all : await narrow(tx, all);
  if (addresses.length === 0) return [];
  const rows = await tx.query<{ address: Uint8Array }>(
    tx.isDistributed === true
      ? sql`select distinct address from watched_address
        where address = any(${bytesOf(addresses)}::bytea[])${inReach(tx, sql`shard_id`)}`
      : sql`
    select p.address from unnest(${bytesOf(addresses)}::bytea[]) as p (address)
    where exists (select from watched_address w where w.address = p.address)
    order by p.address limit ${addresses.length}`,
  );
  const known = new Set(rows.map(({ address }) => fromBytes(address)));
  return known.size === 0 ? [] : matchesOf(transfers, (address) => known.has(address));
}

/** Each transfer once for each side that is watched. */
export function matchesOf(
  transfers: readonly PlacedTransfer[],
  isWatched: (address: Address) => boolean,
): Match[] {
  const occurrenceOf = createOccurrences();
  return transfers.flatMap(({ transfer, block, position }) =>
    sidesOf(transfer)
      .filter(isWatched)
      .map((address) => {
        const side = address === transfer.sender ? 'sender' : 'receiver';
        return { transfer, block, position, side, occurrence: occurrenceOf(side, transfer) };
      }),
  );
}
