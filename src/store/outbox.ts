/**
 * The delivery queue: due notifications of a lane, and the outcome of their attempts. Spec 2.7, 3 and 6.2.
 */
import type { Address, Hash } from '../core/hex.ts';
import { fromBytes } from '../core/hex.ts';
import type { Database, Db } from './db.ts';
import { type Lane, wakeLanes } from './lanes.ts';
import { sql } from './sql.ts';

export type NotificationType = 'COIN_TRANSFER' | 'TOKEN_TRANSFER';

/** What one attempt needs to know. */
export type DueNotification = {
  id: number;
  shardId: number;
  laneId: number;
  watchedAddressId: string;
  watcherId: number;
  hash: Hash;
  type: NotificationType;
  sender: Address;
  receiver: Address | undefined;
  amount: bigint;
  token: Address | undefined;
  /** `YYYY-MM-DD HH:MM:SS.ffffff`, UTC (spec 2.7). */
  createdAt: string;
  createdTime: Date;
  webhookUrl: string;
  /** Failed attempts so far. */
  retryCount: number;
  /** The published schedule of this attempt, in the form of createdAt; undefined for the first. */
  nextRetryAt: string | undefined;
};

type DueRow = {
  id: number;
  watched_address_id: string;
  watcher_id: number;
  tx_hash: Uint8Array;
  kind: string;
  sender: Uint8Array;
  receiver: Uint8Array | null;
  amount: string;
  token: Uint8Array | null;
  created_text: string;
  created_at: Date;
  retry_count: number;
  next_retry_text: string | null;
  webhook_url: string | null;
  record_lane_id: number | null;
};

/**
 * Up to `limit` due notifications of the lane in their order, without those in `exclude` (in flight). Rows whose record
 * was deleted or moved to another webhook origin while they were being made are cancelled or moved here.
 */
export async function listDue(
  db: Db,
  lane: Lane,
  { now, exclude, limit }: { now: Date; exclude: readonly number[]; limit: number },
): Promise<DueNotification[]> {
  const rows = await db.query<DueRow>(sql`
    select n.id, n.watched_address_id, n.watcher_id, n.tx_hash, n.kind, n.sender, n.receiver, n.amount, n.token,
      to_char(n.created_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') as created_text, n.created_at, n.retry_count,
      to_char(n.next_retry_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') as next_retry_text,
      w.webhook_url, w.lane_id as record_lane_id
    from notification n
    left join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id
    where n.shard_id = ${lane.shardId} and n.lane_id = ${lane.id} and n.state = 'waiting'
      and n.next_attempt_at <= ${now} and n.id <> all(${exclude}::bigint[])
    order by n.next_attempt_at, n.id
    limit ${limit}`);
  const due: DueNotification[] = [];
  for (const row of rows) {
    if (row.webhook_url === null || row.record_lane_id !== lane.id) await correct(db, lane, row, now);
    else due.push(toDue(row, row.webhook_url, lane));
  }
  return due;
}

/** The record changed between the commit of the block and now: it decides. */
async function correct(db: Db, lane: Lane, row: DueRow, now: Date): Promise<void> {
  if (row.record_lane_id === null) {
    await db.query(sql`
      update notification set state = 'cancelled'
      where shard_id = ${lane.shardId} and id = ${row.id} and state = 'waiting'`);
    return;
  }
  await db.query(sql`
    update notification set lane_id = ${row.record_lane_id}
    where shard_id = ${lane.shardId} and id = ${row.id} and state = 'waiting'`);
  await wakeLanes(db, [row.record_lane_id], now);
}

function toDue(row: DueRow, webhookUrl: string, lane: Lane): DueNotification {
  return {
    id: row.id,
    shardId: lane.shardId,
    laneId: lane.id,
    watchedAddressId: row.watched_address_id,
    watcherId: row.watcher_id,
    hash: fromBytes(row.tx_hash),
    type: row.kind === 'token' ? 'TOKEN_TRANSFER' : 'COIN_TRANSFER',
    sender: fromBytes(row.sender),
    receiver: row.receiver === null ? undefined : fromBytes(row.receiver),
    amount: BigInt(row.amount),
    token: row.token === null ? undefined : fromBytes(row.token),
    createdAt: row.created_text,
    createdTime: row.created_at,
    webhookUrl,
    retryCount: row.retry_count,
    nextRetryAt: row.next_retry_text ?? undefined,
  };
}

/** What became of one attempt. */
export type Settlement = {
  lane: Lane;
  notificationId: number;
  /** The failures before this attempt: another attempt's failure is not counted over it. */
  retryCount: number;
  startedAt: Date;
  durationMs: number;
  outcome: string;
  status: number | undefined;
  /** The beginning of the answer, free of keys. */
  response: string | undefined;
  /** When to try again; undefined after a 2xx. */
  nextRetryAt: Date | undefined;
  settledAt: Date;
};

/**
 * Records attempts: the log row of each, and `processed` or the next retry. Only for lanes that are still held under
 * the same epoch: returns the settlements of others, whose rows stay untouched.
 */
