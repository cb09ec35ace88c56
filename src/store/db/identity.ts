/**
 * Tells databases apart. One that is dropped and created again is another one.
 */
import { createHash } from 'node:crypto';
import type { Db } from './db.ts';
import { sql } from './sql.ts';

/** The name of a migrated database, and when it was created. */
export async function identityOf(db: Db): Promise<string> {
  const [row] = await db.query<{ name: string; created: string }>(sql`
    select current_database() as name, to_char(applied_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') as created
    from migration order by id limit 1`);
  return `${JSON.stringify(row?.name)}, created at ${row?.created}`;
}

/** The same as a short text that names nothing, for clients. */
export async function publicIdentityOf(db: Db): Promise<string> {
  return createHash('sha256')
    .update(await identityOf(db))
    .digest('hex')
    .slice(0, 16);
}
