/**
 * How many notifications of each watcher wait for an attempt.
 */
import type { Db } from './db.ts';
import { shardOf } from './lanes.ts';
import { type Sql, sql } from './sql.ts';

/** Some ten milliseconds. */
export const PENDING_COUNTED_MAX = 100_000;
/** Enough to act on; the operator is not told of more at a time. */
const WATCHERS_MAX = 100;

// Each part has an index that holds nothing else.
const parts = (part: (attempts: Sql) => Sql): Sql =>
  sql`(${part(sql`state = 'waiting' and retry_count = 0`)}) union all (${part(sql`state = 'waiting' and retry_count > 0`)})`;

/** Of one watcher; PENDING_COUNTED_MAX + 1 when there are more than PENDING_COUNTED_MAX. */
export async function countPending(db: Db, watcherId: number): Promise<number> {
  const [row] = await db.query<{ count: number }>(sql`
    select count(*) as count from (${parts(
      (waiting) => sql`
        select from notification where shard_id = ${shardOf(watcherId)} and ${waiting}
        limit ${PENDING_COUNTED_MAX + 1}`,
    )} limit ${PENDING_COUNTED_MAX + 1}) as pending`);
  return row?.count ?? 0;
}

/** The watchers with more than that, those with the most first. */
export async function listPendingAbove(
  db: Db,
  limit: number,
): Promise<{ watcherId: number; pending: number }[]> {
  const rows = await db.query<{ watcher_id: number; pending: number }>(sql`
    select watcher_id, count(*) as pending
    from (${parts((waiting) => sql`select watcher_id from notification where ${waiting}`)}) as pending
    group by watcher_id having count(*) > ${limit}
    order by pending desc, watcher_id limit ${WATCHERS_MAX}`);
  return rows.map(({ watcher_id: watcherId, pending }) => ({ watcherId, pending }));
}
