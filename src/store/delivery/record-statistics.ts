/**
 * Delivery statistics of one watched address.
 */
import type { NotificationState } from '../../domain/delivery-status.ts';
import { shardOfRecord } from '../../domain/shard.ts';
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

type RecordStatistics = {
  counts: Record<NotificationState, number>;
  /** False if the watched address has more than COUNTED_MAX notifications. All figures then cover only the newest of them. */
  isComplete: boolean;
  oldestDueAt: Date | undefined;
  lastSuccessAt: Date | undefined;
  lastFailureAt: Date | undefined;
};

/** Bounds the query to a few tenths of a second, however many notifications a watched address has. */
const COUNTED_MAX = 100_000;

/** The newest of these gives the time of the last success: finding the time of each takes an index probe. */
const SUCCESSES_MAX = 1_000;

/**
 * Of notifications with failures, those that are retried last give the time of the last failure. Each may have an attempt for every hour of
 * the retention. A newer failure with an earlier retry may be missing if more of them wait.
 */
const FAILURES_MAX = 100;

/** Statistics over the newest notifications of the watched address. */
export async function recordStatistics(
  db: Db,
  watcherId: number,
  recordId: string,
  now: Date,
): Promise<RecordStatistics> {
  const shardId = shardOfRecord(watcherId, recordId);
  const [row] = await db.query<
    Record<NotificationState, number> & {
      counted: number;
      oldest_due_at: Date | null;
      last_success_at: Date | null;
      last_failure_at: Date | null;
    }
  >(sql`
    with counted as materialized (
      select id, created_at, state, next_attempt_at, next_retry_at, retry_count, redelivery_count, revision from notification_status
      where shard_id = ${shardId} and watched_address_id = ${recordId}
      order by id desc
      limit ${COUNTED_MAX + 1}
    )
    select count(*) as counted,
      count(*) filter (where state = 'held') as held,
      count(*) filter (where state = 'waiting') as waiting,
      count(*) filter (where state = 'processed') as processed,
      count(*) filter (where state = 'withdrawn') as withdrawn,
      count(*) filter (where state = 'cancelled') as cancelled,
      min(next_attempt_at) filter (where state = 'waiting' and next_attempt_at <= ${now}) as oldest_due_at,
      (select max(case when e.id is null then a.ended_at else e.ended_at end) from (
        select id, created_at from counted where state = 'processed' order by id desc limit ${SUCCESSES_MAX}
      ) as c
      left join ended e on e.shard_id = ${shardId} and e.id = c.id
      left join lateral (
        select max(started_at + duration_ms * interval '1 ms') as ended_at from (
          select * from delivery_attempt
          where shard_id = ${shardId} and notification_id = c.id and started_at >= c.created_at - interval '1 day' offset 0
        ) as own where outcome = 'success' and e.id is null
      ) as a on true
      ) as last_success_at,
      (select max(started_at) from (
        select id, created_at from counted where retry_count > 0 or redelivery_count > 0 or revision > 0
        order by next_retry_at desc nulls last, id desc limit ${FAILURES_MAX}
      ) as c
      cross join lateral (
        select * from delivery_attempt
        where shard_id = ${shardId} and notification_id = c.id and started_at >= c.created_at - interval '1 day' offset 0
      ) as a where outcome <> 'success') as last_failure_at
    from counted`);
  if (row === undefined) throw new Error('the statement returned no row');
  const { held, waiting, processed, withdrawn, cancelled } = row;
  return {
    counts: { held, waiting, processed, withdrawn, cancelled },
    isComplete: row.counted <= COUNTED_MAX,
    oldestDueAt: row.oldest_due_at ?? undefined,
    lastSuccessAt: row.last_success_at ?? undefined,
    lastFailureAt: row.last_failure_at ?? undefined,
  };
}
