/**
 * Steps of the clock that all processes share. When it is set forward or back, the schedule moves with it, so that every
 * retry still comes after its interval.
 */
import type { Clock } from '../../core/clock.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { LANE_CHANNEL } from '../delivery/lanes.ts';

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

/** A step is seen within a second, and `keys revoke` ends a key a second before its present. */
const REVOKED_SECONDS = 5;

type StepSeen = {
  /** The steps that this process had followed. */
  stepsMs: number;
  /** How far the clock has moved for this process since then, and the time after that. */
  measure(tx: Tx): Promise<{ movedMs: number; now(): Date }>;
  leaseMs: number;
  prunePauseMs: number;
};

/**
 * Moves every scheduled attempt by a step of the clock; undefined when another process has followed one meanwhile.
 * `repairSchedule` must come after: it bounds what a process that measures wrongly (on a virtual machine that was paused)
 * can delay.
 */
export async function followStep(database: Database, seen: StepSeen): Promise<ClockState | undefined> {
  return database.transaction(async (tx) => {
    // Lanes first and in the order of their ids, as settling locks them: an outcome that is settled before is moved
    // with the others, one that is settled after finds the new sum.
    await tx.query(sql`select count(*) from (select id from lane order by id for update) as locked`);
    await tx.query(sql`select from clock_state for update`);
    // Under the lock, so that no other process follows a later step in between.
    const { movedMs, now } = await seen.measure(tx);
    if ((await readClockState(tx)).stepsMs !== seen.stepsMs) return undefined;
    const stepMs = Math.round(movedMs);
    await tx.query(sql`
      update notification set
        next_attempt_at = next_attempt_at + ${stepMs}::bigint * interval '1 ms',
        next_retry_at = next_retry_at + ${stepMs}::bigint * interval '1 ms'
      where state in ('held', 'waiting')`);
    await moveTerms(tx, stepMs, now());
    // Their owners live: no other process may take the lanes before it has seen otherwise.
    await tx.query(sql`
      update lane set lease_until = ${new Date(now().getTime() + seen.leaseMs)} where owner is not null`);
    // Just before the commit: others compare the steps with their clocks between two looks at this row.
    const at = now();
    const pruneFrom = new Date(at.getTime() + seen.prunePauseMs);
    await tx.query(sql`
      update clock_state set steps_ms = steps_ms + ${stepMs}::bigint, last_step_ms = ${stepMs}::bigint,
        last_step_at = ${at}, prune_from = ${pruneFrom}`);
    return readClockState(tx);
  });
}

/**
 * Moves rows that are valid for a time after they were written. Otherwise a step forward would end overlaps of keys and do
 * a repeated request twice, and a step back would let revoked keys in again. A key that was revoked at the new time
 * already, before this step was seen, stays revoked: an end so close to the present is not moved forward.
 */
async function moveTerms(tx: Tx, stepMs: number, now: Date): Promise<void> {
  await tx.query(sql`
    update api_key set revoked_at = revoked_at + ${stepMs}::bigint * interval '1 ms'
    where revoked_at is not null and (
      ${stepMs}::bigint < 0 or abs(extract(epoch from revoked_at - ${now}::timestamptz)) > ${REVOKED_SECONDS})`);
  await tx.query(sql`
    update signing_secret set ends_at = ends_at + ${stepMs}::bigint * interval '1 ms' where ends_at is not null`);
  await tx.query(sql`
    update idempotent_answer set created_at = created_at + ${stepMs}::bigint * interval '1 ms'`);
}

/**
 * Brings back rows that are further ahead than the schedule allows: written by a process that had not yet followed a step
 * back, or before one that no process saw. Every waiting lane is checked again. False, and nothing is changed, while
 * this process has not followed all steps: its present would bring everything back too far.
 */
export async function repairSchedule(
  database: Database,
  { clock, leaseMs, retryMinutes }: { clock: Clock; leaseMs: number; retryMinutes: readonly number[] },
): Promise<boolean> {
  return database.transaction(async (tx) => {
    // Not before the transaction has its connection: what others schedule meanwhile is not too far ahead.
    const [now, stepsMs] = [clock.now(), clock.stepsMs()];
    const leaseUntil = new Date(now.getTime() + leaseMs);
    // In the order in which a step locks them; no process follows another step meanwhile.
    await tx.query(sql`
      select count(*) from (
        select id from lane where next_due > ${now} or lease_until > ${leaseUntil} order by id for update
      ) as locked`);
    const [state] = await tx.query<{ steps_ms: number }>(sql`select steps_ms from clock_state for share`);
    if (state?.steps_ms !== stepsMs) return false;
    await tx.query(sql`
      update lane set
        next_due = least(next_due, case when next_due is not null then ${now}::timestamptz end),
        lease_until = least(lease_until, case when owner is not null then ${leaseUntil}::timestamptz end)
      where next_due > ${now} or lease_until > ${leaseUntil}`);
    await tx.query(sql`
      update watcher_queue set next_due = ${now} where watcher_id in (
        select watcher_id from watcher_queue where next_due > ${now} order by watcher_id for update)`);
    const latest = latestOf(now, retryMinutes);
    await tx.query(sql`
      update notification n set
        next_attempt_at = ${latest},
        next_retry_at = case when next_retry_at is not null then ${latest} end
      where state = 'waiting' and next_attempt_at > ${now} and next_attempt_at > ${latest}`);
    await tx.query(sql`select pg_notify(${LANE_CHANNEL}, '*')`);
    return true;
  });
}

/** The latest time at which notification `n` may be due: an interval from now after a failure, else now. */
function latestOf(now: Date, retryMinutes: readonly number[]): Sql {
  return sql`(${now}::timestamptz + case when n.retry_count = 0 then interval '0' else
    (${listOf(retryMinutes)}::double precision[])[least(n.retry_count, ${retryMinutes.length}::integer)] * interval '1 minute'
  end)`;
}
