import { type Sql, sql } from './sql.ts';

/** A time plus an interval. `timestamptz + interval` depends on the session's time zone, so Citus refuses it in updates. */
export const timeSum = (time: Sql, interval: Sql): Sql =>
  sql`((${time} at time zone 'UTC' + ${interval}) at time zone 'UTC')`;

/** When a row is updated: now, but always after its last update at `last`. */
export const updateTime = (last: Sql, now: Date): Sql =>
  sql`greatest(${now}::timestamptz, ${timeSum(last, sql`interval '1 millisecond'`)})`;

/** The same if the update changes something, which null doesn't; else the time of the last update. */
export const updateTimeIf = (isChange: Sql, last: Sql, now: Date): Sql =>
  sql`case when ${isChange} then ${updateTime(last, now)} else ${last} end`;
