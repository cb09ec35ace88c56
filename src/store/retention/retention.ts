/**
 * Deletes old data in small steps. Notifications that still wait are never deleted.
 */
import type { Clock } from '../../core/clock.ts';
import type { Step } from '../../core/loop.ts';
import type { Database, Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { pruneObservations } from '../prices/price-rounds.ts';
import { ANSWER_RETENTION_MS, pruneAnswers } from '../watchers/idempotency.ts';

/** Rows that one step deletes per table. A delete of this size takes milliseconds. */
const STEP_ROWS = 1_000;
/** Stored responses are up to a thousand times as large as other rows. */
const STEP_ANSWERS = 100;

/**
 * A step that deletes attempts, stored responses, price observations, and finished notifications (processed, withdrawn,
 * cancelled) after their retention. Attempts are deleted by age alone, because a notification that is still retried has an
 * attempt every hour, so its newest attempts are there.
 */
export function createPruner(options: {
  database: Database;
  clock: Clock;
  attemptsMs: number;
  notificationsMs: number;
  observationsMs: number;
}): Step {
  const { database, clock, attemptsMs, notificationsMs, observationsMs } = options;
  return async () => {
    const now = clock.now().getTime();
    const attempts = await pruneAttempts(database, new Date(now - attemptsMs), STEP_ROWS);
    const before = new Date(now - notificationsMs);
    const processed = await pruneProcessed(database, before, STEP_ROWS);
    const ended = await pruneEnded(database, before, STEP_ROWS);
    const answers = await pruneAnswers(database, new Date(now - ANSWER_RETENTION_MS), STEP_ANSWERS);
    const observations = await pruneObservations(database, new Date(now - observationsMs), STEP_ROWS);
    const isMore = [attempts, processed, ended, observations].includes(STEP_ROWS) || answers === STEP_ANSWERS;
    return isMore ? 'worked' : 'idle';
  };
}

/**
 * Deletes up to `limit` attempts from before `before`, and returns their number. It deletes by ctid, because a delete by key read
 * a whole table of 100,000 rows. A row that changes meanwhile gets another ctid and stays.
 */
async function pruneAttempts(db: Db, before: Date, limit: number): Promise<number> {
  const rows = await db.query(sql`
    delete from delivery_attempt where ctid = any(array(
      select ctid from delivery_attempt where started_at < ${before} order by started_at limit ${limit}))
    returning id`);
  return rows.length;
}

/** Deletes up to `limit` notifications that were processed before `before`. */
async function pruneProcessed(db: Db, before: Date, limit: number): Promise<number> {
  const rows = await db.query(sql`
    delete from notification where ctid = any(array(
      select ctid from notification where state = 'processed' and processed_at < ${before}
      order by processed_at limit ${limit}))
    returning id`);
  return rows.length;
}

/**
 * Deletes up to `limit` notifications that were withdrawn or cancelled. Their age counts from the attempt that was not made: at
 * most an hour after a cancellation, and the creation time for a withdrawn one.
 */
async function pruneEnded(db: Db, before: Date, limit: number): Promise<number> {
  const rows = await db.query(sql`
    delete from notification where ctid = any(array(
      select ctid from notification
      where state in ('withdrawn', 'cancelled') and next_attempt_at < ${before}
      order by next_attempt_at limit ${limit}))
    returning id`);
  return rows.length;
}
