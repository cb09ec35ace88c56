/**
 * Everything that a database stores, for comparisons.
 */
import type { Db } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';

/** All rows of all tables as text. */
export async function contentOf(db: Db): Promise<Map<string, string[]>> {
  const tables = await db.query<{ name: string }>(sql`
    select relname as name from pg_class
    where relnamespace = current_schema()::regnamespace and relkind in ('r', 'p') and relpersistence = 'p'
      and not relispartition
      and relname not in ('migration', 'process')
    order by relname`);
  const content = new Map<string, string[]>();
  for (const { name } of tables) {
    const rows = await db.query<{ row: string }>({
      text: `select (t.*)::text as row from "${name}" t order by 1`,
      values: [],
    });
    content.set(
      name,
      rows.map(({ row }) => row),
    );
  }
  return content;
}
