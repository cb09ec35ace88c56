/**
 * Attempts in the order in which they become visible, each with its notification as it was after the attempt, for streams.
 */
import { type Address, fromBytes, type Hash } from '../../core/hex.ts';
import { type DeliveryStatus, type NotificationState, statusOf } from '../../domain/delivery-status.ts';
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { readJson, recordsOf, rowsOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { type Attempt, type AttemptRow, attemptColumns, toAttempt } from './attempts.ts';
import type { NotificationType } from './due.ts';
import { kindText } from './notification-rows.ts';
import { isInShards, listShards, pageOfShards, watcherOf } from './shards.ts';
import { type TransferFields, type TransferRow, toTransferFields } from './transfer-columns.ts';

/** NOTIFY channel between processes that settle attempts and processes with streams (app/attempt-bell.ts). */
export const ATTEMPT_CHANNEL = 'chainbell_attempt';

export async function notifyAttempts(db: Db, payload: string): Promise<void> {
  await db.query(sql`select pg_notify(${ATTEMPT_CHANNEL}, ${payload})`);
}

export type AttemptEvent = {
  attempt: Attempt;
  watcherId: number;
  /** Undefined if retention has deleted it. */
  notification: AttemptedNotification | undefined;
};

type AttemptedNotification = TransferFields & {
  status: DeliveryStatus;
  type: NotificationType;
  hash: Hash;
  blockNumber: number;
  watchedAddressId: string;
  /** Undefined if it is deleted. */
  watchedAddress: Address | undefined;
  /** Scheme, host and port to which it was sent. */
  origin: string | undefined;
  createdAt: Date;
  /** Failures of this message up to the attempt. */
  retryCount: number;
  /** Undefined after a success, and if a later attempt was made. */
  nextRetryAt: Date | undefined;
};

type EventRange = { after: number; upTo: number; onlyFailures: boolean; limit: number };

/** Attempts that one page examines for failures. */
const EXAMINED_MAX = 5_000;

/**
 * The attempts of a watcher, or of all watchers if `watcherId` is undefined, with ids above `after` up to `upTo`, oldest first.
 * `last` is the id up to which all of them have been read.
 */
export async function listAttemptEvents(
  db: Db,
  watcherId: number | undefined,
  range: EventRange,
): Promise<{ events: AttemptEvent[]; last: number }> {
  const { after, upTo, onlyFailures, limit } = range;
  const page = sql`order by id limit ${onlyFailures ? EXAMINED_MAX : limit}`;
  const select = (isOwn: Sql) => sql`
    select ${attemptColumns}, shard_id, lane_id from delivery_attempt where ${isOwn} and id > ${after} and id <= ${upTo}`;
  const examined =
    watcherId === undefined
      ? sql`${select(sql`true`)} ${page}`
      : pageOfShards(
          db,
          await listShards(db, watcherId),
          (shardId) => select(sql`shard_id = ${shardId}`),
          page,
        );
  const pageOf = (rows: Sql) => sql`
    examined as materialized (${rows}), chosen as materialized (
      select * from examined where ${onlyFailures ? sql`outcome <> 'success'` : sql`true`} order by id limit ${limit}
    ), counted as materialized (
      select max(id) as last, count(*) >= ${onlyFailures ? EXAMINED_MAX : limit} as is_full from examined
    )`;
  const rows =
    db.isDistributed === true
      ? await readInShards(db, examined, pageOf)
      : await db.query<EventRow>(sql`
    with ${pageOf(examined)}
    select a.*, ${watcherOf(sql`a.shard_id`)} as watcher_id, counted.last, counted.is_full, l.origin, n.created_at, n.block_number,
      ${kindText(sql`n.kind`)} as kind, n.watched_address_id, w.address as watched_address, n.tx_hash, n.sender, n.receiver, n.token, n.amount,
      coalesce(q.state, e.state) as state, q.next_retry_at, later.is_newest and coalesce(q.revision, e.revision) = a.revision as is_current,
      case when later.is_newest and q.revision = a.revision and a.outcome <> 'success' then q.retry_count
        else ${failuresUpTo(sql`a.shard_id`)} end as failures
    from counted left join chosen a on true
    left join lane l on l.id = a.lane_id
    left join lateral (
      select * from notification n
      where n.shard_id = a.shard_id and n.id = a.notification_id and n.created_at <= a.started_at + interval '1 day' limit 1
    ) n on true
    left join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id
    left join queue q on q.shard_id = n.shard_id and q.id = n.id
    left join ended e on e.shard_id = n.shard_id and e.id = n.id
    left join lateral (
      select not exists (select from delivery_attempt p where ${isOfMessage(sql`a.shard_id`)} and p.id > a.id) as is_newest) later on true
    order by a.id`);
  const events = rows.flatMap((row) => (row.id === null ? [] : [toEvent({ ...row, id: row.id })]));
  const isCut = onlyFailures && events.length === limit;
  const [first] = rows;
  const last = isCut || first?.is_full === true ? (isCut ? events.at(-1)?.attempt.id : first?.last) : upTo;
  return { events, last: last ?? upTo };
}

const EXAMINED_COLUMNS = `id bigint, notification_id bigint, revision integer, started_at timestamptz, duration_ms integer,
  request_count smallint, outcome text, status integer, response text, shard_id bigint, lane_id bigint`;
const DETAIL_COLUMNS = `attempt_id bigint, created_at timestamptz, block_number bigint, kind text, watched_address_id uuid, watched_address bytea,
  tx_hash bytea, sender bytea, receiver bytea, token bytea, amount numeric, state text, next_retry_at timestamptz,
  is_current boolean, failures bigint`;

/** The same rows on Citus: the page, the details of its attempts in their shards, and both joined on the coordinator. */
async function readInShards(db: Db, examined: Sql, pageOf: (rows: Sql) => Sql): Promise<EventRow[]> {
  const json = await readJson(db, examined);
  const page = pageOf(recordsOf(json, EXAMINED_COLUMNS));
  const chosen = await db.query<{ id: number; shard_id: number }>(
    sql`with ${page} select id, shard_id from chosen order by id`,
  );
  const shards = [...new Set(chosen.map((row) => row.shard_id))];
  const shardId = shards.length === 1 ? sql`${shards[0]}::bigint` : sql`a.shard_id`;
  const isNewest = sql`not exists (select from delivery_attempt p where ${isOfMessage(shardId)} and p.id > a.id)`;
  const details = await rowsOf(
    db,
    sql`
      select a.id as attempt_id, n.created_at, n.block_number, ${kindText(sql`n.kind`)} as kind, n.watched_address_id,
        w.address as watched_address, n.tx_hash, n.sender, n.receiver, n.token, n.amount, coalesce(q.state, e.state) as state, q.next_retry_at,
        ${isNewest} and coalesce(q.revision, e.revision) = a.revision as is_current,
        case when q.revision = a.revision and a.outcome <> 'success' and ${isNewest} then q.retry_count
          else ${failuresUpTo(shardId)} end as failures
      from delivery_attempt a
      join notification n on n.shard_id = a.shard_id and n.id = a.notification_id and n.created_at <= a.started_at + interval '1 day'
      left join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id
      left join queue q on q.shard_id = n.shard_id and q.id = n.id
      left join ended e on e.shard_id = n.shard_id and e.id = n.id
      where ${isInShards(sql`a.shard_id`, shards)}
        and a.id = any(${listOf(chosen.map(({ id }) => id))}::bigint[])`,
    DETAIL_COLUMNS,
  );
  return db.query<EventRow>(sql`
    with ${page}
    select a.*, ${watcherOf(sql`a.shard_id`)} as watcher_id, counted.last, counted.is_full, l.origin, d.*
    from counted left join chosen a on true left join lane l on l.id = a.lane_id left join ${details} as d on d.attempt_id = a.id
    order by a.id`);
}

/** Whether attempt `p` sent the message of attempt `a`. `shardId`: theirs, a constant where it is known, so that Citus asks only that shard. */
const isOfMessage = (
  shardId: Sql,
) => sql`p.shard_id = ${shardId} and p.notification_id = a.notification_id and p.revision = a.revision
  and p.started_at >= n.created_at - interval '1 day'`;

/** Failures of the message up to attempt `a`, since its last success before that. */
const failuresUpTo = (shardId: Sql) => sql`(
  select count(*) from delivery_attempt p
  where ${isOfMessage(shardId)} and p.id <= a.id and p.outcome <> 'success' and p.id > coalesce((
    select max(p.id) from delivery_attempt p where ${isOfMessage(shardId)} and p.id < a.id and p.outcome = 'success'), 0))`;

type EventRow = Omit<AttemptRow, 'id'> &
  TransferRow & {
    id: number | null;
    watcher_id: number;
    last: number | null;
    is_full: boolean;
    origin: string | null;
    created_at: Date | null;
    block_number: number;
    kind: string;
    watched_address_id: string;
    watched_address: Uint8Array | null;
    tx_hash: Uint8Array;
    state: NotificationState | null;
    next_retry_at: Date | null;
    is_current: boolean | null;
    failures: number;
  };

function toEvent(row: EventRow & { id: number }): AttemptEvent {
  return {
    attempt: toAttempt(row),
    watcherId: row.watcher_id,
    notification: row.created_at === null ? undefined : toNotification(row, row.created_at),
  };
}

function toNotification(row: EventRow, createdAt: Date): AttemptedNotification {
  const isSuccess = row.outcome === 'success';
  // Of an older attempt only its outcome is known.
  const isPresent = row.is_current === true && row.state !== null && row.state !== 'processed';
  const state = isSuccess ? 'processed' : isPresent ? row.state : 'waiting';
  return {
    ...toTransferFields(row),
    status: statusOf({ state: state ?? 'waiting', failures: row.failures, isOrphanedTransfer: false }),
    type: row.kind === 'token' ? 'TOKEN_TRANSFER' : 'COIN_TRANSFER',
    hash: fromBytes(row.tx_hash),
    blockNumber: row.block_number,
    watchedAddressId: row.watched_address_id,
    watchedAddress: row.watched_address === null ? undefined : fromBytes(row.watched_address),
    origin: row.origin ?? undefined,
    createdAt,
    retryCount: row.failures,
    nextRetryAt: !isSuccess && row.is_current === true ? (row.next_retry_at ?? undefined) : undefined,
  };
}
