/**
 * Steps of the clock that all processes share. When that clock is set forward or back, the schedule moves with it, so that every
 * retry still follows after its interval.
 */
import type { Database, Db, Tx } from '../db/db.ts';
import { requireAnswers } from '../db/lost-shards.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { timeSum } from '../db/time-sum.ts';

export type ClockState = {
  /** Sum of all steps that the schedule has followed. */
  stepsMs: number;
  /** The newest of them; undefined before the first. */
  last: ClockStep | undefined;
  /** The newest one after which nothing is pruned before `pruneFrom`. */
  pausing: (ClockStep & { pruneFrom: Date }) | undefined;
};

type ClockStep = { ms: number; at: Date };

type StateRow = {
  steps_ms: number;
  last_step_ms: number | null;
  last_step_at: Date | null;
  prune_from: Date | null;
  pausing_step_ms: number | null;
  pausing_step_at: Date | null;
};

export async function readClockState(db: Db): Promise<ClockState> {
  const [row] = await db.query<StateRow>(
    sql`select steps_ms, last_step_ms, last_step_at, prune_from, pausing_step_ms, pausing_step_at from clock_state`,
  );
  if (row === undefined) throw new Error('clock_state has no row');
  const last = toStep(row.last_step_ms, row.last_step_at);
  const pausing = toStep(row.pausing_step_ms, row.pausing_step_at);
  const { steps_ms: stepsMs, prune_from: pruneFrom } = row;
  return { stepsMs, last, pausing: pausing && pruneFrom !== null ? { ...pausing, pruneFrom } : undefined };
}

const toStep = (ms: number | null, at: Date | null): ClockStep | undefined =>
  ms === null || at === null ? undefined : { ms, at };

/** Rows that one statement moves: 20 s on two cores, a sixth of the time after which a client gives up. */
const MOVED_ROWS_MAX = 500_000;

type NoticedStep = {
  /** The steps that this process had followed. */
  stepsMs: number;
  /** How far the clock has moved since then as seen by this process, and the time after the step; undefined if it was no step. */
  measure(tx: Tx): Promise<{ movedMs: number; now(): Date } | undefined>;
  leaseMs: number;
  /** How long nothing is pruned after a step of at least `pausingStepMs`. */
  prunePauseMs: number;
  pausingStepMs: number;
  rowsMax?: number;
};

/**
 * Moves every scheduled attempt by a step of the clock, with its lane and the visits of its watcher. Undefined if there was none, or
 * another process has followed one meanwhile. Call `repairSchedule` afterwards: it bounds the delay that a wrong measurement can cause, for
 * example on a virtual machine that was paused.
 */
export async function followStep(database: Database, seen: NoticedStep): Promise<ClockState | undefined> {
  await requireAnswers(database, 'all', 'a step of the clock');
  return database.transaction(async (tx) => {
    // Lock lanes first and by id, as `settle` does. An outcome that is settled before moves with the schedule, and one that
    // is settled after uses the new sum of steps.
    await tx.query(sql`select count(*) from (select id from lane order by id for update) as locked`);
    await tx.query(sql`select from clock_state for update`);
    // Measure under the lock, so that no other process follows a later step in between.
    const measured = await seen.measure(tx);
    const before = await readClockState(tx);
    if (measured === undefined || before.stepsMs !== seen.stepsMs) return undefined;
    const { movedMs, now } = measured;
    const stepMs = Math.round(movedMs);
    const step = sql`${stepMs}::bigint * interval '1 ms'`;
    const rowsMax = seen.rowsMax ?? MOVED_ROWS_MAX;
    const moved = sql`due_at = ${timeSum(sql`due_at`, step)}, next_retry_at = ${timeSum(sql`next_retry_at`, step)}`;
    await updateInParts(tx, { table: 'queue', set: moved, key: sql`id`, rowsMax });
    await moveTerms(tx, stepMs, now());
    // In the future, it would hide an outage until that time has come.
    await tx.query(sql`update last_success set at = ${now()} where at > ${now()}`);
    const created = sql`created_at = ${timeSum(sql`created_at`, step)}`;
    await updateInParts(tx, { table: 'idempotent_answer', set: created, key: sql`hashtext(key)`, rowsMax });
    // Renew all leases. A process may take lanes only after it has seen that their owner is gone.
    await tx.query(sql`
      update lane set
        next_due = next_due + ${step},
        lease_until = case when owner is not null then ${new Date(now().getTime() + seen.leaseMs)}::timestamptz end
      where next_due is not null or owner is not null`);
    // Visits are locked after lanes, and by id, as in `wakeLanes`.
    await tx.query(sql`
      select count(*) from (select watcher_id from watcher_queue order by watcher_id for update) as locked`);
    await tx.query(sql`update watcher_queue set next_due = next_due + ${step} where next_due is not null`);
    // Read the time just before the commit, because other processes compare the steps with their clocks between two reads of
    // this row.
    const at = now();
    const pausing = pauseAfter(before, { ms: stepMs, at }, seen);
    await tx.query(sql`
      update clock_state set steps_ms = steps_ms + ${stepMs}::bigint, last_step_ms = ${stepMs}::bigint, last_step_at = ${at},
        prune_from = ${pausing?.pruneFrom ?? null}, pausing_step_ms = ${pausing?.ms ?? null}::bigint,
        pausing_step_at = ${pausing?.at ?? null}`);
    return readClockState(tx);
  });
}

