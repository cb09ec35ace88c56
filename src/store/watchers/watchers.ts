/**
 * Watchers for their operator: list, show, suspend and resume (watcher-removal.ts deletes them).
 */
import { Fault } from '../../core/fault.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { isInShards, listShards } from '../delivery/shards.ts';
import { isKeyValid } from './api-keys.ts';

export type Watcher = {
  id: number;
  name: string;
  createdAt: Date;
  /** Since when its keys are refused and nothing is sent; undefined while it is active. */
  suspendedAt: Date | undefined;
  /** Since when it is being deleted. It stays suspended until it is gone. */
  deletingAt: Date | undefined;
  /** Keys that are not revoked. */
  validKeyCount: number;
  /** In how many slices its new records are spread. */
  slices: number;
};

/** Numbers of rows that belong to a watcher; COUNT_MAX + 1 if there are more than COUNT_MAX of a kind. */
export type Belongings = {
  records: number;
  notifications: number;
  attempts: number;
  answers: number;
  signingSecrets: number;
  /** Origins of its webhooks. */
  origins: number;
};

/**
 * The undelivered notifications of a watcher: COUNT_MAX + 1 if there are more than COUNT_MAX. `due` covers only the counted ones.
 * Nothing of a suspended watcher is due.
 */
type WatcherQueue = { held: number; waiting: number; due: number; oldestDueAt: Date | undefined };

type WatcherOrigin = {
  origin: string;
  /** When its next notification is due; undefined if there is none. */
  nextDueAt: Date | undefined;
  /** Whether a worker is sending to it. */
  isAtWork: boolean;
};

/** Rows that a count reads at most. Reading this many index entries takes some ten milliseconds. */
export const COUNT_MAX = 100_000;
/** Origins that are listed, those that are due first. */
export const ORIGINS_MAX = 100;

/** A page of all watchers in the order of their ids, after `after`. */
export async function listWatchers(
  db: Db,
  { after, limit, now }: { after: number | undefined; limit: number; now: Date },
): Promise<Watcher[]> {
  const rows = await db.query<WatcherRow>(sql`
    select ${columns(now)} from watcher w where w.id > ${after ?? 0} order by w.id limit ${limit}`);
  return rows.map(toWatcher);
}

export async function findWatcher(db: Db, id: number, now: Date): Promise<Watcher | undefined> {
  const [row] = await db.query<WatcherRow>(sql`select ${columns(now)} from watcher w where w.id = ${id}`);
  return row && toWatcher(row);
}

export async function countBelongings(db: Db, watcherId: number): Promise<Belongings> {
  const isOwn = isInShards(sql`shard_id`, await listShards(db, watcherId));
  const ofShard = (table: Sql) => count(sql`${table} where ${isOwn}`);
  const [row] = await db.query<Omit<Belongings, 'signingSecrets'> & { signing_secrets: number }>(sql`
    select ${ofShard(sql`watched_address`)} as records, ${ofShard(sql`notification`)} as notifications,
      ${ofShard(sql`delivery_attempt`)} as attempts, ${ofShard(sql`idempotent_answer`)} as answers,
      ${count(sql`signing_secret where watcher_id = ${watcherId}`)} as signing_secrets,
      (select count(distinct origin) from (select origin from lane where ${isOwn} limit ${COUNT_MAX + 1}) as counted) as origins`);
  if (row === undefined) throw new Error('the statement returned no row');
  const { signing_secrets: signingSecrets, ...counts } = row;
  return { ...counts, signingSecrets };
}

export async function watcherQueue(
  db: Db,
  { id, suspendedAt }: Pick<Watcher, 'id' | 'suspendedAt'>,
  now: Date,
): Promise<WatcherQueue> {
  const isOwn = isInShards(sql`shard_id`, await listShards(db, id));
  const isDue = suspendedAt === undefined ? sql`due_at <= ${now}` : sql`false`;
  const waiting = (attempts: Sql) => sql`
    (select due_at from queue
    where ${isOwn} and state = 'waiting' and ${attempts} limit ${COUNT_MAX + 1})`;
  const [row] = await db.query<{ held: number; waiting: number; due: number; oldest: Date | null }>(sql`
    select ${count(sql`queue where state = 'held' and ${isOwn}`)} as held,
      count(*) as waiting, count(*) filter (where ${isDue}) as due, min(due_at) filter (where ${isDue}) as oldest
    from (${waiting(sql`retry_count = 0`)} union all ${waiting(sql`retry_count > 0`)} limit ${COUNT_MAX + 1}) as pending`);
  return {
    held: row?.held ?? 0,
    waiting: row?.waiting ?? 0,
    due: row?.due ?? 0,
    oldestDueAt: row?.oldest ?? undefined,
  };
}

