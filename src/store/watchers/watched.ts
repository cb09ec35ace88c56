/**
 * Watched addresses: spec 2.6 and 4.5. Each is a record of one watcher. These functions see only the given watcher's records.
 */
import { type Address, fromBytes, toBytes } from '../../core/hex.ts';
import { recordIdIn, shardOfRecord, sliceForAddress, sliceOfRecord } from '../../domain/shard.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { updateTimeIf } from '../db/time-sum.ts';
import { ensureLanes, type HeldWatcher, holdWatcher } from '../delivery/lanes.ts';
import { alignNotifications } from '../delivery/record-changes.ts';
import { isInShards, listShards } from '../delivery/shards.ts';
import { hasLimits, type Limits, lockUsage, noLimits, requireWithin } from './limits.ts';
import { alsoWanted, noteChanges, type PlaceRow, toDeletion, toPlace, type Wanted } from './note-changes.ts';

export type WatchedAddress = {
  id: string;
  watcherId: number;
  address: Address;
  watchCoin: boolean;
  watchToken: boolean;
  webhookUrl: string;
  createdAt: Date;
  updatedAt: Date;
};

export type NewWatchedAddress = Pick<
  WatchedAddress,
  'id' | 'address' | 'watchCoin' | 'watchToken' | 'webhookUrl'
>;
export type WatchedAddressPatch = Partial<Omit<NewWatchedAddress, 'id'>>;

/** When records are changed: a time, or a clock that is read once they are locked. Another change may hold these locks for long. */
export type ChangeTime = Date | (() => Date);
export const timeOf = (now: ChangeTime): Date => (now instanceof Date ? now : now());

/**
 * Stores a new record in the caller's transaction. The last byte of its id becomes its slice. Blocks that are committed later
 * are matched against it.
 * @throws Fault `conflict` above a limit.
 */
export async function insertWatchedAddress(
  tx: Tx,
  watcherId: number,
  record: NewWatchedAddress,
  { origin, now, limits = noLimits }: { origin: string; now: ChangeTime; limits?: Limits },
): Promise<WatchedAddress> {
  await requireWithin(tx, watcherId, [{ operation: 'create', record }], limits);
  const watcher = await holdWatcher(tx, watcherId, [origin]);
  const id = placedId(watcher, record);
  const key = { shardId: shardOfRecord(watcherId, id), origin };
  const laneOf = await ensureLanes(tx, watcher, [key]);
  const at = timeOf(now);
  const rows = await tx.query<WatchedRow & Partial<Wanted>>(sql`
    insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url,
      created_at, updated_at)
    values (${key.shardId}, ${id}, ${watcherId}, ${laneOf(key)}, ${toBytes(record.address)}, ${record.watchCoin},
      ${record.watchToken}, ${record.webhookUrl}, ${at}, ${at})
    returning ${columns}${alsoWanted(tx)}`);
  const change = { from: undefined, to: { laneId: laneOf(key), address: record.address } };
  await noteChanges(tx, watcherId, [change], rows[0]);
  return toRecord(one(rows));
}

/** The id of a new record: the given one, with the slice of the record's address as its last byte. */
export const placedId = (
  { slices }: Pick<HeldWatcher, 'slices'>,
  { id, address }: Pick<NewWatchedAddress, 'id' | 'address'>,
): string => recordIdIn(sliceForAddress(address, slices), id);

/** Before every other id. */
const NIL_ID = '00000000-0000-0000-0000-000000000000';

