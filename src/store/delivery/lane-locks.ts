/**
 * Locks lanes for transactions that change notifications. Lock them before rows, as a worker that settles does. The opposite order
 * would deadlock.
 */
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { readJson, recordsOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';

/** A relation with the lanes that the statement selects, for `unsentEpoch`: a table, or on Citus their rows. */
export async function lanesWithEpochs(tx: Tx, select: Sql): Promise<Sql> {
  if (tx.isDistributed !== true) return sql`lane`;
  const rows = await tx.query<{ lane_id: number | null }>(select);
  const ids = listOf(rows.flatMap((row) => row.lane_id ?? []));
  const columns = 'id bigint, owner integer, epoch bigint';
  return recordsOf(
    await readJson(tx, sql`select id, owner, epoch from lane where id = any(${ids}::bigint[])`),
    columns,
  );
}

/** Locks these lanes, in the order of their ids. */
export async function lockLanes(tx: Tx, laneIds: readonly number[]): Promise<void> {
  if (laneIds.length === 0) return;
  await tx.query(sql`
    select from lane where id = any(${listOf([...new Set(laneIds)])}::bigint[]) order by id for update`);
}

/** Locks the lanes whose ids the statement selects. */
export async function lockLanesIn(tx: Tx, select: Sql): Promise<void> {
  if (tx.isDistributed !== true) {
    await tx.query(sql`select from lane where id in (${select}) order by id for update`);
    return;
  }
  const rows = await tx.query<{ lane_id: number | null }>(select);
  await lockLanes(
    tx,
    rows.flatMap((row) => row.lane_id ?? []),
  );
}
