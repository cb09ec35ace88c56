/**
 * Records the outcomes of delivery attempts. Spec 3 and 6.2.
 */
import { listOf } from '../db/arrays.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { unlessLocked } from '../db/skip-locked.ts';
import { type Sql, sql } from '../db/sql.ts';
import type { Lane } from './lanes.ts';
import { isTransferMessage } from './message-kind.ts';
import { noteFailures } from './receivers.ts';
import { toRemovalNotices } from './removals.ts';
import { advanceSequences } from './sequence.ts';

/** What became of one attempt. */
export type Settlement = {
  lane: Lane;
  notificationId: number;
  /** The revision that was sent: the outcome settles no other. */
  revision: number;
  /** Whether the request may have reached the receiver. */
  mayHaveArrived: boolean;
  /** The failures before this attempt: another attempt's failure is not counted over it. */
  retryCount: number;
  /** The delivery that it belongs to: a row that was asked for again meanwhile is not touched. */
  redeliveryCount: number;
  startedAt: Date;
  durationMs: number;
  /** 1 unless given. */
  requestCount?: number;
  outcome: string;
  status: number | undefined;
  /** The beginning of the answer, free of keys. */
  response: string | undefined;
  /** When to try again; undefined after a 2xx. */
  nextRetryAt: Date | undefined;
  settledAt: Date;
  /** The steps of the clock that these times contain; a later step moves `nextRetryAt` with the schedule. */
  stepsMs?: number;
};

/**
 * Records attempts: the log row of each, and `processed` or the next retry. Only for lanes that are still held under
 * the same epoch. Returns what was not recorded, whose rows stay untouched: 'lost' where the lane is another worker's, and
 * 'locked' where another transaction has locked something of that watcher, so that it has to be settled again.
 *
 * The lanes are locked in shared mode, so that a takeover waits for these results and never sends what is being settled.
 * One group may hold outcomes of a lane's former lease beside those of the present one. A row that was withdrawn or
 * cancelled while its attempt was in flight, or is held since its transaction was mined again: a 2xx makes it processed;
 * a failure leaves its state. Where the record wants `removed`, an attempt that may have arrived turns a withdrawn row
 * into a removal notice.
 */
export async function settle(
  database: Database,
  settlements: readonly Settlement[],
): Promise<Map<Settlement, 'lost' | 'locked'>> {
  // One statement for nearly all of them, without a transaction's further round trips; what it leaves is looked at closely.
  const left = await settleOrdinary(database, settlements);
  const unrecorded = await settleClosely(database, left);
  if (unrecorded !== undefined) return unrecorded;
  // One of the watchers has something locked: it must not hold up the others.
  const found = new Map<Settlement, 'lost' | 'locked'>();
  for (const own of Map.groupBy(left, ({ lane }) => lane.watcherId).values()) {
    const ofWatcher = await settleClosely(database, own);
    for (const one of own) {
      const result = ofWatcher === undefined ? 'locked' : ofWatcher.get(one);
      if (result !== undefined) found.set(one, result);
    }
  }
  return found;
}

