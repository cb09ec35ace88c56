/**
 * Records the outcomes of delivery attempts. Spec 3 and 6.2.
 */
import { listOf } from '../db/arrays.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { frequent, type Sql, sql } from '../db/sql.ts';
import { unlessLocked } from '../db/unless-locked.ts';
import type { Lane } from './lanes.ts';
import { isTransferMessage } from './message-kind.ts';
import { recordFailures } from './receivers.ts';
import { toRemovalNotices } from './removals.ts';
import { advanceSequences } from './sequence.ts';

/** The outcome of one delivery attempt. */
export type Settlement = {
  lane: Lane;
  notificationId: number;
  /** The revision that was sent. The outcome settles only this one. */
  revision: number;
  /** Whether the request may have reached the receiver. */
  mayHaveArrived: boolean;
  /** The failures before this attempt, so that two overlapping attempts don't both count as the same retry. */
  retryCount: number;
  /** The delivery that the attempt belongs to. If a redelivery was requested since, the row stays as it is. */
  redeliveryCount: number;
  startedAt: Date;
  durationMs: number;
  /** 1 unless given. */
  requestCount?: number;
  outcome: string;
  status: number | undefined;
  /** The beginning of the response, without keys. */
  response: string | undefined;
  /** When to try again; undefined after a 2xx. */
  nextRetryAt: Date | undefined;
  settledAt: Date;
  /** Sum of the clock steps that these times include. A later step moves `nextRetryAt` together with the schedule. */
  stepsMs?: number;
};

/**
 * Records attempts: a log row for each, and `processed` or the next retry on its notification. Settles only lanes that are
 * still leased under the same epoch. Returns the settlements that were not recorded, whose rows are unchanged: 'lost' if
 * another worker has the lane, 'locked' if another transaction has locked something of that watcher. Settle the latter again.
 *
 * The lanes are locked in shared mode, so that a worker that takes over waits for these outcomes and doesn't send the same
 * rows again. One group may contain outcomes of a lane's former lease beside those of the current one. A row may have been
 * withdrawn or cancelled while its attempt was in flight, or be held because its transaction was mined again. A 2xx makes
 * such a row processed; a failure leaves its state. If the watched address has `removed` on, an attempt that may have arrived
 * turns a withdrawn row into a removal notice.
 */
export async function settle(
  database: Database,
  settlements: readonly Settlement[],
): Promise<Map<Settlement, 'lost' | 'locked'>> {
  // One statement settles nearly all of them without the further round trips of a transaction. The rest take the slow path.
  const left = await settleInOneStatement(database, settlements);
  const unrecorded = await settleInTransaction(database, left);
  if (unrecorded !== undefined) return unrecorded;
  // Something of one watcher is locked. Settle each watcher separately, so that it doesn't hold up the others.
  const found = new Map<Settlement, 'lost' | 'locked'>();
  for (const own of Map.groupBy(left, ({ lane }) => lane.watcherId).values()) {
    const ofWatcher = await settleInTransaction(database, own);
    for (const one of own) {
      const result = ofWatcher === undefined ? 'locked' : ofWatcher.get(one);
      if (result !== undefined) found.set(one, result);
    }
  }
  return found;
}

/** Settles any outcome. Records nothing and returns undefined if it would have to wait for another transaction's lock. */
async function settleInTransaction(
  database: Database,
  settlements: readonly Settlement[],
): Promise<Map<Settlement, 'lost' | 'locked'> | undefined> {
  const [first] = settlements;
  if (first === undefined) return new Map();
  return unlessLocked(database, async (tx) => {
    const recorded = await record(tx, settlements);
    const untouched = recorded.filter(({ isUpdated }) => !isUpdated).map(({ settlement }) => settlement);
    if (untouched.length > 0) await removeArrived(tx, untouched, first.settledAt);
    const ordered = recorded.flatMap(({ settlement, orderedId: id }) =>
      id === null ? [] : [{ shardId: settlement.lane.shardId, id }],
    );
    await advanceSequences(tx, ordered, first.settledAt);
    const known = new Set(recorded.map(({ settlement }) => settlement));
    const left = settlements.filter((settlement) => !known.has(settlement));
    const epochs = await readEpochs(tx, left);
    return new Map(
      left.map((one) => [one, epochs.get(one.lane.id) === one.lane.epoch ? 'locked' : 'lost'] as const),
    );
  });
}