export async function settle(
  database: Database,
  settlements: readonly Settlement[],
): Promise<Set<Settlement>> {
  return database.transaction(async (tx) => {
    const laneIds = [...new Set(settlements.map(({ lane }) => lane.id))];
    // Shared: a takeover waits for these results, so that it never sends what is being settled.
    const rows = await tx.query<{ id: number; epoch: number }>(sql`
      select id, epoch from lane where id = any(${laneIds}::bigint[])
      order by id
      for share`);
    const epochs = new Map(rows.map(({ id, epoch }) => [id, epoch]));
    // One group may hold outcomes of a lane's former lease beside those of the present one.
    const isHeld = ({ lane }: Settlement) => epochs.get(lane.id) === lane.epoch;
    const valid = settlements.filter(isHeld);
    if (valid.length > 0) {
      await updateNotifications(tx, valid);
      await insertAttempts(tx, valid);
    }
    return new Set(settlements.filter((one) => !isHeld(one)));
  });
}

/**
 * A row that was withdrawn or cancelled while its attempt was in flight, or withdrawn and held again: a 2xx makes it
 * processed; after a failure it goes on (it was attempted), but a cancelled one stays cancelled. Of two outcomes of one row
 * (its record moved while it was in flight) the 2xx counts, whichever came first.
 */
async function updateNotifications(tx: Db, settlements: readonly Settlement[]): Promise<void> {
  await tx.query(sql`
    update notification n set
      state = case when s.next_retry_at is null then 'processed' when n.state = 'cancelled' then 'cancelled' else 'waiting' end,
      processed_at = case when s.next_retry_at is null then s.settled_at end,
      retry_count = n.retry_count + case when s.next_retry_at is null then 0 else 1 end,
      next_retry_at = s.next_retry_at,
      next_attempt_at = coalesce(s.next_retry_at, n.next_attempt_at)
    from (
      select distinct on (shard_id, id) * from unnest(
        ${settlements.map(({ lane }) => lane.shardId)}::bigint[],
        ${settlements.map(({ notificationId }) => notificationId)}::bigint[],
        ${settlements.map(({ retryCount }) => retryCount)}::integer[],
        ${settlements.map(({ nextRetryAt }) => nextRetryAt ?? null)}::timestamptz[],
        ${settlements.map(({ settledAt }) => settledAt)}::timestamptz[]
      ) as t (shard_id, id, retry_count, next_retry_at, settled_at)
      order by shard_id, id, next_retry_at is not null, retry_count desc, next_retry_at
    ) as s
    where n.shard_id = s.shard_id and n.id = s.id and n.state <> 'processed'
      and (s.next_retry_at is null or n.retry_count = s.retry_count)`);
}

async function insertAttempts(tx: Db, settlements: readonly Settlement[]): Promise<void> {
  await tx.query(sql`
    insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, status, response)
    select * from unnest(
      ${settlements.map(({ lane }) => lane.shardId)}::bigint[],
      ${settlements.map(({ notificationId }) => notificationId)}::bigint[],
      ${settlements.map(({ startedAt }) => startedAt)}::timestamptz[],
      ${settlements.map(({ durationMs }) => durationMs)}::integer[],
      ${settlements.map(({ outcome }) => outcome)}::text[],
      ${settlements.map(({ status }) => status ?? null)}::integer[],
      ${settlements.map(({ response }) => response ?? null)}::text[])`);
}

/** Counts of the queue at a moment. */
export type QueueStatistics = { held: number; waiting: number; due: number; oldestDueAt: Date | undefined };

export async function queueStatistics(db: Db, now: Date): Promise<QueueStatistics> {
  const [row] = await db.query<{ held: number; waiting: number; due: number; oldest: Date | null }>(sql`
    select count(*) filter (where state = 'held') as held,
      count(*) filter (where state = 'waiting') as waiting,
      count(*) filter (where state = 'waiting' and next_attempt_at <= ${now}) as due,
      min(next_attempt_at) filter (where state = 'waiting' and next_attempt_at <= ${now}) as oldest
    from notification where state in ('held', 'waiting')`);
  return {
    held: row?.held ?? 0,
    waiting: row?.waiting ?? 0,
    due: row?.due ?? 0,
    oldestDueAt: row?.oldest ?? undefined,
  };
}

/** Deletes up to `limit` attempts that are older than `before`; returns how many. */
export async function pruneAttempts(db: Db, before: Date, limit: number): Promise<number> {
  const rows = await db.query(sql`
    delete from delivery_attempt where (shard_id, id) in (
      select shard_id, id from delivery_attempt where started_at < ${before} order by started_at limit ${limit})
    returning id`);
  return rows.length;
}

/** Deletes up to `limit` notifications that were processed before `before`; unprocessed ones never go. */
export async function pruneProcessed(db: Db, before: Date, limit: number): Promise<number> {
  const rows = await db.query(sql`
    delete from notification where (shard_id, id) in (
      select shard_id, id from notification where state = 'processed' and processed_at < ${before}
      order by processed_at limit ${limit})
    returning id`);
  return rows.length;
}
