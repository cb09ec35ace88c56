/**
 * Reads what decides whether notifications will be delivered, from the snapshot of a comparison.
 */
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { tableOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { runningWorkers } from '../delivery/workers.ts';
import type { RecordKey } from './comparison.ts';

/** The fields of a lane that decide whether its notifications are sent. */
export type StoredLane = {
  id: number;
  shardId: number;
  origin: string;
  nextDue: Date | undefined;
  /** Whether a running worker has it, or its lease has not ended. */
  isLeased: boolean;
};

/** The lanes with these ids. A replica doesn't show the locks of running workers, so `primary` is asked for them if it is given. */
export async function listLanesById(
  db: Db,
  ids: readonly number[],
  { now, primary }: { now: Date; primary?: Db | undefined },
): Promise<StoredLane[]> {
  const running = primary === undefined ? runningWorkers : await readRunningWorkers(primary);
  const rows = await db.query<{
    id: number;
    shard_id: number;
    origin: string;
    next_due: Date | null;
    is_leased: boolean;
  }>(sql`
    select id, shard_id, origin, next_due,
      owner is not null and (lease_until > ${now} or owner in (${running})) as is_leased
    from lane where id = any(${listOf(ids)}::bigint[])
    order by id limit ${ids.length}`);
  return rows.map((row) => ({
    id: row.id,
    shardId: row.shard_id,
    origin: row.origin,
    nextDue: row.next_due ?? undefined,
    isLeased: row.is_leased,
  }));
}

async function readRunningWorkers(primary: Db): Promise<Sql> {
  const rows = await primary.query<{ owner: number }>(
    sql`select owner from (${runningWorkers}) as w (owner)`,
  );
  return sql`select unnest(${listOf(rows.map(({ owner }) => owner))}::bigint[])`;
}

/** For each of these watched addresses, the first notification of its sequence: the waiting one, otherwise the first held one. */
export async function listFirstInSequence(
  db: Db,
  records: readonly RecordKey[],
): Promise<Map<string, number>> {
  const shardIds = records.map(({ shardId }) => shardId);
  const queued = await tableOf(db, 'queue', {
    alias: 'q',
    where: sql`q.shard_id = any(${listOf(shardIds)}::bigint[]) and q.sequence is not null
      and q.watched_address_id = any(${listOf(records.map((one) => one.watchedAddressId))}::uuid[])`,
  });
  const rows = await db.query<{ record_id: string; id: number }>(sql`
    select r.id as record_id, first.id
    from unnest(
      ${listOf(records.map(({ shardId }) => shardId))}::bigint[],
      ${listOf(records.map(({ watchedAddressId }) => watchedAddressId))}::uuid[]
    ) as r (shard_id, id)
    cross join lateral (
      select o.id from ${queued} o
      where o.shard_id = r.shard_id and o.watched_address_id = r.id and o.sequence is not null
      order by o.state desc, o.sequence limit 1
    ) as first
    order by r.id limit ${records.length}`);
  return new Map(rows.map(({ record_id, id }) => [record_id, id]));
}
