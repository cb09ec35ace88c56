/**
 * What waits for receivers: the sums of their delivery queues, one for each slice of the watcher.
 */
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { rowsOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { PENDING_MAX } from './receivers.ts';
import { isOfLanes, shardsOfWatcher } from './shards.ts';

export type ReceiverQueue = {
  /** Notifications that wait for an attempt or a retry; PENDING_MAX + 1 when there are more than PENDING_MAX. */
  waiting: number;
  /** Since when the oldest of them waits: a first attempt since it was due, a retry since it was created. */
  oldestWaitingAt: Date | undefined;
  /** Whether a worker has leased one of the queues. */
  isLeased: boolean;
};

/** The queues of these receivers, in their order. */
export async function readReceiverQueues(
  db: Db,
  receivers: readonly { watcherId: number; origin: string }[],
): Promise<ReceiverQueue[]> {
  const lanes = sql`
    unnest(
      ${listOf(receivers.map(({ watcherId }) => watcherId))}::bigint[], ${receivers.map(({ origin }) => origin)}::text[]
    ) with ordinality as r (watcher_id, origin, position)
    join watcher w on w.id = r.watcher_id
    cross join lateral unnest(${shardsOfWatcher}) as s (id)
    join lane l on l.shard_id = s.id and l.origin = r.origin`;
  const waiting = (attempts: Sql) => sql`queue n
      where n.shard_id = l.shard_id and n.lane_id = l.id and n.state = 'waiting' and ${attempts}`;
  const [firsts, retries] = [waiting(sql`n.retry_count = 0`), waiting(sql`n.retry_count > 0`)];
  const count = (from: Sql) =>
    sql`(select count(*) from (select from ${from} limit ${PENDING_MAX + 1}) as counted)`;
  type Row = { position: number; waiting: number; oldest_at: Date | null; is_leased: boolean };
  const rows =
    db.isDistributed === true
      ? await db.query<Row>(sql`
    select r.position, least(coalesce(sum(q.waiting), 0), ${PENDING_MAX + 1})::bigint as waiting, min(q.oldest_at) as oldest_at,
      bool_or(l.owner is not null) as is_leased
    from ${lanes} left join ${await countInShards(db, lanes)} as q on q.lane_id = l.id
    group by r.position order by r.position limit ${receivers.length}`)
      : await db.query<Row>(sql`
    select r.position, least(sum(${count(firsts)} + ${count(retries)}), ${PENDING_MAX + 1})::bigint as waiting,
      min(least(
        (select n.due_at from ${firsts} order by n.due_at limit 1),
        (select n.created_at from ${retries} order by n.id limit 1))) as oldest_at,
      bool_or(l.owner is not null) as is_leased
    from ${lanes}
    group by r.position order by r.position limit ${receivers.length}`);
  const byPosition = new Map(rows.map((row) => [row.position, row]));
  return receivers.map((_, index) => {
    const row = byPosition.get(index + 1);
    return {
      waiting: row?.waiting ?? 0,
      oldestWaitingAt: row?.oldest_at ?? undefined,
      isLeased: row?.is_leased ?? false,
    };
  });
}

/** On Citus: what waits in lanes `l`, counted in their shards. */
async function countInShards(db: Db, lanes: Sql): Promise<Sql> {
  const rows = await db.query<{ id: number; shard_id: number }>(
    sql`select l.id, l.shard_id from ${lanes} order by l.id`,
  );
  return rowsOf(
    db,
    sql`
      select lane_id, count(*) as waiting, min(case when retry_count = 0 then due_at else created_at end) as oldest_at
      from queue where ${isOfLanes(rows)} and state = 'waiting'
      group by lane_id`,
    'lane_id bigint, waiting bigint, oldest_at timestamptz',
  );
}
