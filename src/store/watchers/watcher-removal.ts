/**
 * Deletes a watcher with everything that belongs to it, in batches, while services run. The next call continues an interrupted
 * removal.
 */
import { lockCommits } from '../blocks/commit-lock.ts';
import type { Database, Tx } from '../db/db.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { hasUncounted, tryLockSums } from '../delivery/count-deliveries.ts';
import { lockLanesIn } from '../delivery/lane-locks.ts';
import { isInShards, listShards } from '../delivery/shards.ts';
import { runningWorkers } from '../delivery/workers.ts';
import { dropDeferredOf, hasDeferred } from '../matching/drop-deferred.ts';
import { noteChanges, type PlaceRow, toDeletion } from './note-changes.ts';
import { markSuspended } from './watchers.ts';

/** A delete of this size takes milliseconds on a server, and some ten milliseconds on the embedded database. */
const BATCH_ROWS = 1_000;
/** Each can be the last of thousands of rows with transfers, and blocks wait for the commit lock. */
const BATCH_DEFERRED = 50;
/** Transactions of that size in a round, whose looks cost as much as several of them. */
const DEFERRED_BATCHES = 20;
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
 * Deletes the next batch of a watcher whose removal has begun. Deletes nothing and returns 'sending' while workers have attempts
 * of it under way, and 'uncounted' while some of its attempts are missing in the sums of all watchers. Returns 'gone' when nothing
 * is left.
 */
export async function removeBatch(database: Database, id: number): Promise<Wait | 'more' | 'gone'> {
  let isDeferred = false;
  const step = await database.transaction(async (tx) => {
    isDeferred = false;
    if (!(await lockWatcher(tx, id))) return 'gone';
    const shards = await listShards(tx, id);
    const wait = await findWait(tx, shards);
    if (wait !== undefined) return wait;
    isDeferred = await hasDeferred(tx, id);
    return (await deleteBatch(tx, id, shards)) ? 'more' : 'last';
  });
  // In another transaction, because blocks must not wait for the looks above. With each batch, because commits may defer more meanwhile.
  for (let left = DEFERRED_BATCHES; isDeferred && left > 0; left -= 1)
    isDeferred = await dropDeferredBatch(database, id);
  return step === 'last' ? finishRemoval(database, id) : step;
}

async function dropDeferredBatch(database: Database, id: number): Promise<boolean> {
  return database.transaction(async (tx) => {
    await lockCommits(tx);
    return dropDeferredOf(tx, id, BATCH_DEFERRED);
  });
}

/** Transactions that create something for the watcher lock its row too, so they have ended when this lock is granted. */
async function lockWatcher(tx: Tx, id: number): Promise<boolean> {
  const rows = await tx.query(
    sql`select from watcher where id = ${id} and deleting_at is not null for update`,
  );
  return rows.length > 0;
}

type Wait = 'sending' | 'uncounted';

/** What must end before anything is deleted: attempts of running workers that have leased a lane of the watcher, and then the count. */
async function findWait(tx: Tx, shards: readonly number[]): Promise<Wait | undefined> {
  if (await isSending(tx, shards)) return 'sending';
  return (await hasUncounted(tx, shards)) ? 'uncounted' : undefined;
}

async function isSending(tx: Tx, shards: readonly number[]): Promise<boolean> {
  const rows = await tx.query(sql`
    select from lane where ${isInShards(sql`shard_id`, shards)} and owner is not null and owner in (${runningWorkers}) limit 1`);
  return rows.length > 0;
}

/** The tables in this order, because watched addresses produce notifications, and notifications produce attempts. */
const keyed = {
  watched_address: sql`shard_id, id`,
  queue: sql`shard_id, id`,
  ended: sql`shard_id, id`,
  notification: sql`shard_id, id, created_at`,
  delivery_attempt: sql`shard_id, id, started_at`,
  record_delivery_sum: sql`shard_id, watched_address_id, started_at`,
  delivery_sum: sql`shard_id, unit, started_at, origin`,
};

/** Tables with rows for each of the watcher's receivers, of which it may have had a million, and their order. */
const keyedByWatcher = { receiver_failure: sql`origin, shard_id`, origin_usage: sql`origin` };

/** Deletes rows of the first table that has some. Returns whether there were any. */
async function deleteBatch(tx: Tx, id: number, shards: readonly number[]): Promise<boolean> {
  // On Citus, a limited number of rows can be deleted from one shard only.
  const parts = tx.isDistributed === true ? shards.map((shard) => [shard]) : [shards];
  for (const [table, key] of Object.entries(keyed)) {
    for (const part of parts) {
      const gone = await deleteRows(tx, { table, key, isOwn: isInShards(sql`shard_id`, part) });
      if (table === 'watched_address') await noteChanges(tx, id, gone.map(toDeletion));
      if (gone.length > 0) return true;
    }
  }
  for (const [table, key] of Object.entries(keyedByWatcher)) {
    const batch = sql`select ctid from ${raw(table)} where watcher_id = ${id} order by ${key} limit ${BATCH_ROWS} for update`;
    if (await deleteSome(tx, sql`delete from ${raw(table)} where ctid = any(array(${batch}))`)) return true;
  }
  return deleteSome(
    tx,
    sql`delete from idempotent_answer where ctid = any(array(
      select ctid from idempotent_answer where ${isInShards(sql`shard_id`, shards)} limit ${BATCH_ANSWERS}))`,
  );
}

async function deleteRows(
  tx: Tx,
  { table, key, isOwn }: { table: string; key: Sql; isOwn: Sql },
): Promise<PlaceRow[]> {
  const batch = (columns: Sql) =>
    sql`select ${columns} from ${raw(table)} where ${isOwn} order by ${key} limit ${BATCH_ROWS}`;
  // Lanes before rows, as a worker that settles locks them.
  if (table === 'queue') await lockLanesIn(tx, sql`select lane_id from (${batch(sql`lane_id`)}) as batch`);
  return tx.query<PlaceRow>(sql`
    delete from ${raw(table)} where ${isOwn} and (${key}) in (${batch(key)})
    returning ${table === 'watched_address' ? sql`lane_id, address` : sql`shard_id`}`);
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
 * watched address may still insert notifications for it, and the lock of the sums, because attempts may be being added up. Blocks
 * must not wait for that, so this lock comes first.
 */
async function finishRemoval(database: Database, id: number): Promise<Wait | 'more' | 'gone'> {
  return database.transaction(async (tx) => {
    if (!(await tryLockSums(tx))) return 'uncounted';
    // It reads every attempt that isn't added up yet, and blocks must not wait for that either.
    const wait = await findWait(tx, await listShards(tx, id));
    if (wait !== undefined) return wait;
    await lockCommits(tx);
    if (!(await lockWatcher(tx, id))) return 'gone';
    const shards = await listShards(tx, id);
    if (await isSending(tx, shards)) return 'sending';
    if (await dropDeferredOf(tx, id, BATCH_DEFERRED)) return 'more';
    if (await deleteBatch(tx, id, shards)) return 'more';
    const lanes = sql`select id from lane where ${isInShards(sql`shard_id`, shards)} order by id limit ${BATCH_ROWS} for update`;
    if (await deleteSome(tx, sql`delete from lane where id in (${lanes})`)) return 'more';
    // A batch misses rows that another transaction was changing.
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
