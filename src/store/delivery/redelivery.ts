/**
 * Redelivery on a watcher's request: the same rows with the same ids, on a new schedule.
 */
import { listOf } from '../db/arrays.ts';
import type { Database, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { shardOf, wakeLanes } from './lanes.ts';
import { findMatches, type LogFilter } from './log.ts';
import { isRemovalNotice } from './message-kind.ts';

/** Rows of one transaction. Outcomes of their lanes wait for it, some tens of milliseconds. */
const STEP_ROWS = 1_000;

type RedeliveryCursor = {
  /** When the whole redelivery began. A repeated step doesn't redeliver what was processed after this time. */
  startedAt: Date;
  /** The last id of the previous step. */
  after: number | undefined;
};

/**
 * One step through the notifications that match the filter, oldest first. Processed ones start over with a first attempt,
 * waiting ones become due now, all others stay as they are. Returns how many it changed, and the id after which to continue,
 * undefined at the end. Repeating a step changes nothing twice.
 */
export async function redeliverStep(
  database: Database,
  watcherId: number,
  filter: LogFilter,
  { startedAt, after, now }: RedeliveryCursor & { now: Date },
): Promise<{ count: number; next: number | undefined }> {
  return database.transaction(async (tx) => {
    const page = { order: 'oldest first', after, limit: STEP_ROWS } as const;
    const { ids, next } = await findMatches(tx, watcherId, filter, page);
    return { count: await redeliver(tx, { watcherId, ids, startedAt, now }), next };
  });
}

/** Redelivers one notification. False if there was nothing to change. */
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
 * Moves each notification to the current lane of its watched address. Skips notifications whose watched address is deleted,
 * because there is no URL to send them to. Locks lanes before rows, as `settle` does, so that the two can't deadlock.
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
 * A waiting row that is already due is left alone, so an attempt under way is not made twice. An orphaned transfer is not sent
 * again, only its removal notice.
 */
function isWanted({ startedAt, now }: Wanted): Sql {
  // Rows processed in the future were processed before the clock was set back: common-clock.ts keeps processes within 4 s.
  return sql`(n.reorg_id is null or ${isRemovalNotice}) and (n.state = 'processed' and (n.processed_at <= ${startedAt ?? 'infinity'}::timestamptz
      or n.processed_at > ${now}::timestamptz + interval '5 seconds')
    or n.state = 'waiting' and n.next_attempt_at > ${now})`;
}
