/**
 * How far retention has deleted. The configuration doesn't show that: a retention may have been shorter before, and the clock ahead.
 */
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

type PruneKind = 'notification' | 'swap' | 'pair_state';
/** Rows from before these times may be missing. A kind of which nothing was deleted has none. */
type PruneMarks = ReadonlyMap<PruneKind, Date>;

/** Marks are whole minutes, so that a step that repeats writes one only each minute. */
const STEP_MS = 60_000;

/** Notes that rows from before this time will be deleted. Call it in an earlier transaction than the deletion. */
export async function raisePruneMark(db: Db, kind: PruneKind, before: Date): Promise<void> {
  const mark = new Date(Math.ceil(before.getTime() / STEP_MS) * STEP_MS);
  await db.query(sql`
    insert into prune_mark as m (kind, before) select ${kind}, ${mark}
    where not exists (select from prune_mark where kind = ${kind} and before >= ${mark})
    on conflict (kind) do update set before = greatest(m.before, excluded.before)`);
}

export async function readPruneMarks(db: Db): Promise<PruneMarks> {
  const rows = await db.query<{ kind: PruneKind; before: Date }>(
    sql`select kind, before from prune_mark order by kind limit 10`,
  );
  return new Map(rows.map(({ kind, before }) => [kind, before]));
}