/** A page of the watcher's records in the order of their creation, after the record `after`. */
export async function listWatchedAddresses(
  db: Db,
  watcherId: number,
  { after, limit }: { after: { createdAt: Date; id: string } | undefined; limit: number },
): Promise<WatchedAddress[]> {
  const from =
    after === undefined
      ? sql`true`
      : sql`(created_at, id) > (${after.createdAt}::timestamptz, ${after.id}::uuid)`;
  const page = sql`order by created_at, id limit ${limit}`;
  const [first = sql``, ...others] = (await listShards(db, watcherId)).map(
    (shardId) => sql`
    select ${columns} from watched_address
    where shard_id = ${shardId} and watcher_id = ${watcherId} and ${from}
    ${page}`,
  );
  // The server merges these scans of the index. With a condition on several shards it would read and sort all records.
  const merged = others.reduce((together, one) => sql`${together} union all (${one})`, sql`(${first})`);
  const rows = await db.query<WatchedRow>(others.length === 0 ? first : sql`${merged} ${page}`);
  return rows.map(toRecord);
}

/** The watcher's records with this address, in the order of their creation, after the record `after`. */
export async function listRecordsOfAddress(
  db: Db,
  watcherId: number,
  address: Address,
  { after, limit }: { after: { createdAt: Date; id: string } | undefined; limit: number },
): Promise<WatchedAddress[]> {
  const isOwn = isInShards(sql`shard_id`, await listShards(db, watcherId));
  const { createdAt = new Date(0), id = NIL_ID } = after ?? {};
  // `offset 0` makes the address the start of the plan. Otherwise PostgreSQL may walk through all records in their order.
  const rows = await db.query<WatchedRow>(sql`
    select * from (
      select ${columns} from watched_address
      where address = ${toBytes(address)} and ${isOwn} and watcher_id = ${watcherId}
      offset 0) as record
    where (created_at, id) > (${createdAt}::timestamptz, ${id}::uuid)
    order by created_at, id
    limit ${limit}`);
  return rows.map(toRecord);
}

export async function findWatchedAddress(
  db: Db,
  watcherId: number,
  id: string,
): Promise<WatchedAddress | undefined> {
  const rows = await db.query<WatchedRow>(sql`
    select ${columns} from watched_address
    where shard_id = ${shardOfRecord(watcherId, id)} and watcher_id = ${watcherId} and id = ${id}`);
  return rows[0] && toRecord(rows[0]);
}

/** Ids of up to `limit` records that watch this address now, of the watcher or of all. */
export async function listRecordIds(
  db: Db,
  watcherId: number | undefined,
  address: Address,
  limit: number,
): Promise<string[]> {
  const isOwn =
    watcherId === undefined
      ? sql`true`
      : sql`${isInShards(sql`shard_id`, await listShards(db, watcherId))} and watcher_id = ${watcherId}`;
  const rows = await db.query<{ id: string }>(sql`
    select id from watched_address
    where address = ${toBytes(address)} and ${isOwn}
    order by id
    limit ${limit}`);
  return rows.map(({ id }) => id);
}

/** `align` makes waiting notifications follow the change. */
type ChangeOptions = { now: ChangeTime; limits?: Limits; align?: typeof alignNotifications };

/**
 * Changes the fields that the patch contains. If all of them have these values already, `updatedAt` stays. If the URL gets
 * another origin, waiting notifications move to its lane (record-changes.ts). `origin` is that of the patch's URL, undefined without one.
 * @throws Fault `conflict` above a limit.
 */
