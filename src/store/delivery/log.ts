/**
 * The delivery log: a watcher's notifications in all states. Every query reads a bounded number of rows by an index.
 */
import { type Address, fromBytes, type Hash } from '../../core/hex.ts';
import type { NotificationState } from '../../domain/delivery-status.ts';
import { messageKind } from '../../domain/message-kind.ts';
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import type { NotificationType } from './due.ts';
import {
  all,
  examinedColumns,
  innerConditions,
  type LogFilter,
  lastAttemptOf,
  outerConditions,
} from './log-filter.ts';
import { findInShards, type LogSources, readSources } from './log-in-shards.ts';
import { findPending, isPendingOnly } from './log-pending.ts';
import { inRange } from './log-range.ts';
import {
  type LoggedBlock,
  type LoggedBlockRow,
  loggedBlockColumns,
  loggedBlockJoin,
  toLoggedBlock,
} from './logged-block.ts';
import {
  isInShards,
  isOneOfNotifications,
  listShards,
  partsOfShards,
  recordKeys,
  type ShardKey,
} from './shards.ts';
import { type TransferFields, type TransferRow, toTransferFields } from './transfer-columns.ts';

export type LoggedNotification = TransferFields & {
  id: number;
  watcherId: number;
  watchedAddressId: string;
  /** Undefined if its watched address is deleted. */
  watchedAddress: Address | undefined;
  hash: Hash;
  type: NotificationType;
  blockNumber: number;
  state: NotificationState;
  /** Even: the transfer. Odd: its removal notice. */
  revision: number;
  /** The orphaned block that held the transfer, and when it was orphaned; undefined while the transfer is canonical. */
  orphaned: { blockHash: Hash | undefined; at: Date } | undefined;
  /** The notification that this one replaces, and the one that replaces it. */
  replaces: number | undefined;
  replacedBy: number | undefined;
  retryCount: number;
  redeliveryCount: number;
  nextRetryAt: Date | undefined;
  createdAt: Date;
  processedAt: Date | undefined;
  /** Whether a reorg orphaned the transfer, and no removal notice is or was sent for it. */
  isOrphanedTransfer: boolean;
  /** The delivery queue that sends it; undefined for a finished one whose watched address is deleted. */
  laneId: number | undefined;
  /** Scheme, host and port of the webhook URL. */
  origin: string | undefined;
  /** Undefined if its watched address is deleted. */
  webhookUrl: string | undefined;
  /** Blocks stored after its block; undefined while the transfer is not on the canonical chain. */
  confirmations: number | undefined;
  /** Confirmations that its watched address asks for; undefined for the service's setting. */
  recordConfirmations: number | undefined;
  /** Held until this block is released. */
  releaseNumber: number | undefined;
  lastAttempt: LastAttempt | undefined;
};

type LastAttempt = {
  id: number;
  startedAt: Date;
  durationMs: number;
  outcome: string;
  status: number | undefined;
};

/** A page of notifications in the order of their ids, which is the order of their creation, after the id `after`. */
export type LogPage = { order: 'newest first' | 'oldest first'; after: number | undefined; limit: number };

/**
 * Rows that one page examines, in some ten milliseconds. A filter for something rare gives short or empty pages with a cursor
 * instead of one unbounded statement.
 */
export const EXAMINED_MAX = 10_000;
/** The last attempt of each examined row takes a look at an index. */
const EXAMINED_BY_ATTEMPT_MAX = 2_000;

export const examinedMaxOf = ({ lastAnswer }: LogFilter): number =>
  lastAnswer === undefined ? EXAMINED_MAX : EXAMINED_BY_ATTEMPT_MAX;

/** A page of the watcher's log. `next` is the cursor of the next page, undefined at the end. */
export async function listLog(
  db: Db,
  watcherId: number,
  filter: LogFilter,
  page: LogPage,
): Promise<{ notifications: LoggedNotification[]; next: number | undefined }> {
  const { keys, next } = await findMatches(db, watcherId, filter, page);
  return { notifications: await readLogged(db, keys, page.order), next };
}

