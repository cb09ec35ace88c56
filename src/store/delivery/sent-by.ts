/**
 * By when a row must be due for a worker to have sent it.
 */
import { type Sql, sql } from '../db/sql.ts';

/** The clocks of workers and followers differ by less than this, so a row due within it may have been sent. */
const CLOCK_DIFFERENCE = sql`interval '1 second'`;

/** When the newest clock step was, or null. */
export const lastStepAt = sql`(select last_step_at from clock_state)`;

/**
 * A worker may have sent what is due by this time. One that has not followed the last clock step yet may use the time before it, so
 * the time of that step counts too.
 */
export const sentBy = (now: Date, stepAt = lastStepAt): Sql =>
  sql`greatest(${now}::timestamptz, ${stepAt}) + ${CLOCK_DIFFERENCE}`;
