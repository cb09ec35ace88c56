/**
 * The parts of the statements that record outcomes (settle.ts).
 */
import { listOf } from '../db/arrays.ts';
import { type Sql, sql } from '../db/sql.ts';
import type { Lane } from './lanes.ts';
import { isTransferMessage } from './message-kind.ts';

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

export const attemptColumns = sql`shard_id, notification_id, lane_id, revision, started_at, duration_ms, outcome, status, response,
  request_count`;

/** Failures are counted in 16 bits, which last for years of retries. */
export const FAILURES_MAX = 2 ** 15 - 1;
/** In the place of the failures before a success, if its message has had another one: only a processed message is redelivered. */
export const LATER_SUCCESS = -1;
/** Failures before a success that settled row `n`. */
export const failuresBefore = sql`
  case when n.redelivery_count = 0 then least(n.retry_count, ${FAILURES_MAX}::integer) else ${LATER_SUCCESS}::integer end`;

/**
 * CTE `valid`: the outcomes of lanes that are still leased under the same epoch and that no other transaction has locked. They
 * stay leased until this transaction ends.
 */
export function validOf(settlements: readonly Settlement[]): Sql {
  const numbers = (of: (settlement: Settlement) => number | undefined) =>
    listOf(settlements.map((settlement) => of(settlement) ?? 'null'));
  const times = (of: (settlement: Settlement) => Date | undefined) =>
    listOf(settlements.map((settlement) => of(settlement)?.toISOString() ?? 'null'));
  const laneIds = [...new Set(settlements.map(({ lane }) => lane.id))];
  return sql`
    held as materialized (
      select id, epoch, c.steps_ms from lane, clock_state c where id = any(${listOf(laneIds)}::bigint[])
      order by id
      -- Transactions that change notifications lock the lanes first. Skipping those keeps them from holding up other lanes. A key share
      -- excludes them, but neither renewals of the lease nor the probe of writes, which a busy lane's settlements would keep out for long.
      -- It may return the version before a renewal. So transactions that change an epoch or the steps first lock their row (for update).
      for key share skip locked
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
export const SUCCESS_STEP_MS = 1_000;
const SUCCESS_STEP = sql`interval '1 second'`;
/**
 * It is further ahead of a success only if the clock was set back. No outcome is recorded this late, and one from before a step that is
 * recorded after it may set the time ahead.
 */
export const AHEAD_MS = 3_600_000;
const AHEAD = sql`interval '1 hour'`;

// A row whose watched address moved during an attempt can have two outcomes. The 2xx counts, in either order.
export const outcomesOf = (valid: Sql): Sql => sql`(
        select distinct on (shard_id, notification_id, revision, redelivery_count) * from ${valid}
        order by shard_id, notification_id, revision, redelivery_count, next_retry_at is not null, retry_count desc
      ) as s`;
const outcomes = outcomesOf(sql`valid`);

/** Whether outcome `s` still counts for the row `n` of `queue` or `ended`. */
const counts = sql`n.shard_id = s.shard_id and n.id = s.notification_id and n.revision = s.revision
  and n.redelivery_count = s.redelivery_count and (s.next_retry_at is null or n.retry_count = s.retry_count)`;

// A lease between the first that could send the row and this one may have sent it and crashed without a record.
const isSeen = sql`n.may_be_seen or s.may_have_arrived or s.epoch > n.unsent_epoch + 1`;

/** Deletes the rows `n` of `queue` that match the condition and for which one of the outcomes `s` is a 2xx that counts. */
export const settleSuccesses = (of: Sql, fits: Sql): Sql => sql`
      delete from queue n using ${of}
      where s.next_retry_at is null and ${fits} and ${counts}`;
export const successColumns = sql`'processed' as state, n.watched_address_id, n.sequence is not null as is_ordered, n.created_at,
        n.sequence, n.reorg_id, n.tx_hash, n.retry_count as failures, ${isSeen} as is_seen`;

/** Schedules the next attempt of the others. */
export const settleFailures = (of: Sql, fits: Sql): Sql => sql`
      update queue n set may_be_seen = ${isSeen}, unsent_epoch = s.epoch - 1, retry_count = n.retry_count + 1,
        next_retry_at = s.next_retry_at, due_at = s.next_retry_at
      from ${of}
      where s.next_retry_at is not null and ${fits} and ${counts}`;

/** Keeps what the attempts alone don't describe. */
export const endSucceeded = (succeeded: Sql): Sql => sql`
      insert into ended (shard_id, id, created_at, state, ended_at, sequence, retry_count, redelivery_count, revision, reorg_id,
        tx_hash, may_be_seen)
      select shard_id, notification_id, created_at, state, settled_at, sequence, failures, redelivery_count, revision, reorg_id,
        tx_hash, is_seen
      from ${succeeded} as s
      where failures > 0 or redelivery_count > 0 or revision > 0 or sequence is not null or reorg_id is not null`;

/** `latest` has the time of a success as `at`. */
export const noteSuccess = (latest: Sql): Sql => sql`
      update last_success set at = latest.at from ${latest} as latest
      where last_success.only_row in (
        select only_row from last_success l
        where l.at is null or l.at < (select at from ${latest} as newest) - ${SUCCESS_STEP}
          or l.at > (select at from ${latest} as newest) + ${AHEAD} for update skip locked)
        and latest.at is not null`;

/**
 * CTE `updated`: the outcomes that count for rows `n` of `queue` that match the condition. A success deletes the row; one that
 * its attempt alone doesn't describe moves to `ended`. A failure schedules the next attempt.
 */
export function settleQueued(fits: Sql): Sql {
  return sql`
    succeeded as (
      ${settleSuccesses(outcomes, fits)}
      returning s.*, ${successColumns}, ${failuresBefore} as known_failures
    ), failed_once as (
      ${settleFailures(outcomes, fits)}
      returning s.*, n.state, n.watched_address_id, false as is_ordered
    ), finished as (${endSucceeded(sql`succeeded`)}), noted as (
      ${noteSuccess(sql`(select max(settled_at) as at from succeeded)`)}
    ), updated as (
      select ${updatedColumns}, known_failures as failures from succeeded union all select ${updatedColumns}, null from failed_once
    )`;
}

const updatedColumns = sql`lane_id, shard_id, notification_id, revision, started_at, duration_ms, outcome, status, response,
  request_count, settled_at, position, next_retry_at, state, watched_address_id, is_ordered`;

/**
 * Updates the rows `n` of `ended` that were withdrawn or cancelled during the attempt. Leaves out those for which a removal
 * notice must be sent. `shardId`: a constant, without which Citus would visit every shard.
 */
export const settleEnded = (of: Sql, shardId = sql`n.shard_id`): Sql => sql`
      update ended n set
        state = case when s.next_retry_at is null then 'processed' else n.state end,
        ended_at = case when s.next_retry_at is null then s.settled_at else n.ended_at end,
        may_be_seen = n.may_be_seen or s.may_have_arrived,
        retry_count = n.retry_count + case when s.next_retry_at is null then 0 else 1 end,
        next_retry_at = s.next_retry_at
      from ${of}
      where n.state in ('withdrawn', 'cancelled') and ${counts}
        and not (n.state = 'withdrawn' and ${isTransferMessage} and s.may_have_arrived and coalesce((
          select w.removed from notification o
          join watched_address w on w.shard_id = ${shardId} and w.id = o.watched_address_id
          where o.shard_id = ${shardId} and o.id = n.id and o.created_at = n.created_at), false))`;
