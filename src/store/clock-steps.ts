/**
 * Steps of the clock that all processes share. When it is set forward or back, the schedule moves with it, so that every
 * retry still comes after its interval.
 */
import { listOf } from './arrays.ts';
import type { Database, Db } from './db.ts';
import { LANE_CHANNEL } from './lanes.ts';
import { type Sql, sql } from './sql.ts';

export type ClockState = {
  /** All steps that the schedule has followed, added up. */
  stepsMs: number;
  /** The newest of them; undefined before the first. */
  last: { ms: number; at: Date } | undefined;
  /** Nothing is pruned before. */
  pruneFrom: Date | undefined;
};

type StateRow = {
  steps_ms: number;
  last_step_ms: number | null;
  last_step_at: Date | null;
  prune_from: Date | null;
};

export async function readClockState(db: Db): Promise<ClockState> {
  const [row] = await db.query<StateRow>(
    sql`select steps_ms, last_step_ms, last_step_at, prune_from from clock_state`,
  );
  if (row === undefined) throw new Error('clock_state has no row');
  const { last_step_ms: ms, last_step_at: at } = row;
  return {
    stepsMs: row.steps_ms,
    last: ms === null || at === null ? undefined : { ms, at },
    pruneFrom: row.prune_from ?? undefined,
  };
}

export type StepSeen = {
  /** How far this process saw the clock step, over and above `stepsMs`. */
  movedMs: number;
  /** The steps that this process had followed. */
  stepsMs: number;
  /** A smaller remainder is what two processes measure differently. */
  stepMsMin: number;
  /** After the step. */
  now: Date;
  leaseUntil: Date;
  pruneFrom: Date;
};

/**
 * Moves every scheduled attempt by the part of a step that no other process has followed; returns that part in
 * milliseconds, 0 when there is none. `repairSchedule` must follow: it bounds what a process that measures wrongly (on a
 * virtual machine that was paused) can delay.
 */
export async function followStep(database: Database, seen: StepSeen): Promise<number> {
  const { now, leaseUntil, pruneFrom } = seen;
  return database.transaction(async (tx) => {
    // Lanes first and in the order of their ids, as settling locks them: an outcome that is settled before is moved
    // with the others, one that is settled after finds the new sum.
    await tx.query(sql`select count(*) from (select id from lane order by id for update) as locked`);
    const [state] = await tx.query<{ steps_ms: number }>(sql`select steps_ms from clock_state for update`);
    if (state === undefined) throw new Error('clock_state has no row');
    const stepMs = Math.round(seen.movedMs - (state.steps_ms - seen.stepsMs));
    if (Math.abs(stepMs) < seen.stepMsMin) return 0;
    await tx.query(sql`
      update notification set
        next_attempt_at = next_attempt_at + ${stepMs}::bigint * interval '1 ms',
        next_retry_at = next_retry_at + ${stepMs}::bigint * interval '1 ms'
      where state = 'waiting'`);
    // Their owners live: no other process may take the lanes before it has seen otherwise.
    await tx.query(sql`update lane set lease_until = ${leaseUntil} where owner is not null`);
    await tx.query(sql`
      update clock_state set steps_ms = steps_ms + ${stepMs}::bigint, last_step_ms = ${stepMs}::bigint,
        last_step_at = ${now}, prune_from = ${pruneFrom}`);
    return stepMs;
  });
}

/**
 * Brings back what lies further ahead than the schedule allows: written by a process that had not yet followed a step
 * back, or before one that no process saw. Every lane that waits is looked at again.
 */
export async function repairSchedule(
  database: Database,
  { now, leaseUntil, retryMinutes }: { now: Date; leaseUntil: Date; retryMinutes: readonly number[] },
): Promise<void> {
  await database.transaction(async (tx) => {
    await tx.query(sql`
      update lane set
        next_due = least(next_due, case when next_due is not null then ${now}::timestamptz end),
        lease_until = least(lease_until, case when owner is not null then ${leaseUntil}::timestamptz end)
      where id in (
        select id from lane where next_due > ${now} or lease_until > ${leaseUntil} order by id for update)`);
    const latest = latestOf(now, retryMinutes);
    await tx.query(sql`
      update notification n set
        next_attempt_at = ${latest},
        next_retry_at = case when next_retry_at is not null then ${latest} end
      where state = 'waiting' and next_attempt_at > ${now} and next_attempt_at > ${latest}`);
    await tx.query(sql`select pg_notify(${LANE_CHANNEL}, '*')`);
  });
}

/** The latest time at which notification `n` may be due: an interval from now after a failure, else now. */
function latestOf(now: Date, retryMinutes: readonly number[]): Sql {
  return sql`(${now}::timestamptz + case when n.retry_count = 0 then interval '0' else
    (${listOf(retryMinutes)}::double precision[])[least(n.retry_count, ${retryMinutes.length}::integer)] * interval '1 minute'
  end)`;
}
