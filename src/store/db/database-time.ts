/**
 * Reads the database's clock.
 */
import type { Db } from './db.ts';
import { sql } from './sql.ts';

export async function readTime(db: Db): Promise<Date> {
  const [row] = await db.query<{ now: Date }>(sql`select clock_timestamp() as now`);
  if (row === undefined) throw new Error('the statement returned no row');
  return row.now;
}