export async function listOrigins(db: Db, watcherId: number): Promise<WatcherOrigin[]> {
  const rows = await db.query<{ origin: string; next_due: Date | null; is_at_work: boolean }>(sql`
    select origin, min(next_due) as next_due, bool_or(owner is not null) as is_at_work from lane
    where ${isInShards(sql`shard_id`, await listShards(db, watcherId))}
    group by origin
    order by bool_and(owner is null), min(next_due) nulls last, origin limit ${ORIGINS_MAX}`);
  return rows.map((row) => ({
    origin: row.origin,
    nextDueAt: row.next_due ?? undefined,
    isAtWork: row.is_at_work,
  }));
}

/**
 * Refuses the watcher's keys and stops sending: no lease visits it, and workers that have its lanes give them back within a
 * second or two. Attempts under way are completed. Suspending twice keeps the first time. False if there is no such watcher.
 */
export async function suspendWatcher(database: Database, id: number, now: Date): Promise<boolean> {
  return database.transaction(async (tx) => {
    const rows = await tx.query(sql`
      update watcher set suspended_at = coalesce(suspended_at, ${now}) where id = ${id} returning id`);
    if (rows.length === 0) return false;
    await markSuspended(tx, id);
    return true;
  });
}

/**
 * Raises the number of slices among which new records are spread. Existing records stay where they are, so the number is never
 * lowered. The outcome is 'lower' if the watcher has more.
 */
export async function raiseSlices(
  database: Database,
  id: number,
  slices: number,
): Promise<{ outcome: 'raised' | 'lower' | 'deleting' | 'none'; slices: number }> {
  return database.transaction(async (tx) => {
    const [row] = await tx.query<{ slices: number; is_deleting: boolean }>(sql`
      select slices, deleting_at is not null as is_deleting from watcher where id = ${id} for no key update`);
    if (row === undefined) return { outcome: 'none', slices: 0 };
    if (row.is_deleting) return { outcome: 'deleting', slices: row.slices };
    if (row.slices > slices) return { outcome: 'lower', slices: row.slices };
    await tx.query(sql`update watcher set slices = ${slices} where id = ${id}`);
    return { outcome: 'raised', slices };
  });
}

/**
 * Keeps the watcher from being deleted until the transaction ends, so that rows which the transaction creates for it don't stay
 * behind. @throws Fault `unauthorized` if its deletion began after the request was authenticated.
 */
export async function requireWatcher(tx: Tx, id: number): Promise<void> {
  const rows = await tx.query(
    sql`select from watcher where id = ${id} and deleting_at is null for key share`,
  );
  if (rows.length === 0) throw new Fault('unauthorized', 'Unauthorized');
}

/** Keeps leases from visiting the watcher. */
export async function markSuspended(tx: Tx, id: number): Promise<void> {
  await tx.query(sql`
    insert into watcher_queue (watcher_id, suspended) values (${id}, true)
    on conflict (watcher_id) do update set suspended = true`);
}

/** Ends a suspension. A watcher that is being deleted stays suspended. */
export async function resumeWatcher(database: Database, id: number): Promise<'active' | 'deleting' | 'none'> {
  return database.transaction(async (tx) => {
    const [row] = await tx.query<{ is_deleting: boolean }>(sql`
      update watcher set suspended_at = case when deleting_at is not null then suspended_at end where id = ${id}
      returning deleting_at is not null as is_deleting`);
    if (row === undefined) return 'none';
    if (row.is_deleting) return 'deleting';
    // Its next visit was scheduled all the time.
    await tx.query(sql`update watcher_queue set suspended = false where watcher_id = ${id}`);
    return 'active';
  });
}

const count = (from: Sql): Sql =>
  sql`(select count(counted.one) from (select 1 as one from ${from} limit ${COUNT_MAX + 1}) as counted)`;

type WatcherRow = {
  id: number;
  name: string;
  created_at: Date;
  suspended_at: Date | null;
  deleting_at: Date | null;
  valid_key_count: number;
  slices: number;
};

const columns = (now: Date): Sql => sql`w.id, w.name, w.created_at, w.suspended_at, w.deleting_at, w.slices, (
  select count(*) from api_key where watcher_id = w.id and ${isKeyValid(now)}
) as valid_key_count`;

function toWatcher(row: WatcherRow): Watcher {
  return {
    id: row.id,
    name: row.name,
    createdAt: row.created_at,
    suspendedAt: row.suspended_at ?? undefined,
    deletingAt: row.deleting_at ?? undefined,
    validKeyCount: row.valid_key_count,
    slices: row.slices,
  };
}
