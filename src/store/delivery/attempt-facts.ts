/**
 * What attempts add to the statistics (count-deliveries.ts): their notifications, and whether they delivered a message.
 */
import { bucketBoundsMs } from '../../domain/time-buckets.ts';
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { rowsOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';

/** A notification is recent if it was created at most this long before the first attempt of a batch. */
const RECENT_MS = 3_600_000;
const DAY_MS = 86_400_000;

/**
 * Attempts with ids above `after` up to `upTo`, of which the first started at `first` and the last at `last`. `middle` is the
 * middle one of the ids of their notifications. `late` are the windows that some of them may belong to.
 */
type Span = {
  after: number;
  upTo: number;
  first: Date;
  last: Date | undefined;
  middle: number;
  attemptsMs: number;
};

/** When the first and the last of the attempts started, and the middle one of their notifications. */
export async function findBounds(
  tx: Tx,
  { after, upTo }: { after: number; upTo: number },
): Promise<{ first: Date | undefined; last: Date | undefined; middle: number }> {
  const [row] = await tx.query<{ first: Date | null; last: Date | null; middle: number | null }>(sql`
    select min(started_at) as first, max(started_at) as last,
      percentile_disc(0.5) within group (order by notification_id) as middle
    from delivery_attempt where id > ${after} and id <= ${upTo}`);
  return { first: row?.first ?? undefined, last: row?.last ?? undefined, middle: row?.middle ?? 0 };
}

/** A row for each attempt, with its hour and time buckets. */
export async function factsOf(tx: Tx, span: Span): Promise<Sql> {
  return tx.isDistributed === true
    ? sql`select * from ${await rowsOf(tx, factsInShards(span), FACT_COLUMNS)} as f`
    : factsInOrder(span);
}

/** The bucket of a whole number of milliseconds. */
const bucketOf = (ms: Sql): Sql =>
  sql`width_bucket(${ms}::bigint, ${listOf(bucketBoundsMs.map((bound) => bound + 1))}::bigint[])`;

/** Times without the arithmetic of exact decimals, which takes several times as long. */
const millisecondsOf = (interval: Sql): Sql => sql`round(date_part('epoch', ${interval}) * 1000)::bigint`;

/** Whether attempt `p` is an earlier one of the message of attempt `a`. */
const isEarlier = sql`
  p.shard_id = a.shard_id and p.notification_id = a.notification_id and p.revision = a.revision and p.id < a.id`;
/** Whether row `e` of `ended` or `queue` is of the message of attempt `a`, and that was redelivered. */
const isRedelivered = sql`
  e.shard_id = a.shard_id and e.id = a.notification_id and e.revision = a.revision and e.redelivery_count > 0`;
const isPastRetention = (attemptsMs: number): Sql =>
  sql`a.started_at > a.created_at + ${attemptsMs}::bigint * interval '1 ms'`;

/**
 * What each attempt adds. A message is delivered by its first success. A success knows whether it is that, and how many attempts
 * failed before it (settle-sql.ts), unless its row in `queue` had gone before. Then it looks for earlier attempts. Long after its
 * notification, without an earlier success, it is that of a redelivery if retention has deleted the earlier attempts.
 */
function factsInOrder(span: Span): Sql {
  const { after, upTo, attemptsMs } = span;
  const facts = (from: Sql, { isDelivered, failures }: { isDelivered: Sql; failures: Sql }) => sql`
    select shard_id, lane_id, floor(date_part('epoch', started_at) / 3600)::bigint as hour, watched_address_id, duration_ms,
      status is not null as is_answered, outcome <> 'success' as is_failed, is_delivered, is_delivered and failures = 0 as is_first,
      case when is_delivered and revision = 0 and not is_held
        then ${bucketOf(sql`greatest(0, ${millisecondsOf(sql`started_at - created_at`)} + duration_ms)`)} end as latency_bucket,
      case when status is not null then ${bucketOf(sql`duration_ms`)} end as answer_bucket
    from (select a.*, ${isDelivered} as is_delivered, ${failures} as failures from ${from}) as a`;
  const { recentFrom } = recentOf(span);
  return sql`
    with own as materialized (
      select shard_id, id, notification_id, lane_id, started_at, duration_ms, revision, status, failures as known_failures, outcome
      from delivery_attempt where id > ${after} and id <= ${upTo}
    ), ${withNotifications(span)}
    ${facts(sql`noted a where outcome <> 'success' or known_failures is not null`, {
      isDelivered: sql`outcome = 'success' and known_failures >= 0`,
      failures: sql`known_failures`,
    })}
    union all
    ${facts(
      sql`noted a cross join lateral (
        select count(*) as count, coalesce(bool_or(is_success), false) as has_success from (
          select p.outcome = 'success' as is_success from delivery_attempt p
          where ${isEarlier} and p.started_at >= ${recentFrom} - interval '1 day'
          union all
          select p.outcome = 'success' from delivery_attempt p
          where a.created_at >= ${recentFrom} is not true and ${isEarlier} and p.started_at < ${recentFrom} - interval '1 day') as p
      ) as earlier
      where a.outcome = 'success' and a.known_failures is null`,
      {
        isDelivered: sql`not earlier.has_success and not (${isPastRetention(attemptsMs)} and (
          exists (select from ended e where ${isRedelivered}) or exists (select from queue e where ${isRedelivered}))) is true`,
        failures: sql`earlier.count`,
      },
    )}`;
}

function recentOf({ first, last = first }: Span): { recentFrom: Sql; isRecent: Sql } {
  const recentFrom = sql`${new Date(first.getTime() - RECENT_MS)}::timestamptz`;
  const recentUntil = sql`${new Date(last.getTime() + DAY_MS)}::timestamptz`;
  return { recentFrom, isRecent: sql`created_at >= ${recentFrom} and created_at <= ${recentUntil}` };
}

/**
 * CTE `noted`: the attempts in `own` with their notifications. Those of most have ids near the middle one, and are read in order of
 * these; the others are looked up. A full join can't be a nested loop, which the planner would choose without statistics. The limits
 * keep it from reading whole partitions. Nearly all are recent, so only the partitions of that time are asked first.
 */
function withNotifications(span: Span): Sql {
  const { after, upTo, middle } = span;
  const { recentFrom, isRecent } = recentOf(span);
  const isNear = sql`id >= ${middle - (upTo - after)}::bigint and id <= ${middle + (upTo - after)}::bigint`;
  const facts = sql`created_at, watched_address_id, is_held`;
  return sql`
    near as materialized (
      select n.* from (select distinct shard_id from own) as s cross join lateral (
        select shard_id, id as near_id, ${facts} from notification
        -- A day earlier, so that the planner doesn't try to find the time too.
        where shard_id = s.shard_id and ${isNear} and created_at >= ${recentFrom} - interval '1 day' offset 0
      ) as n
    ), joined as materialized (
      select own.*, near_id, ${facts}
      from own full join near on near.shard_id = own.shard_id and near_id = notification_id offset 0
    ), noted as materialized (
      select * from joined where id is not null and near_id is not null
      union all
      select a.shard_id, a.id, notification_id, lane_id, started_at, duration_ms, revision, status, known_failures, outcome, near_id,
        coalesce(r.created_at, o.created_at), coalesce(r.watched_address_id, o.watched_address_id), coalesce(r.is_held, o.is_held)
      from joined a
      left join lateral (
        select id, ${facts} from notification where shard_id = a.shard_id and id = a.notification_id and ${isRecent} limit 1
      ) r on true
      left join lateral (
        select ${facts} from notification
        where r.id is null and shard_id = a.shard_id and id = a.notification_id and created_at < ${recentFrom} limit 1
      ) o on true
      where a.id is not null and near_id is null
    )`;
}

const FACT_COLUMNS = `shard_id bigint, lane_id bigint, hour bigint, watched_address_id uuid, duration_ms integer,
  is_answered boolean, is_failed boolean, is_delivered boolean, is_first boolean, latency_bucket integer, answer_bucket integer`;

/** The same on Citus, which runs it in each shard. It allows no limits in the joins, and needs none: a shard is small. */
function factsInShards({ after, upTo, attemptsMs }: Span): Sql {
  const isDelivered = sql`(a.outcome = 'success'
    and coalesce(a.failures >= 0, a.successes = 0 and not (${isPastRetention(attemptsMs)} and a.redeliveries > 0) is true))`;
  return sql`
    select a.shard_id, a.lane_id, floor(date_part('epoch', a.started_at) / 3600)::bigint as hour, a.watched_address_id, a.duration_ms,
      a.status is not null as is_answered, a.outcome <> 'success' as is_failed, ${isDelivered} as is_delivered,
      ${isDelivered} and coalesce(a.failures, a.earlier) = 0 as is_first,
      case when ${isDelivered} and a.revision = 0 and not a.is_held
        then ${bucketOf(sql`greatest(0, ${millisecondsOf(sql`a.started_at - a.created_at`)} + a.duration_ms)`)} end as latency_bucket,
      case when a.status is not null then ${bucketOf(sql`a.duration_ms`)} end as answer_bucket
    from (
      select a.shard_id, a.lane_id, a.started_at, a.duration_ms, a.status, a.outcome, a.revision, a.failures, n.created_at,
        n.is_held, n.watched_address_id,
        (select count(*) from delivery_attempt p where ${isEarlier}) as earlier,
        (select count(*) from delivery_attempt p where ${isEarlier} and p.outcome = 'success') as successes,
        (select count(*) from ended e where ${isRedelivered}) + (select count(*) from queue e where ${isRedelivered}) as redeliveries
      from delivery_attempt a left join notification n on n.shard_id = a.shard_id and n.id = a.notification_id
      where a.id > ${after} and a.id <= ${upTo}
    ) as a`;
}