/** The notifications with these keys. */
export async function readLogged(
  db: Db,
  keys: readonly ShardKey<number>[],
  order: LogPage['order'],
): Promise<LoggedNotification[]> {
  const sources = await sourcesOf(db, keys);
  const rows = await db.query<LogRow>(sql`
    select ${columnsFrom(sources)} from ${sourceFrom(sources)}
    where ${isOneOfNotifications(sql`n.shard_id`, sql`n.id`, keys)}
    order by n.id ${order === 'newest first' ? sql`desc` : sql`asc`}
    limit ${keys.length}`);
  return rows.map(toLogged);
}

/** `block` is the stored block that holds the transfer; undefined if it isn't stored or is orphaned. */
export async function findLogged(
  db: Db,
  watcherId: number,
  id: number,
): Promise<{ notification: LoggedNotification; block: LoggedBlock | undefined } | undefined> {
  const key = await findKey(db, watcherId, id);
  if (key === undefined) return undefined;
  const sources = await sourcesOf(db, [key]);
  const [row] = await db.query<LogRow & LoggedBlockRow>(sql`
    select ${columnsFrom(sources)}, ${loggedBlockColumns} from ${sourceFrom(sources)} ${loggedBlockJoin}
    where n.shard_id = ${key.shardId} and n.id = ${id}`);
  return row && { notification: toLogged(row), block: toLoggedBlock(row) };
}

/** Matches are counted up to this. */
export const MATCHES_MAX = 10_000;
/** Pages that one count examines, some tenths of a second. */
const COUNTED_PAGES_MAX = 10;

/** How many notifications match, up to MATCHES_MAX. */
export const countMatches = (db: Db, watcherId: number, filter: LogFilter): Promise<MatchCount> =>
  countPages((page) => findMatches(db, watcherId, filter, page));

/** `isComplete` is false if there are or may be more. */
export type MatchCount = { count: number; isComplete: boolean };
/** The notifications of a page, and the cursor of the next one. */
type Matches = { keys: ShardKey<number>[]; next: number | undefined };

/** Counts the matches of pages, newest first. */
export async function countPages(readPage: (page: LogPage) => Promise<Matches>): Promise<MatchCount> {
  let count = 0;
  let after: number | undefined;
  for (let pages = 0; pages < COUNTED_PAGES_MAX; pages += 1) {
    const page = { order: 'newest first', after, limit: MATCHES_MAX + 1 - count } as const;
    const { keys, next } = await readPage(page);
    count += keys.length;
    if (count > MATCHES_MAX) return { count: MATCHES_MAX, isComplete: false };
    if (next === undefined) return { count, isComplete: true };
    after = next;
  }
  return { count, isComplete: false };
}

/** The shard of one of the watcher's notifications. With one shard, the notification may not exist. */
export async function findKey(db: Db, watcherId: number, id: number): Promise<ShardKey<number> | undefined> {
  const shards = await listShards(db, watcherId);
  const [only] = shards;
  if (shards.length === 1 && only !== undefined) return { shardId: only, id };
  const [row] = await db.query<{ shard_id: number }>(sql`
    select shard_id from notification where ${isInShards(sql`shard_id`, shards)} and id = ${id}`);
  return row && { shardId: row.shard_id, id };
}

/** The notifications of a page. */
export async function findMatches(
  db: Db,
  watcherId: number,
  filter: LogFilter,
  page: LogPage,
): Promise<Matches> {
  const shards = await listShards(db, watcherId);
  const examinedMax = examinedMaxOf(filter);
  if (db.isDistributed === true)
    return findInShards(db, filter, { ...page, isOwn: isInShards(sql`n.shard_id`, shards), examinedMax });
  if (isPendingOnly(filter)) {
    const own = sql`unnest(${listOf(shards)}::bigint[]) as s (id)`;
    return findPending(db, own, filter, { ...page, examinedMax });
  }
  const { recordIds } = filter;
  const records = recordIds === undefined ? undefined : recordKeys(watcherId, recordIds);
  return findExamined(db, { shards, records }, filter, page);
}

/** All notifications of the shards, or those of records that are in them. */
type Examined = { shards: readonly number[]; records: readonly ShardKey<string>[] | undefined };

