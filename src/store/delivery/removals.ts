/**
 * Removal notices, for watched addresses with `removed`. A removal notice is the next revision of the notification's
 * row. So each transfer has one row with its current message, which is attempted until a 2xx.
 */
import type { Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { wakeLanes } from './lanes.ts';
import { removalSequence } from './message-kind.ts';
import type { OrderedRecord } from './sequence.ts';

/**
 * Turns the notifications `n` that match the condition into removal notices if their watched addresses have `removed` on. In
 * strict order the newest is sent first, and all of them before the new branch. Returns the affected watched addresses in
 * strict order: pass them to `advanceSequences` once everything that was orphaned together has been handled.
 */
export async function toRemovalNotices(tx: Tx, condition: Sql, now: Date): Promise<OrderedRecord[]> {
  const wanted = sql`watched_address w
    where w.shard_id = n.shard_id and w.id = n.watched_address_id and w.removed and (${condition})`;
  // Lock lanes before rows, as a worker that settles does. The opposite order would deadlock.
  await tx.query(sql`
    select from lane where id in (select w.lane_id from notification n, ${wanted}) order by id for update`);
  const rows = await tx.query<{ shard_id: number; lane_id: number; ordered_id: string | null }>(sql`
    update notification n set
      revision = n.revision + 1,
      state = case when n.sequence is null then 'waiting' else 'held' end,
      release_number = null,
      sequence = ${removalSequence},
      lane_id = w.lane_id,
      retry_count = 0,
      next_retry_at = null,
      next_attempt_at = ${now},
      processed_at = null,
      may_be_seen = true
    from ${wanted}
    returning n.shard_id, n.lane_id, case when n.sequence is not null then n.watched_address_id end as ordered_id`);
  await wakeLanes(tx, [...new Set(rows.map(({ lane_id }) => lane_id))], now, 'reorg');
  return rows.flatMap(({ shard_id: shardId, ordered_id: id }) => (id === null ? [] : [{ shardId, id }]));
}
