/**
 * Pages of the log whose filter matches pending notifications only. They are in the queue, so a page of a few failing ones
 * doesn't examine a long history.
 */
import { statusRules } from '../../domain/delivery-status.ts';
import type { Db } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { all, innerConditions, type LogFilter, outerConditions } from './log-filter.ts';
import type { ShardKey } from './shards.ts';

/** Whether all that matches is in the queue, and no index finds it better. */
export const isPendingOnly = (filter: LogFilter): boolean =>
  filter.recordIds === undefined && filter.hash === undefined && queueCondition(filter) !== undefined;

type PendingPage = {
  order: 'newest first' | 'oldest first';
  after: number | undefined;
  limit: number;
  /** Rows of the queue that the page examines. */
  examinedMax: number;
};

/**
 * The matches of a page in these shards, rows `s (id)`. Each shard examines an equal part of the rows, or a page if that is more.
 * Beyond the row at which a shard with more rows stopped, the page has nothing.
 */
export async function findPending(
  db: Db,
  shards: Sql,
  filter: LogFilter,
  { order, after, limit, examinedMax }: PendingPage,
): Promise<{ keys: ShardKey<number>[]; next: number | undefined }> {
  const isDown = order === 'newest first';
  const direction = isDown ? sql`desc` : sql`asc`;
  const isAfter = after === undefined ? sql`true` : isDown ? sql`q.id < ${after}` : sql`q.id > ${after}`;
  const last = isDown ? sql`min(id)` : sql`max(id)`;
  const rows = await db.query<{ shard_id: number; id: number | null; last: number | null }>(sql`
    with size as materialized (
      select greatest(${limit}::bigint, ${examinedMax}::bigint / count(*)) as part from ${shards}
    ), part as materialized (
      select q.* from ${shards} cross join lateral (
        select q.shard_id, q.id, q.created_at from queue q
        where q.shard_id = s.id and ${queueCondition(filter) ?? sql`true`} and ${isAfter}
        order by q.id ${direction} limit (select part from size)) as q
    ), stop as materialized (
      select ${isDown ? sql`max(last)` : sql`min(last)`} as last from (
        select ${last} as last from part group by shard_id having count(*) >= (select part from size)) as stopped
    ), candidate as materialized (
      select part.* from part, stop where stop.last is null or ${isDown ? sql`id >= stop.last` : sql`id <= stop.last`}
      order by id ${direction} limit ${examinedMax}
    ), edge as materialized (
      select case when count(*) >= ${examinedMax} then ${last} end as last from candidate
    )
    select m.shard_id, m.id, coalesce(edge.last, stop.last) as last
    from stop cross join edge left join lateral (
      select n.shard_id, n.id from candidate c
      join notification_status n on n.shard_id = c.shard_id and n.id = c.id and n.created_at = c.created_at
      where ${all([...innerConditions(filter), ...outerConditions(filter)])}
      order by n.id ${direction} limit ${limit}
    ) m on true
    order by m.id ${direction}`);
  const keys = rows.flatMap(({ shard_id: shardId, id }) => (id === null ? [] : [{ shardId, id }]));
  return { keys, next: keys.length === limit ? keys.at(-1)?.id : (rows[0]?.last ?? undefined) };
}

/** A condition on rows of the queue that every match fulfills; undefined if a match may be elsewhere. */
export function queueCondition({ state, status }: LogFilter): Sql | undefined {
  if (state === 'held' || state === 'waiting') return sql`state = ${state}`;
  const rules = statusRules.filter((rule) => rule.status === status);
  const [rule] = rules;
  if (rule === undefined || rules.length > 1 || (rule.state !== 'held' && rule.state !== 'waiting'))
    return undefined;
  const { from, to } = rule.failures ?? { from: 0, to: Number.MAX_SAFE_INTEGER };
  return sql`state = ${rule.state} and retry_count between ${from}::bigint and ${to}::bigint`;
}
