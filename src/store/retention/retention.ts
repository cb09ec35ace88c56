/**
 * Removes what is old, in small steps. Unprocessed notifications are never touched.
 */
import type { Clock } from '../../core/clock.ts';
import type { Step } from '../../core/loop.ts';
import type { Database, Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { pruneObservations } from '../prices/price-rounds.ts';
import { ANSWER_RETENTION_MS, pruneAnswers } from '../watchers/idempotency.ts';

/** Rows of one step: a delete of this size takes milliseconds. */
const STEP_ROWS = 1_000;
/** Stored responses are up to a thousand times as large. */
const STEP_ANSWERS = 100;

/**
 * The step that deletes attempts, stored responses, observations of prices, and notifications that are done with (processed, withdrawn,
 * cancelled), beyond their retention. Attempts go by their age alone: what is still tried is tried every hour, so its newest ones are there.
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
 * Deletes up to `limit` attempts that are older than `before`; returns how many. By their places: by their keys a
 * table of 100,000 rows was read whole. A row that changes meanwhile has another place then, and stays.
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
 * Deletes up to `limit` notifications that were withdrawn or cancelled. Their age is that of the attempt that was not
 * made: at most an hour after the cancelling, and for a withdrawn one the time of its making.
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