/** The current epochs of the settlements' lanes, read without locking them. */
async function readEpochs(tx: Tx, settlements: readonly Settlement[]): Promise<Map<number, number>> {
  if (settlements.length === 0) return new Map();
  const ids = [...new Set(settlements.map(({ lane }) => lane.id))];
  const rows = await tx.query<{ id: number; epoch: number }>(sql`
    select id, epoch from lane where id = any(${listOf(ids)}::bigint[]) order by id limit ${ids.length}`);
  return new Map(rows.map(({ id, epoch }) => [id, epoch]));
}

/** Settles rows that are unchanged since they were read and that no strict order depends on. Returns the other settlements. */
async function settleInOneStatement(db: Db, settlements: readonly Settlement[]): Promise<Settlement[]> {
  const rows = await db.query<{ position: number }>(
    frequent(sql`
    with ${validOf(settlements)}, ${settleQueued(sql`n.sequence is null`)}, logged as (
      insert into delivery_attempt (${attemptColumns}) select ${attemptColumns} from updated order by position
    )${failuresOf(settlements)}
    select position from updated order by position`),
  );
  const settled = new Set(rows.map(({ position }) => position - 1));
  return settlements.filter((_, index) => !settled.has(index));
}

/** `orderedId` is the watched address in strict order whose next notification may now be sent. */
type Recorded = { settlement: Settlement; isUpdated: boolean; orderedId: string | null };

/** For lanes that are still leased: writes the log rows, and updates the notifications whose outcome still counts. */
async function record(tx: Tx, settlements: readonly Settlement[]): Promise<Recorded[]> {
  await lockSettled(tx, settlements);
  const rows = await tx.query<{ position: number; is_updated: boolean; ordered_id: string | null }>(sql`
    with ${validOf(settlements)}, ${settleQueued(sql`true`)}, late as (
      ${settleEnded}
      returning s.position, n.shard_id, n.id, n.sequence is not null and n.state = 'processed' as is_ordered
    ), logged as (
      insert into delivery_attempt (${attemptColumns})
      select ${attemptColumns} from valid v
      -- The worker repeats a commit whose answer was lost.
      where not exists (
        select from delivery_attempt a
        where a.shard_id = v.shard_id and a.notification_id = v.notification_id and a.started_at = v.started_at)
      order by position
    )${failuresOf(settlements)}
    select v.position, u.position is not null or late.position is not null as is_updated,
      case when u.is_ordered then u.watched_address_id when late.is_ordered then (
        select n.watched_address_id from notification n where n.shard_id = v.shard_id and n.id = v.notification_id
      ) end as ordered_id
    from valid v
    left join updated u on u.shard_id = v.shard_id and u.notification_id = v.notification_id
    left join late on late.shard_id = v.shard_id and late.id = v.notification_id
    order by v.position`);
  return rows.flatMap((row) => {
    const settlement = settlements[row.position - 1];
    return settlement === undefined
      ? []
      : [{ settlement, isUpdated: row.is_updated, orderedId: row.ordered_id }];
  });
}

/** Locks the rows, which other transactions could otherwise move between `queue` and `ended` while this one looks for them. */
async function lockSettled(tx: Tx, settlements: readonly Settlement[]): Promise<void> {
  const keys = (left: readonly Settlement[]) => sql`unnest(
    ${listOf(left.map(({ lane }) => lane.shardId))}::bigint[],
    ${listOf(left.map(({ notificationId }) => notificationId))}::bigint[]) as k (shard_id, id)`;
  const queued = await tx.query<{ id: number }>(sql`
    select q.id from ${keys(settlements)} join queue q on q.shard_id = k.shard_id and q.id = k.id
    order by q.shard_id, q.id for update of q`);
  const found = new Set(queued.map(({ id }) => id));
  const left = settlements.filter(({ notificationId }) => !found.has(notificationId));
  if (left.length === 0) return;
  await tx.query(sql`
    select from ${keys(left)} join notification n on n.shard_id = k.shard_id and n.id = k.id
    order by n.shard_id, n.id for update of n`);
}