/**
 * How long nothing is pruned after this step. A step that is shorter than a pause doesn't prolong one that has begun: a virtual machine
 * that is suspended each night would never prune. A longer one always begins a pause, because it could delete the most.
 */
function pauseAfter(
  { pausing }: ClockState,
  step: ClockStep,
  { pausingStepMs, prunePauseMs }: NoticedStep,
): ClockState['pausing'] {
  if (Math.abs(step.ms) < pausingStepMs) return pausing;
  const begun = pausing && { ...step, pruneFrom: new Date(pausing.pruneFrom.getTime() + step.ms) };
  if (begun !== undefined && begun.pruneFrom > step.at && Math.abs(step.ms) < prunePauseMs) return begun;
  return { ...step, pruneFrom: new Date(step.at.getTime() + prunePauseMs) };
}

/**
 * Moves rows that are valid for a period after they were written. Otherwise a step forward would end key overlaps early and
 * repeat work for a repeated request, and a step back would prolong both. A revocation counts at any time, but isn't left in the future, where
 * it would be read as an overlap. The backfill of a pair goes on to 24 hours before the new time. One that is complete stays as it was, because it says which blocks were read.
 */
async function moveTerms(tx: Tx, stepMs: number, now: Date): Promise<void> {
  await tx.query(sql`
    update api_key set revoked_at = revoked_at + ${stepMs}::bigint * interval '1 ms',
      expires_at = expires_at + ${stepMs}::bigint * interval '1 ms'
    where revoked_at = expires_at`);
  await tx.query(sql`
    update api_key set revoked_at = ${now} where revoked_at > ${now} and revoked_at is distinct from expires_at`);
  await tx.query(sql`
    update signing_secret set ends_at = ends_at + ${stepMs}::bigint * interval '1 ms' where ends_at is not null`);
  await tx.query(sql`
    update pair set backfill_until = backfill_until + ${stepMs}::bigint * interval '1 ms' where backfill_number is not null`);
}

/**
 * Updates all rows of a table with statements of about `rowsMax` rows each. A single one of millions of rows takes longer than a client
 * waits for its answer, so that the step would begin again and again. `key` divides the rows, and never changes.
 */
async function updateInParts(
  tx: Tx,
  { table, set, key, rowsMax }: { table: 'queue' | 'idempotent_answer'; set: Sql; key: Sql; rowsMax: number },
): Promise<void> {
  const [found] = await tx.query<{ rows: number }>(sql`select count(*) as rows from ${raw(table)}`);
  const parts = Math.max(1, Math.ceil((found?.rows ?? 0) / rowsMax));
  for (let part = 0; part < parts; part += 1)
    await tx.query(sql`
      update ${raw(table)} set ${set} where abs(mod(${key}, ${parts}::integer)) = ${part}::integer`);
}
