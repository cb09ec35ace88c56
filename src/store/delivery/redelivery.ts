/**
 * Delivering again what a watcher asks for: the same rows under the same ids, on a schedule of their own.
 */
import { listOf } from '../db/arrays.ts';
import type { Database, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { shardOf, wakeLanes } from './lanes.ts';
import { findMatches, type LogFilter } from './log.ts';
import { isRemovalNotice } from './message-kind.ts';

/** Rows of one transaction, which holds up outcomes of their lanes meanwhile: some tens of milliseconds. */
const STEP_ROWS = 1_000;

type RedeliveryCursor = {
  /** When the whole redelivery began: what was processed later is not delivered once more by a repeated step. */
  startedAt: Date;
  /** The last id of the step before. */
  after: number | undefined;
};

/**
 * One step through the filter's notifications, oldest first: processed ones wait again from their first attempt on,
 * waiting ones become due at once, all others stay as they are. Returns how many it changed, and the id to go on
 * after, undefined at the end. A step that is repeated changes nothing twice.
 */
export async function redeliverStep(
  database: Database,
  watcherId: number,
  filter: LogFilter,
  { startedAt, after, now }: RedeliveryCursor & { now: Date },
): Promise<{ count: number; next: number | undefined }> {
  return database.transaction(async (tx) => {
    const place = { order: 'oldest first', after, limit: STEP_ROWS } as const;
    const { ids, next } = await findMatches(tx, watcherId, filter, place);
    return { count: await redeliver(tx, { watcherId, ids, startedAt, now }), next };
  });
}

/** Delivers one notification again; false when there was nothing to change. */
export async function redeliverOne(
  database: Database,
  watcherId: number,
  id: number,
  now: Date,
): Promise<boolean> {
  return database.transaction(async (tx) => {
    const count = await redeliver(tx, { watcherId, ids: [id], startedAt: undefined, now });
    return count > 0;
  });
}

type Wanted = { watcherId: number; ids: readonly number[]; startedAt: Date | undefined; now: Date };

/**
 * To the lane that the record has now; without its record a notification has nowhere to go. Lanes before rows, as
 * settling does, so that neither waits for the other's locks.
 */
async function redeliver(tx: Tx, wanted: Wanted): Promise<number> {
  const { watcherId, ids, now } = wanted;
  const found = await tx.query<{ id: number; lane_id: number }>(sql`
    select n.id, w.lane_id
    from notification n join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id
    where n.shard_id = ${shardOf(watcherId)} and n.id = any(${listOf(ids)}::bigint[]) and ${isWanted(wanted)}
    order by n.id
    limit ${ids.length}`);
  await wakeLanes(tx, [...new Set(found.map((row) => row.lane_id))], now);
  const changed = await tx.query(sql`
    update notification n set
      state = 'waiting',
      lane_id = t.lane_id,
      may_be_seen = n.may_be_seen or n.lane_id <> t.lane_id,
      retry_count = case n.state when 'waiting' then n.retry_count else 0 end,
      redelivery_count = n.redelivery_count + case n.state when 'waiting' then 0 else 1 end,
      next_retry_at = case when n.next_retry_at is not null then ${now}::timestamptz end,
      next_attempt_at = ${now},
      processed_at = null
    from unnest(
      ${listOf(found.map((row) => row.id))}::bigint[],
      ${listOf(found.map((row) => row.lane_id))}::bigint[]
    ) as t (id, lane_id)
    where n.shard_id = ${shardOf(watcherId)} and n.id = t.id and ${isWanted(wanted)}
    returning n.id`);
  return changed.length;
}

/**
 * An attempt under way finds its waiting row due already: it is not among these, and not made twice. A transfer that a
 * reorg has orphaned is not sent again, only its removal notice.
 */
function isWanted({ startedAt, now }: Wanted): Sql {
  // Rows processed in the future were processed before the clock was set back: common-clock.ts keeps processes within 4 s.
  return sql`(n.reorg_id is null or ${isRemovalNotice}) and (n.state = 'processed' and (n.processed_at <= ${startedAt ?? 'infinity'}::timestamptz
      or n.processed_at > ${now}::timestamptz + interval '5 seconds')
    or n.state = 'waiting' and n.next_attempt_at > ${now})`;
}
