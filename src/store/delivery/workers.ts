/**
 * The delivery workers as the database sees them: each running one holds an advisory lock under its number.
 */
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

/** Advisory lock space of delivery workers; the key is the worker's number. The lock ends when its worker does. */
export const WORKER_LOCK_SPACE = 0x6362_0003;

const isWorkerLock = sql`
  locktype = 'advisory' and classid = ${WORKER_LOCK_SPACE} and granted
    and database = (select oid from pg_database where datname = current_database())`;

/** The numbers of the running workers. */
export const runningWorkers = sql`select objid::bigint from pg_locks where ${isWorkerLock}`;

/** How many workers are running, and how many lanes all of them and this one have leased, in one snapshot. */
export async function countWorkers(
  db: Db,
  owner: number,
): Promise<{ workers: number; lanes: number; own: number }> {
  const [counts] = await db.query<{ workers: number; lanes: number; own: number }>(sql`
    select (select count(distinct pid) from pg_locks where ${isWorkerLock}) as workers, count(*) as lanes,
      count(*) filter (where owner = ${owner}) as own
    from lane where owner is not null`);
  return counts ?? { workers: 0, lanes: 0, own: 0 };
}