/**
 * The notifications of a page. Each shard examines an equal part of the rows. Beyond the row at which a shard with more rows
 * stopped, the page has nothing, because that shard's next row may come first.
 */
export async function findExamined(
  db: Db,
  { shards, records }: Examined,
  filter: LogFilter,
  { order, after, limit }: LogPage,
): Promise<Matches> {
  const isDown = order === 'newest first';
  const direction = isDown ? sql`desc` : sql`asc`;
  const examinedMax = examinedMaxOf(filter);
  const partMax = records === undefined ? Math.ceil(examinedMax / shards.length) : examinedMax;
  const isInside =
    shards.length === 1 ? sql`true` : isDown ? sql`id >= coalesce(last, 0)` : sql`(id <= last) is not false`;
  return inRange(db, filter, { order, after, limit, stepIds: examinedMax }, async (from) => {
    const rows = await db.query<{ shard_id: number; id: number | null; last: number | null }>(sql`
      with examined as materialized (${selectExamined({ shards, records }, filter, { isDown, after: from, partMax })}),
      stop as materialized (
        select ${isDown ? sql`max(last)` : sql`min(last)`} as last from (
          select ${isDown ? sql`min(id)` : sql`max(id)`} as last from examined
          ${shards.length === 1 || records !== undefined ? sql`` : sql`group by shard_id`}
          having count(*) >= ${partMax}) as stopped
      )
      select m.shard_id, m.id, stop.last
      from stop left join lateral (
        select shard_id, id from examined n where ${all(outerConditions(filter))} and ${isInside}
        order by id ${direction} limit ${limit}
      ) m on true
      order by m.id ${direction}`);
    const keys = rows.flatMap(({ shard_id: shardId, id }) => (id === null ? [] : [{ shardId, id }]));
    return { keys, last: rows[0]?.last ?? undefined };
  });
}

/** The rows that a page examines. These conditions use an index; `outerConditions` filters the examined rows. */
function selectExamined(
  { shards, records }: Examined,
  filter: LogFilter,
  { isDown, after, partMax }: { isDown: boolean; after: number | undefined; partMax: number },
): Sql {
  const direction = isDown ? sql`desc` : sql`asc`;
  const conditions = innerConditions(filter);
  if (after !== undefined) conditions.push(isDown ? sql`n.id < ${after}` : sql`n.id > ${after}`);
  const page = sql`order by id ${direction} limit ${partMax}`;
  const select = (shardId: Sql) => sql`
    select ${examinedColumns(filter)} from notification_status n
    where ${all([sql`n.shard_id = ${shardId}`, ...conditions])}`;
  if (records === undefined) return partsOfShards(shards, select, page);
  const ofRecord = shards.length === 1 ? select(sql`${shards[0]}`) : select(sql`r.shard_id`);
  return sql`
    select n.* from unnest(
      ${listOf(records.map(({ shardId }) => shardId))}::bigint[], ${listOf(records.map(({ id }) => id))}::uuid[]) as r (shard_id, id)
    cross join lateral (${ofRecord} and n.watched_address_id = r.id ${page}) n ${page}`;
}

type LogRow = TransferRow & {
  id: number;
  watcher_id: number;
  watched_address_id: string;
  tx_hash: Uint8Array;
  kind: string;
  block_number: number;
  state: NotificationState;
  revision: number;
  orphaned_at: Date | null;
  orphaned_hash: Uint8Array | null;
  replaces: number | null;
  replaced_by: number | null;
  retry_count: number;
  redelivery_count: number;
  next_retry_at: Date | null;
  created_at: Date;
  processed_at: Date | null;
  is_orphaned: boolean;
  lane_id: number | null;
  origin: string | null;
  webhook_url: string | null;
  watched_address: Uint8Array | null;
  tip: number | null;
  record_confirmations: number | null;
  release_number: number | null;
  attempt_id: number | null;
  attempt_started_at: Date;
  attempt_duration_ms: number;
  attempt_outcome: string;
  attempt_status: number | null;
};

