/**
 * Deletes a watcher with everything that belongs to it, in batches, while services run. The next call continues an interrupted
 * removal.
 */
import { lockCommits } from '../blocks/blocks.ts';
import type { Database, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { lockSums } from '../delivery/count-deliveries.ts';
import { runningWorkers } from '../delivery/lanes.ts';
import { isInShards, listShards } from '../delivery/shards.ts';
import { noteChanges, type PlaceRow, toDeletion } from './note-changes.ts';
import { markSuspended } from './watchers.ts';

/** A delete of this size takes milliseconds on a server, and some ten milliseconds on the embedded database. */
const BATCH_ROWS = 1_000;
/** Stored responses are up to a thousand times as large as other rows. */
const BATCH_ANSWERS = 100;

/**
 * Suspends the watcher for good and deletes its keys. From then on its requests are refused and nothing is sent, except attempts
 * that are under way. False if there is no such watcher.
 */
export async function beginRemoval(database: Database, id: number, now: Date): Promise<boolean> {
  return database.transaction(async (tx) => {
    const rows = await tx.query(sql`
      update watcher set suspended_at = coalesce(suspended_at, ${now}), deleting_at = coalesce(deleting_at, ${now})
      where id = ${id} returning id`);
    if (rows.length === 0) return false;
    await markSuspended(tx, id);
    await tx.query(sql`delete from api_key where watcher_id = ${id}`);
    return true;
  });
}

/**
 * Deletes the next batch of a watcher whose removal has begun. Returns 'sending' and deletes nothing while workers have attempts
 * of it under way, and 'gone' when nothing is left.
 */
export async function removeBatch(database: Database, id: number): Promise<'sending' | 'more' | 'gone'> {
  const step = await database.transaction(async (tx) => {
    if (!(await lockWatcher(tx, id))) return 'gone';
    const isOwn = await isOwnShard(tx, id);
    if (await isSending(tx, isOwn)) return 'sending';
    return (await deleteBatch(tx, id, isOwn)) ? 'more' : 'last';
  });
  return step === 'last' ? finishRemoval(database, id) : step;
}

/** Transactions that create something for the watcher lock its row too, so they have ended when this lock is granted. */
async function lockWatcher(tx: Tx, id: number): Promise<boolean> {
  const rows = await tx.query(
    sql`select from watcher where id = ${id} and deleting_at is not null for update`,
  );
  return rows.length > 0;
}

/** Whether a row is in a shard of the watcher. */
const isOwnShard = async (tx: Tx, id: number): Promise<Sql> =>
  isInShards(sql`shard_id`, await listShards(tx, id));

/** Whether a running worker has leased a lane of the watcher. */
async function isSending(tx: Tx, isOwn: Sql): Promise<boolean> {
  const rows = await tx.query(sql`
    select from lane where ${isOwn} and owner is not null and owner in (${runningWorkers}) limit 1`);
  return rows.length > 0;
}

/** Watched addresses first, because they produce notifications, and notifications produce attempts. Returns whether there were any. */
async function deleteBatch(tx: Tx, id: number, isOwn: Sql): Promise<boolean> {
  const gone = await tx.query<PlaceRow>(sql`
    delete from watched_address where ${isOwn} and (shard_id, id) in (
      select shard_id, id from watched_address where ${isOwn} order by shard_id, id limit ${BATCH_ROWS})
    returning lane_id, address`);
  await noteChanges(tx, id, gone.map(toDeletion));
  if (gone.length > 0) return true;
  for (const statement of batches(isOwn)) if (await deleteSome(tx, statement)) return true;
  return false;
}

/** In this order, because notifications produce attempts. */
function batches(isOwn: Sql): Sql[] {
  return [
    // Lanes before rows, as a worker that settles locks them.
    sql`delete from queue where ${isOwn} and (shard_id, id) in (
      with batch as materialized (
        select shard_id, id, lane_id from queue where ${isOwn} order by shard_id, id limit ${BATCH_ROWS}
      ), locked as materialized (
        select id from lane where id in (select lane_id from batch) order by id for update
      )
      select shard_id, id from batch where (select count(*) from locked) >= 0)`,
    sql`delete from ended where ${isOwn} and (shard_id, id) in (
      select shard_id, id from ended where ${isOwn} order by shard_id, id limit ${BATCH_ROWS})`,
    sql`delete from notification where ${isOwn} and (shard_id, id, created_at) in (
      select shard_id, id, created_at from notification where ${isOwn} order by shard_id, id limit ${BATCH_ROWS})`,
    sql`delete from delivery_attempt where ${isOwn} and (shard_id, id, started_at) in (
      select shard_id, id, started_at from delivery_attempt where ${isOwn} order by shard_id, id limit ${BATCH_ROWS})`,
    sql`delete from record_delivery_sum where ${isOwn} and (shard_id, watched_address_id, started_at) in (
      select shard_id, watched_address_id, started_at from record_delivery_sum where ${isOwn}
      order by shard_id, watched_address_id, started_at limit ${BATCH_ROWS})`,
    sql`delete from delivery_sum where ${isOwn} and (shard_id, unit, started_at, origin) in (
      select shard_id, unit, started_at, origin from delivery_sum where ${isOwn}
      order by shard_id, unit, started_at, origin limit ${BATCH_ROWS})`,
    sql`delete from idempotent_answer where ctid = any(array(
      select ctid from idempotent_answer where ${isOwn} limit ${BATCH_ANSWERS}))`,
  ];
}

/** Runs a delete statement, and returns whether it deleted anything. */
async function deleteSome(tx: Tx, statement: Sql): Promise<boolean> {
  const [row] = await tx.query<{ count: number }>(
    sql`with gone as (${statement} returning 1) select count(*) as count from gone`,
  );
  return (row?.count ?? 0) > 0;
}

/**
 * Deletes lanes, and after the last of them the watcher. Holds the commit lock, because an open block commit that has read a
 * watched address may still insert notifications for it, and the lock of the sums, because attempts may be being added up.
 */
async function finishRemoval(database: Database, id: number): Promise<'sending' | 'more' | 'gone'> {
  return database.transaction(async (tx) => {
    await lockCommits(tx);
    if (!(await lockWatcher(tx, id))) return 'gone';
    await lockSums(tx);
    const isOwn = await isOwnShard(tx, id);
    if (await isSending(tx, isOwn)) return 'sending';
    if (await deleteBatch(tx, id, isOwn)) return 'more';
    const lanes = sql`select id from lane where ${isOwn} order by id limit ${BATCH_ROWS} for update`;
    if (await deleteSome(tx, sql`delete from lane where id in (${lanes})`)) return 'more';
    await tx.query(sql`delete from origin_usage where watcher_id = ${id}`);
    await tx.query(sql`delete from watcher_usage where watcher_id = ${id}`);
    await tx.query(sql`delete from receiver_failure where watcher_id = ${id}`);
    await tx.query(sql`delete from watcher_queue where watcher_id = ${id}`);
    // A key may have been issued while the removal began.
    await tx.query(sql`delete from api_key where watcher_id = ${id}`);
    await tx.query(sql`delete from signing_secret where watcher_id = ${id}`);
    await tx.query(sql`delete from watcher where id = ${id}`);
    return 'gone';
  });
}