export async function updateWatchedAddress(
  database: Database,
  watcherId: number,
  id: string,
  patch: WatchedAddressPatch,
  {
    origin,
    now,
    limits = noLimits,
    align = alignNotifications,
  }: { origin: string | undefined } & ChangeOptions,
): Promise<WatchedAddress | undefined> {
  if (Object.values(patch).every((value) => value === undefined))
    return findWatchedAddress(database, watcherId, id);
  const shardId = shardOfRecord(watcherId, id);
  const updated = await database.transaction(async (tx) => {
    await requireWithin(tx, watcherId, [{ operation: 'update', id, patch }], limits);
    const watcher = origin === undefined ? undefined : await holdWatcher(tx, watcherId, [origin]);
    if (watcher !== undefined && sliceOfRecord(id) >= watcher.slices) return undefined;
    const key = { shardId, origin: origin ?? '' };
    const laneId = watcher && (await ensureLanes(tx, watcher, [key]))(key);
    const wanted = {
      address: sql`${patch.address && toBytes(patch.address)}::bytea`,
      watchCoin: sql`${patch.watchCoin}::boolean`,
      watchToken: sql`${patch.watchToken}::boolean`,
      webhookUrl: sql`${patch.webhookUrl}::text`,
    };
    const isChange = sql`(${wanted.address} <> w.address or ${wanted.watchCoin} <> w.watch_coin
          or ${wanted.watchToken} <> w.watch_token or ${wanted.webhookUrl} <> w.webhook_url)`;
    const place = sql`shard_id = ${shardId} and watcher_id = ${watcherId} and id = ${id}`;
    const [old] = await tx.query<PlaceRow>(
      sql`select lane_id, address from watched_address where ${place} for update`,
    );
    if (old === undefined) return undefined;
    const [row] = await tx.query<WatchedRow & Partial<Wanted> & { lane_id: number }>(sql`
      update watched_address w set
        address = coalesce(${wanted.address}, w.address),
        watch_coin = coalesce(${wanted.watchCoin}, w.watch_coin),
        watch_token = coalesce(${wanted.watchToken}, w.watch_token),
        webhook_url = coalesce(${wanted.webhookUrl}, w.webhook_url),
        lane_id = coalesce(${laneId}::bigint, w.lane_id),
        updated_at = ${updateTimeIf(isChange, sql`w.updated_at`, timeOf(now))}
      where ${place}
      returning ${recordColumns}, w.lane_id${alsoWanted(tx)}`);
    if (row === undefined) return undefined;
    const record = toRecord(row);
    const change = { from: toPlace(old), to: { laneId: row.lane_id, address: record.address } };
    await noteChanges(tx, watcherId, [change], row);
    return { record, isMoved: row.lane_id !== old.lane_id };
  });
  if (updated?.isMoved === true) await align(database, watcherId, [id], timeOf(now));
  return updated?.record;
}

/** Deletes the record and cancels its waiting notifications. Returns whether the record existed. */
export async function deleteWatchedAddress(
  database: Database,
  watcherId: number,
  id: string,
  { now, limits = noLimits, align = alignNotifications }: ChangeOptions,
): Promise<boolean> {
  const shardId = shardOfRecord(watcherId, id);
  const isGone = await database.transaction(async (tx) => {
    if (hasLimits(limits)) await lockUsage(tx, watcherId);
    const gone = await tx.query<PlaceRow & Partial<Wanted>>(sql`
      delete from watched_address
      where shard_id = ${shardId} and watcher_id = ${watcherId} and id = ${id}
      returning lane_id, address${alsoWanted(tx)}`);
    await noteChanges(tx, watcherId, gone.map(toDeletion), gone[0]);
    return gone.length > 0;
  });
  if (isGone) await align(database, watcherId, [id], timeOf(now));
  return isGone;
}

export type WatchedRow = {
  id: string;
  watcher_id: number;
  address: Uint8Array;
  watch_coin: boolean;
  watch_token: boolean;
  webhook_url: string;
  created_at: Date;
  updated_at: Date;
};

/** Columns of a watched address `w`. */
export const recordColumns = sql`w.id, w.watcher_id, w.address, w.watch_coin, w.watch_token, w.webhook_url, w.created_at, w.updated_at`;
export const columns = sql`id, watcher_id, address, watch_coin, watch_token, webhook_url, created_at, updated_at`;

export function toRecord(row: WatchedRow): WatchedAddress {
  return {
    id: row.id,
    watcherId: row.watcher_id,
    address: fromBytes(row.address),
    watchCoin: row.watch_coin,
    watchToken: row.watch_token,
    webhookUrl: row.webhook_url,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  };
}

function one<Row>(rows: readonly Row[]): Row {
  const [row] = rows;
  if (row === undefined) throw new Error('the statement returned no row');
  return row;
}
