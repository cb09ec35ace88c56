/**
 * Notices that the database may have lost its last commits: after a fail-over to an asynchronous standby, or from a base backup.
 */
import type { Database } from '../db/db.ts';
import { sqlStateOf } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { lockCommits } from './blocks.ts';

/**
 * How far ids move ahead. More than the notifications of the lost commits, of which receivers know the ids. A fail-over that lost nothing
 * skips as many, and 2,000 of them fit into 31 bits.
 */
const IDS_AHEAD = 1_000_000;

/**
 * Compares the timeline of PostgreSQL's write-ahead log with the one noted last. A promoted standby and a restored base backup begin
 * another one. Then ids of notifications move ahead, because those of lost commits may have been sent, and receivers ignore an id that
 * they have seen. Returns the id after which new ones follow, or undefined if the timeline is the same.
 */
export async function noteTimeline(database: Database): Promise<number | undefined> {
  const timeline = await readTimeline(database);
  if (timeline === undefined) return undefined;
  return database.transaction(async (tx) => {
    await lockCommits(tx);
    const [chain] = await tx.query<{ timeline: string | null }>(sql`select timeline from chain`);
    if (chain === undefined || chain.timeline === timeline) return undefined;
    await tx.query(sql`update chain set timeline = ${timeline}`);
    if (chain.timeline === null) return undefined;
    const [moved] = await tx.query<{ id: number }>(
      sql`select setval('notification_id_seq', last_value + ${IDS_AHEAD}) as id from notification_id_seq`,
    );
    return moved?.id;
  });
}

/** Not supported, not permitted, or no such function: some hosted servers hide their write-ahead log. */
const HIDDEN = new Set(['0A000', '42501', '42883']);

async function readTimeline(database: Database): Promise<string | undefined> {
  // It has no standby.
  if (database.kind === 'embedded') return undefined;
  try {
    const [row] = await database.query<{ timeline: string }>(
      sql`select left(pg_walfile_name(pg_current_wal_lsn()), 8) as timeline`,
    );
    return row?.timeline;
  } catch (error) {
    if (HIDDEN.has(sqlStateOf(error))) return undefined;
    throw error;
  }
}