/** Settles any; undefined, and nothing is recorded, when it would wait for the lock of another transaction. */
async function settleClosely(
  database: Database,
  settlements: readonly Settlement[],
): Promise<Map<Settlement, 'lost' | 'locked'> | undefined> {
  const [first] = settlements;
  if (first === undefined) return new Map();
  return unlessLocked(database, async (tx) => {
    const recorded = await record(tx, settlements);
    const untouched = recorded.filter(({ isUpdated }) => !isUpdated).map(({ settlement }) => settlement);
    if (untouched.length > 0) await takeBackTold(tx, untouched, first.settledAt);
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

/** Of the lanes; without their locks. */
async function readEpochs(tx: Tx, settlements: readonly Settlement[]): Promise<Map<number, number>> {
  if (settlements.length === 0) return new Map();
  const ids = [...new Set(settlements.map(({ lane }) => lane.id))];
  const rows = await tx.query<{ id: number; epoch: number }>(sql`
    select id, epoch from lane where id = any(${listOf(ids)}::bigint[]) order by id limit ${ids.length}`);
  return new Map(rows.map(({ id, epoch }) => [id, epoch]));
}

/** Settles those whose row is as it was when it was read, and for which no other waits; returns the others. */
async function settleOrdinary(db: Db, settlements: readonly Settlement[]): Promise<Settlement[]> {
  const rows = await db.query<{ position: number }>(sql`
    with ${validOf(settlements)}, updated as (
      ${updateFrom(sql`n.sequence is null`)}
      returning s.*, n.state
    ), logged as (
      insert into delivery_attempt (${attemptColumns}) select ${attemptColumns} from updated order by position
    )${failuresOf(settlements)}
    select position from updated order by position`);
  const settled = new Set(rows.map(({ position }) => position - 1));
  return settlements.filter((_, index) => !settled.has(index));
}

/** `orderedId` is the record, in strict order, of which the next notification may go now. */
type Recorded = { settlement: Settlement; isUpdated: boolean; orderedId: string | null };

/** Those of lanes that are held: their log rows, and their notifications where the outcome still counts. */
async function record(tx: Tx, settlements: readonly Settlement[]): Promise<Recorded[]> {
  const rows = await tx.query<{ position: number; is_updated: boolean; ordered_id: string | null }>(sql`
    with ${validOf(settlements)}, updated as (
      ${updateFrom(sql`true`)}
      returning s.*, n.state, n.id,
        case when n.sequence is not null and n.state = 'processed' then n.watched_address_id end as ordered_id
    ), logged as (
      insert into delivery_attempt (${attemptColumns})
      select ${attemptColumns} from valid v
      -- A commit whose answer was lost is made again.
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

/** Nothing where all succeeded, so that those cost nothing. */
const failuresOf = (settlements: readonly Settlement[]) =>
  settlements.some(({ nextRetryAt }) => nextRetryAt !== undefined)
    ? sql`, failed as (${noteFailures})`
    : sql``;

const attemptColumns = sql`shard_id, notification_id, revision, started_at, duration_ms, outcome, status, response,
  request_count`;

/** `valid`: the outcomes of lanes that are held, which stay so to the end of the transaction, and not locked by another one. */
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
      -- Transactions that change notifications lock their lanes before: what is locked there holds up no other lane.
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

/** The notifications `n` whose outcome `s` still counts, and which fit. */
function updateFrom(fits: Sql): Sql {
  return sql`
      update notification n set
        state = case when s.next_retry_at is null then 'processed' else n.state end,
        -- Leases between the first one that could send it and this one may have sent it without a trace.
        may_be_seen = n.may_be_seen or s.may_have_arrived or s.epoch > n.unsent_epoch + 1,
        unsent_epoch = s.epoch - 1,
        processed_at = case when s.next_retry_at is null then s.settled_at end,
        retry_count = n.retry_count + case when s.next_retry_at is null then 0 else 1 end,
        next_retry_at = s.next_retry_at,
        next_attempt_at = coalesce(s.next_retry_at, n.next_attempt_at)
      -- Of two outcomes of one row, whose record moved while it was in flight, the 2xx counts, whichever came first.
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

/** Reports what arrived, or may have arrived, after it was withdrawn. */
async function takeBackTold(tx: Tx, untouched: readonly Settlement[], now: Date): Promise<void> {
  const settlements = untouched.filter(({ mayHaveArrived }) => mayHaveArrived);
  const ids = listOf(settlements.map(({ notificationId }) => notificationId));
  const shards = listOf(settlements.map(({ lane }) => lane.shardId));
  const told = sql`n.state = 'withdrawn' and ${isTransferMessage} and (n.shard_id, n.id) in (
    select * from unnest(${shards}::bigint[], ${ids}::bigint[]))`;
  await advanceSequences(tx, await toRemovalNotices(tx, told, now), now);
}
