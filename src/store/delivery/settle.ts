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
    with ${validOf(settlements)}, updated as (
      ${updateFrom(sql`n.sequence is null`)}
      returning s.*, n.state
    ), logged as (
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
  const rows = await tx.query<{ position: number; is_updated: boolean; ordered_id: string | null }>(sql`
    with ${validOf(settlements)}, updated as (
      ${updateFrom(sql`true`)}
      returning s.*, n.state, n.id,
        case when n.sequence is not null and n.state = 'processed' then n.watched_address_id end as ordered_id
    ), logged as (
      insert into delivery_attempt (${attemptColumns})
      select ${attemptColumns} from valid v
      -- The worker repeats a commit whose answer was lost.
      where not exists (
        select from delivery_attempt a
        where a.shard_id = v.shard_id and a.notification_id = v.notification_id and a.started_at = v.started_at)
      order by position
    )${failuresOf(settlements)}
    select v.position, u.id is not null as is_updated, u.ordered_id
    from valid v left join updated u on u.shard_id = v.shard_id and u.id = v.notification_id
    order by v.position`);
  return rows.flatMap((row) => {
    const settlement = settlements[row.position - 1];
    return settlement === undefined
      ? []
      : [{ settlement, isUpdated: row.is_updated, orderedId: row.ordered_id }];
  });
}

/** The CTE that records failing receivers, left out when all attempts succeeded, which is the usual case. */
const failuresOf = (settlements: readonly Settlement[]) =>
  settlements.some(({ nextRetryAt }) => nextRetryAt !== undefined)
    ? sql`, failed as (${recordFailures})`
    : sql``;

const attemptColumns = sql`shard_id, notification_id, revision, started_at, duration_ms, outcome, status, response,
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

/** Updates the notifications `n` whose outcome `s` still counts and which match the condition `fits`. */
function updateFrom(fits: Sql): Sql {
  return sql`
      update notification n set
        state = case when s.next_retry_at is null then 'processed' else n.state end,
        -- A lease between the first that could send the row and this one may have sent it and crashed without a record.
        may_be_seen = n.may_be_seen or s.may_have_arrived or s.epoch > n.unsent_epoch + 1,
        unsent_epoch = s.epoch - 1,
        processed_at = case when s.next_retry_at is null then s.settled_at end,
        retry_count = n.retry_count + case when s.next_retry_at is null then 0 else 1 end,
        next_retry_at = s.next_retry_at,
        next_attempt_at = coalesce(s.next_retry_at, n.next_attempt_at)
      -- A row whose watched address moved during an attempt can have two outcomes. The 2xx counts, in either order.
      from (
        select distinct on (shard_id, notification_id, revision, redelivery_count) * from valid
        order by shard_id, notification_id, revision, redelivery_count, next_retry_at is not null, retry_count desc
      ) as s
      where n.shard_id = s.shard_id and n.id = s.notification_id and ${fits}
        and n.state in ('waiting', 'held', 'withdrawn', 'cancelled') and n.revision = s.revision
        and n.redelivery_count = s.redelivery_count and (s.next_retry_at is null or n.retry_count = s.retry_count)
        and not (n.state = 'withdrawn' and ${isTransferMessage} and s.may_have_arrived and coalesce((
          select w.removed from watched_address w where w.shard_id = n.shard_id and w.id = n.watched_address_id), false))`;
}

/** Sends removal notices for transfers that arrived, or may have arrived, after they were withdrawn. */
async function removeArrived(tx: Tx, untouched: readonly Settlement[], now: Date): Promise<void> {
  const settlements = untouched.filter(({ mayHaveArrived }) => mayHaveArrived);
  const ids = listOf(settlements.map(({ notificationId }) => notificationId));
  const shards = listOf(settlements.map(({ lane }) => lane.shardId));
  const arrived = sql`n.state = 'withdrawn' and ${isTransferMessage} and (n.shard_id, n.id) in (
    select * from unnest(${shards}::bigint[], ${ids}::bigint[]))`;
  await advanceSequences(tx, await toRemovalNotices(tx, arrived, now), now);
}
