/**
 * Reads the stored data of blocks for a comparison with the chain, from one snapshot and without changing anything.
 */
import { type Address, fromBytes, type Hash } from '../../core/hex.ts';
import type { Transfer, TransferKind } from '../../domain/block.ts';
import { isSentAndOrphaned, mayBeSeen } from '../blocks/reorgs.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import { readTime } from '../db/database-time.ts';
import type { Database, Db } from '../db/db.ts';
import { requireNoneLost } from '../db/lost-shards.ts';
import { tableOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { isOfTransaction, isOfTransactions } from '../delivery/notification-rows.ts';
import { type TransferRow, toTransferFields } from '../delivery/transfer-columns.ts';
import { type SettingsRow, settingsColumns, toSettings, type WatchSettings } from '../watchers/settings.ts';
import type { WatchedAddress } from '../watchers/watched.ts';

export type StoredBlock = {
  number: number;
  hash: Hash;
  parentHash: Hash;
  minedAt: Date;
  proved: boolean;
  storedAt: Date;
};

/** A watched address as it is now. Its values before the last change are not known. */
export type StoredWatch = { shardId: number; laneId: number } & Pick<
  WatchedAddress,
  'id' | 'address' | 'watchCoin' | 'watchToken' | 'webhookUrl' | 'createdAt' | 'updatedAt'
> & { settings: WatchSettings };

export type StoredNotification = Transfer & {
  shardId: number;
  id: number;
  watchedAddressId: string;
  /** Counts equal transfers of one transaction, from 0. */
  occurrence: number;
  blockNumber: number;
  createdAt: Date;
  /** `held`, `waiting`, `processed` or `cancelled`. */
  state: string;
  /** Whether its receiver may have seen it. */
  mayBeSeen: boolean;
  processedAt: Date | undefined;
  revision: number;
  retryCount: number;
  redeliveryCount: number;
  nextAttemptAt: Date;
  laneId: number;
  /** Set while the block lacks confirmations. */
  releaseNumber: number | undefined;
  /** The position that strict ordering preserves. */
  sequence: number | undefined;
  /** Changes whenever the row does, so that a repair never overwrites a change made after it was planned. */
  version: string;
};

/** Identifies the notifications of a transaction for a watched address. */
export type NotificationKey = RecordKey & { txHash: Hash };
export type RecordKey = { shardId: number; watchedAddressId: string };

/** Watched addresses after one and up to another one, in the order of shard and id. */
export type RecordRange = { after?: RecordKey | undefined; upTo?: RecordKey | undefined };

const isInRange = (shardId: Sql, id: Sql, { after, upTo }: RecordRange): Sql =>
  sql`true${
    after === undefined
      ? sql``
      : sql` and (${shardId}, ${id}) > (${after.shardId}, ${after.watchedAddressId}::uuid)`
  }${upTo === undefined ? sql`` : sql` and (${shardId}, ${id}) <= (${upTo.shardId}, ${upTo.watchedAddressId}::uuid)`}`;

/** A comparison of 100,000 records computes for several seconds between two statements, on a busy machine for longer. */
const SILENT_MS_MAX = 120_000;

/** Runs `work` on one snapshot of the database. It can't write, and doesn't block other transactions. */
export function readSnapshot<T>(database: Database, work: (snapshot: Db) => Promise<T>): Promise<T> {
  return database.transaction(async (tx) => {
    await tx.query(sql`set transaction isolation level repeatable read, read only`);
    await tx.query(
      sql`select set_config('idle_in_transaction_session_timeout', ${String(SILENT_MS_MAX)}, true)`,
    );
    await requireNoneLost(tx);
    return work(tx);
  });
}

/** The stored blocks of a range, by number. */
export async function listStoredBlocks(
  db: Db,
  { from, to }: { from: number; to: number },
): Promise<Map<number, StoredBlock>> {
  const rows = await db.query<{
    number: number;
    hash: Uint8Array;
    parent_hash: Uint8Array;
    mined_at: Date;
    proved: boolean;
    stored_at: Date;
  }>(sql`
    select number, hash, parent_hash, mined_at, proved, stored_at from block
    where number between ${from} and ${to}
    order by number limit ${to - from + 1}`);
  return new Map(
    rows.map(({ number, hash, parent_hash, proved, ...times }) => [
      number,
      {
        ...{ number, hash: fromBytes(hash), parentHash: fromBytes(parent_hash), proved },
        ...{ minedAt: times.mined_at, storedAt: times.stored_at },
      },
    ]),
  );
}

/** Whether a reorg orphaned stored blocks between these times. */
export async function hasReorgs(db: Db, { from, to }: { from: Date; to: Date }): Promise<boolean> {
  const rows = await db.query(sql`select from reorg where happened_at between ${from} and ${to} limit 1`);
  return rows.length > 0;
}

/** The first watched addresses of the range with one of these addresses, up to `limit`. */
export async function listWatchesOf(
  db: Db,
  addresses: readonly Address[],
  limit: number,
  range: RecordRange = {},
): Promise<StoredWatch[]> {
  const rows = await db.query<WatchRow>(sql`
    select ${watchColumns}
    from unnest(${bytesOf(addresses)}::bytea[]) as p (address)
    join watched_address w on w.address = p.address
    where ${isInRange(sql`w.shard_id`, sql`w.id`, range)}
    order by w.shard_id, w.id limit ${limit}`);
  return rows.map(toWatch);
}

/** The watched addresses of notifications that still exist. */
export async function listWatchesById(db: Db, records: readonly RecordKey[]): Promise<StoredWatch[]> {
  const rows = await db.query<WatchRow>(sql`
    select ${watchColumns}
    from unnest(
      ${listOf(records.map(({ shardId }) => shardId))}::bigint[],
      ${listOf(records.map(({ watchedAddressId }) => watchedAddressId))}::uuid[]
    ) as p (shard_id, id)
    join watched_address w on w.shard_id = p.shard_id and w.id = p.id
    order by w.shard_id, w.id limit ${records.length}`);
  return rows.map(toWatch);
}

const watchColumns = sql`w.shard_id, w.id, w.lane_id, w.address, w.watch_coin, w.watch_token, w.webhook_url, w.created_at,
  w.updated_at, ${settingsColumns}`;

type WatchRow = SettingsRow & {
  shard_id: number;
  id: string;
  lane_id: number;
  address: Uint8Array;
  watch_coin: boolean;
  watch_token: boolean;
  webhook_url: string;
  created_at: Date;
  updated_at: Date;
};

function toWatch(row: WatchRow): StoredWatch {
  return {
    shardId: row.shard_id,
    id: row.id,
    laneId: row.lane_id,
    address: fromBytes(row.address),
    watchCoin: row.watch_coin,
    watchToken: row.watch_token,
    webhookUrl: row.webhook_url,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    settings: toSettings(row),
  };
}

/**
 * The notifications of a range of blocks and watched addresses, and those with the given keys in blocks outside of it: the first ones by
 * watched address, up to `limit`. Leaves out notifications that a reorg orphaned.
 */
export async function listNotificationsOf(
  db: Db,
  { from, to }: { from: number; to: number },
  keys: readonly NotificationKey[],
  limit: number,
  range: RecordRange = {},
): Promise<StoredNotification[]> {
  const now = await readTime(db);
  // A time beyond the range of a Date ('infinity') is read as the year 9999.
  const columns = sql`n.shard_id, n.id, n.watched_address_id, n.kind, n.tx_hash, n.ordinal, n.sender, n.receiver, n.amount,
    n.token, n.occurrence, n.block_number, n.created_at, n.state, n.revision, n.processed_at, ${mayBeSeen(now)} as may_be_seen, n.retry_count, n.redelivery_count,
    least(n.next_attempt_at, '9999-12-31T00:00:00Z'::timestamptz) as next_attempt_at, n.lane_id, n.release_number, n.sequence,
    n.version`;
  const isWanted = sql`n.reorg_id is null and n.state <> 'withdrawn'`;
  const statuses = await statusesOf(db, { from, to }, keys, { condition: isWanted, range });
  const rows = await db.query<NotificationRow>(sql`
    select ${columns} from ${statuses} n
    where n.block_number between ${from} and ${to} and ${isWanted} and ${isInRange(sql`n.shard_id`, sql`n.watched_address_id`, range)}
    union all
    select ${columns}
    from unnest(
      ${listOf(keys.map(({ shardId }) => shardId))}::bigint[],
      ${listOf(keys.map(({ watchedAddressId }) => watchedAddressId))}::uuid[],
      ${bytesOf(keys.map(({ txHash }) => txHash))}::bytea[]
    ) as p (shard_id, watched_address_id, tx_hash)
    join ${statuses} n on ${isOfTransaction(sql`p.tx_hash`)} and n.watched_address_id = p.watched_address_id and n.shard_id = p.shard_id
    where n.block_number not between ${from} and ${to} and ${isWanted}
    order by shard_id, watched_address_id, tx_hash, kind, ordinal, id
    limit ${limit}`);
  return rows.map((row) => ({
    shardId: row.shard_id,
    id: row.id,
    watchedAddressId: row.watched_address_id,
    kind: row.kind,
    txHash: fromBytes(row.tx_hash),
    ordinal: row.ordinal,
    ...toTransferFields(row),
    occurrence: row.occurrence,
    blockNumber: row.block_number,
    createdAt: row.created_at,
    state: row.state,
    mayBeSeen: row.may_be_seen,
    processedAt: row.processed_at ?? undefined,
    revision: row.revision,
    retryCount: row.retry_count,
    redeliveryCount: row.redelivery_count,
    nextAttemptAt: row.next_attempt_at,
    laneId: row.lane_id,
    releaseNumber: row.release_number ?? undefined,
    sequence: row.sequence ?? undefined,
    version: row.version,
  }));
}

/** An orphaned notification that its receiver may have seen and that no removal notice has removed. */
export type SentOrphan = Pick<
  StoredNotification,
  | 'shardId'
  | 'id'
  | 'watchedAddressId'
  | 'txHash'
  | 'kind'
  | 'ordinal'
  | 'amount'
  | 'blockNumber'
  | 'state'
  | 'processedAt'
> & {
  /** Whether a repair orphaned it in a block that stayed, so that even its transaction may be wrong. */
  isOfBlock: boolean;
};

/**
 * Orphaned notifications without a replacement or a removal notice: those with these keys, and those that a repair orphaned in blocks of
 * the range. The first ones by watched address, up to `limit`.
 */
export async function listSentOrphans(
  db: Db,
  { from, to }: { from: number; to: number },
  keys: readonly NotificationKey[],
  limit: number,
  range: RecordRange = {},
): Promise<SentOrphan[]> {
  const columns = sql`n.shard_id, n.id, n.watched_address_id, n.tx_hash, n.kind, n.ordinal, n.amount, n.block_number, n.state,
    n.processed_at`;
  const statuses = await statusesOf(db, { from, to }, keys, { condition: isSentAndOrphaned, range });
  // Citus has applied this condition already.
  const isSent = db.isDistributed === true ? sql`true` : isSentAndOrphaned;
  const rows = await db.query<SentOrphanRow>(sql`
    select ${columns}, false as is_of_block
    from unnest(
      ${listOf(keys.map(({ shardId }) => shardId))}::bigint[],
      ${listOf(keys.map(({ watchedAddressId }) => watchedAddressId))}::uuid[],
      ${bytesOf(keys.map(({ txHash }) => txHash))}::bytea[]
    ) as p (shard_id, watched_address_id, tx_hash)
    join ${statuses} n on ${isOfTransaction(sql`p.tx_hash`)} and n.watched_address_id = p.watched_address_id and n.shard_id = p.shard_id
    where ${isSent}
    union all
    select ${columns}, true as is_of_block from ${statuses} n
    -- After a reorg the block has another hash.
    join orphaned_block o on o.reorg_id = n.reorg_id and o.number = n.block_number
    join block b on b.number = o.number and b.hash = o.hash
    where n.block_number between ${from} and ${to} and ${isSent} and ${isInRange(sql`n.shard_id`, sql`n.watched_address_id`, range)}
    order by shard_id, watched_address_id, id limit ${limit}`);
  return rows.map((row) => ({
    ...{
      shardId: row.shard_id,
      id: row.id,
      watchedAddressId: row.watched_address_id,
      kind: row.kind,
      txHash: fromBytes(row.tx_hash),
    },
    ...{ ordinal: row.ordinal, amount: BigInt(row.amount), blockNumber: row.block_number, state: row.state },
    ...{ processedAt: row.processed_at ?? undefined, isOfBlock: row.is_of_block },
  }));
}

type SentOrphanRow = Pick<
  NotificationRow,
  | 'shard_id'
  | 'id'
  | 'watched_address_id'
  | 'kind'
  | 'tx_hash'
  | 'ordinal'
  | 'amount'
  | 'block_number'
  | 'state'
  | 'processed_at'
> & { is_of_block: boolean };

/** The notifications of these blocks, and of these keys, in the range. On a single server the conditions are left to the statement. */
function statusesOf(
  db: Db,
  { from, to }: { from: number; to: number },
  keys: readonly NotificationKey[],
  { condition, range }: { condition: Sql; range: RecordRange },
): Promise<Sql> {
  const isOfKeys = isOfTransactions(keys.map(({ txHash }) => txHash));
  const where = sql`(n.block_number between ${from} and ${to} or ${isOfKeys}) and ${condition}
    and ${isInRange(sql`n.shard_id`, sql`n.watched_address_id`, range)}`;
  return tableOf(db, 'notification_status', { alias: 'n', where });
}

type NotificationRow = TransferRow & {
  shard_id: number;
  id: number;
  watched_address_id: string;
  kind: TransferKind;
  tx_hash: Uint8Array;
  ordinal: number;
  occurrence: number;
  block_number: number;
  created_at: Date;
  may_be_seen: boolean;
  processed_at: Date | null;
  state: string;
  revision: number;
  retry_count: number;
  redelivery_count: number;
  next_attempt_at: Date;
  lane_id: number;
  release_number: number | null;
  sequence: number | null;
  version: string;
};