/** The CTE that records failing receivers, left out when all attempts succeeded, which is the usual case. */
const failuresOf = (settlements: readonly Settlement[]) =>
  settlements.some(({ nextRetryAt }) => nextRetryAt !== undefined)
    ? sql`, failed as (${recordFailures})`
    : sql``;

const attemptColumns = sql`shard_id, notification_id, lane_id, revision, started_at, duration_ms, outcome, status, response,
  request_count`;

/**
 * CTE `valid`: the outcomes of lanes that are still leased under the same epoch and that no other transaction has locked. They
 * stay leased until this transaction ends.
 */
function validOf(settlements: readonly Settlement[]): Sql {
  const numbers = (of: (settlement: Settlement) => number | undefined) =>
    listOf(settlements.map((settlement) => of(settlement) ?? 'null'));
  const times = (of: (settlement: Settlement) => Date | undefined) =>
    listOf(settlements.map((settlement) => of(settlement)?.toISOString() ?? 'null'));
  const laneIds = [...new Set(settlements.map(({ lane }) => lane.id))];
  return sql`
    held as materialized (
      select id, epoch, c.steps_ms from lane, clock_state c where id = any(${listOf(laneIds)}::bigint[])
      order by id
      -- Transactions that change notifications lock the lanes first. Skipping those keeps them from holding up other lanes.
      for share skip locked
    ), valid as materialized (
      select s.lane_id, s.epoch, s.may_have_arrived, s.shard_id, s.notification_id, s.revision, s.retry_count, s.redelivery_count, s.started_at,
        s.duration_ms, s.outcome, s.status, s.response, s.request_count, s.settled_at, s.position,
        s.next_retry_at + (held.steps_ms - s.steps_ms) * interval '1 ms' as next_retry_at
      from unnest(
        ${numbers(({ lane }) => lane.id)}::bigint[],
        ${numbers(({ lane }) => lane.epoch)}::bigint[],
        ${numbers(({ lane }) => lane.shardId)}::bigint[],
        ${numbers(({ notificationId }) => notificationId)}::bigint[],
        ${numbers(({ revision }) => revision)}::integer[],
        ${numbers(({ retryCount }) => retryCount)}::integer[],
        ${numbers(({ redeliveryCount }) => redeliveryCount)}::integer[],
        ${times(({ startedAt }) => startedAt)}::timestamptz[],
        ${numbers(({ durationMs }) => durationMs)}::integer[],
        ${listOf(settlements.map(({ outcome }) => outcome))}::text[],
        ${numbers(({ status }) => status)}::integer[],
        ${settlements.map(({ response }) => response ?? null)}::text[],
        ${numbers(({ requestCount }) => requestCount ?? 1)}::smallint[],
        ${times(({ nextRetryAt }) => nextRetryAt)}::timestamptz[],
        ${times(({ settledAt }) => settledAt)}::timestamptz[],
        ${settlements.map(({ mayHaveArrived }) => mayHaveArrived)}::boolean[],
        ${numbers(({ stepsMs }) => stepsMs ?? 0)}::bigint[]
      ) with ordinality as s (lane_id, epoch, shard_id, notification_id, revision, retry_count, redelivery_count,
        started_at, duration_ms, outcome, status, response, request_count, next_retry_at, settled_at, may_have_arrived, steps_ms, position)
      join held on held.id = s.lane_id and held.epoch = s.epoch
    )`;
}

/** `last_success` is at most this old, so that not every statement writes it. */
const SUCCESS_STEP = sql`interval '1 second'`;

// A row whose watched address moved during an attempt can have two outcomes. The 2xx counts, in either order.
const outcomes = sql`(
        select distinct on (shard_id, notification_id, revision, redelivery_count) * from valid
        order by shard_id, notification_id, revision, redelivery_count, next_retry_at is not null, retry_count desc
      ) as s`;

/** Whether outcome `s` still counts for the row `n` of `queue` or `ended`. */
const counts = sql`n.shard_id = s.shard_id and n.id = s.notification_id and n.revision = s.revision
  and n.redelivery_count = s.redelivery_count and (s.next_retry_at is null or n.retry_count = s.retry_count)`;

