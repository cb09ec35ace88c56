/**
 * Removes what is old, in small steps. Unprocessed notifications are never touched.
 */
import type { Clock } from '../core/clock.ts';
import type { Step } from '../core/loop.ts';
import type { Database } from './db.ts';
import { pruneAttempts, pruneProcessed } from './outbox.ts';

/** Rows of one step: a delete of this size takes milliseconds. */
const STEP_ROWS = 1_000;

/** The step that deletes attempts and processed notifications beyond their retention. */
export function createPruner(options: {
  database: Database;
  clock: Clock;
  attemptsMs: number;
  notificationsMs: number;
}): Step {
  const { database, clock, attemptsMs, notificationsMs } = options;
  return async () => {
    const now = clock.now().getTime();
    const attempts = await pruneAttempts(database, new Date(now - attemptsMs), STEP_ROWS);
    const notifications = await pruneProcessed(database, new Date(now - notificationsMs), STEP_ROWS);
    return attempts === STEP_ROWS || notifications === STEP_ROWS ? 'worked' : 'idle';
  };
}
