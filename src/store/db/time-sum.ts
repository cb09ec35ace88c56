import { type Sql, sql } from './sql.ts';

/** A time plus an interval. `timestamptz + interval` depends on the session's time zone, so Citus refuses it in updates. */
export const timeSum = (time: Sql, interval: Sql): Sql =>
  sql`((${time} at time zone 'UTC' + ${interval}) at time zone 'UTC')`;