/**
 * CTE `updated`: the outcomes that count for rows `n` of `queue` that match the condition. A success deletes the row; one that
 * its attempt alone doesn't describe moves to `ended`. A failure schedules the next attempt.
 */
function settleQueued(fits: Sql): Sql {
  // A lease between the first that could send the row and this one may have sent it and crashed without a record.
  const isSeen = sql`n.may_be_seen or s.may_have_arrived or s.epoch > n.unsent_epoch + 1`;
  return sql`
    succeeded as (
      delete from queue n using ${outcomes}
      where s.next_retry_at is null and ${fits} and ${counts}
      returning s.*, 'processed' as state, n.watched_address_id, n.sequence is not null as is_ordered, n.created_at, n.sequence,
        n.reorg_id, n.tx_hash, n.retry_count as failures, ${isSeen} as is_seen
    ), failed_once as (
      update queue n set may_be_seen = ${isSeen}, unsent_epoch = s.epoch - 1, retry_count = n.retry_count + 1,
        next_retry_at = s.next_retry_at, due_at = s.next_retry_at
      from ${outcomes}
      where s.next_retry_at is not null and ${fits} and ${counts}
      returning s.*, n.state, n.watched_address_id, false as is_ordered
    ), finished as (
      insert into ended (shard_id, id, created_at, state, ended_at, sequence, retry_count, redelivery_count, revision, reorg_id,
        tx_hash, may_be_seen)
      select shard_id, notification_id, created_at, state, settled_at, sequence, failures, redelivery_count, revision, reorg_id,
        tx_hash, is_seen
      from succeeded
      where failures > 0 or redelivery_count > 0 or revision > 0 or sequence is not null or reorg_id is not null
    ), noted as (
      update last_success set at = latest.at from (select max(settled_at) as at from succeeded) as latest
      where last_success.only_row in (
        select only_row from last_success l
        where l.at is null or l.at < (select max(settled_at) from succeeded) - ${SUCCESS_STEP} for update skip locked)
        and latest.at is not null
    ), updated as (
      select ${updatedColumns} from succeeded union all select ${updatedColumns} from failed_once
    )`;
}

const updatedColumns = sql`lane_id, shard_id, notification_id, revision, started_at, duration_ms, outcome, status, response,
  request_count, settled_at, position, next_retry_at, state, watched_address_id, is_ordered`;

/**
 * Updates the rows `n` of `ended` that were withdrawn or cancelled during the attempt. Leaves out those for which a removal
 * notice must be sent.
 */
const settleEnded = sql`
      update ended n set
        state = case when s.next_retry_at is null then 'processed' else n.state end,
        ended_at = case when s.next_retry_at is null then s.settled_at else n.ended_at end,
        may_be_seen = n.may_be_seen or s.may_have_arrived,
        retry_count = n.retry_count + case when s.next_retry_at is null then 0 else 1 end,
        next_retry_at = s.next_retry_at
      from ${outcomes}
      where n.state in ('withdrawn', 'cancelled') and ${counts}
        and not (n.state = 'withdrawn' and ${isTransferMessage} and s.may_have_arrived and coalesce((
          select w.removed from notification o
          join watched_address w on w.shard_id = o.shard_id and w.id = o.watched_address_id
          where o.shard_id = n.shard_id and o.id = n.id and o.created_at = n.created_at), false))`;

/** Sends removal notices for transfers that arrived, or may have arrived, after they were withdrawn. */
async function removeArrived(tx: Tx, untouched: readonly Settlement[], now: Date): Promise<void> {
  const settlements = untouched.filter(({ mayHaveArrived }) => mayHaveArrived);
  const ids = listOf(settlements.map(({ notificationId }) => notificationId));
  const shards = listOf(settlements.map(({ lane }) => lane.shardId));
  const arrived = sql`n.state = 'withdrawn' and ${isTransferMessage} and (n.shard_id, n.id) in (
    select * from unnest(${shards}::bigint[], ${ids}::bigint[]))`;
  await advanceSequences(tx, await toRemovalNotices(tx, arrived, now), now);
}