/** The tables, or on Citus the rows of these notifications. */
const sourcesOf = async (db: Db, keys: readonly ShardKey<number>[]): Promise<LogSources> =>
  db.isDistributed === true
    ? readSources(db, keys)
    : {
        ...{ statuses: sql`notification_status`, watches: sql`watched_address` },
        attempts: sql`lateral (${lastAttemptOf(sql`a.*`)})`,
        replacements: sql`notification_status`,
      };

const sourceFrom = ({ statuses, watches, attempts }: LogSources): Sql => sql`${statuses} n
    left join ${watches} w on w.shard_id = n.shard_id and w.id = n.watched_address_id
    left join lane l on l.id = n.lane_id
    left join ${attempts} a on a.shard_id = n.shard_id and a.notification_id = n.id`;

/** Columns of a notification `n`. Only an orphaned one has a reorg or a replacement, so the others need no look-up. */
const columnsFrom = ({
  replacements,
}: LogSources): Sql => sql`n.id, n.watcher_id, n.watched_address_id, n.tx_hash, n.kind, n.sender, n.receiver, n.amount, n.token, n.block_number,
      n.state, n.revision, n.replaces,
      (select happened_at from reorg r where r.id = n.reorg_id) as orphaned_at,
      (select hash from orphaned_block o where o.reorg_id = n.reorg_id and o.number = n.block_number) as orphaned_hash,
      case when n.reorg_id is not null then (
        select max(r.id) from ${replacements} r
        where substr(r.tx_hash, 29) = substr(n.tx_hash, 29) and r.shard_id = n.shard_id and r.replaces = n.id and r.reorg_id is null
      ) end as replaced_by,
      n.retry_count, n.redelivery_count, n.next_retry_at, n.created_at, n.processed_at,
      n.reorg_id is not null as is_orphaned, n.lane_id, l.origin, w.webhook_url, w.address as watched_address,
      w.confirmations as record_confirmations,
      n.release_number, (select number from block order by number desc limit 1) as tip,
      a.id as attempt_id, a.started_at as attempt_started_at, a.duration_ms as attempt_duration_ms, a.outcome as attempt_outcome,
      a.status as attempt_status`;

function toLogged(row: LogRow): LoggedNotification {
  return {
    id: row.id,
    watcherId: row.watcher_id,
    watchedAddressId: row.watched_address_id,
    watchedAddress: row.watched_address === null ? undefined : fromBytes(row.watched_address),
    hash: fromBytes(row.tx_hash),
    type: row.kind === 'token' ? 'TOKEN_TRANSFER' : 'COIN_TRANSFER',
    ...toTransferFields(row),
    blockNumber: row.block_number,
    state: row.state,
    revision: row.revision,
    orphaned:
      row.orphaned_at === null
        ? undefined
        : {
            blockHash: row.orphaned_hash === null ? undefined : fromBytes(row.orphaned_hash),
            at: row.orphaned_at,
          },
    replaces: row.replaces ?? undefined,
    replacedBy: row.replaced_by ?? undefined,
    retryCount: row.retry_count,
    redeliveryCount: row.redelivery_count,
    nextRetryAt: row.next_retry_at ?? undefined,
    createdAt: row.created_at,
    processedAt: row.processed_at ?? undefined,
    isOrphanedTransfer: row.is_orphaned && messageKind(row) === 'transfer',
    laneId: row.lane_id ?? undefined,
    origin: row.origin ?? undefined,
    webhookUrl: row.webhook_url ?? undefined,
    confirmations: row.is_orphaned || row.tip === null ? undefined : Math.max(0, row.tip - row.block_number),
    recordConfirmations: row.record_confirmations ?? undefined,
    releaseNumber: row.release_number ?? undefined,
    lastAttempt: row.attempt_id === null ? undefined : toLastAttempt(row.attempt_id, row),
  };
}

const toLastAttempt = (id: number, row: LogRow): LastAttempt => ({
  id,
  startedAt: row.attempt_started_at,
  durationMs: row.attempt_duration_ms,
  outcome: row.attempt_outcome,
  status: row.attempt_status ?? undefined,
});
