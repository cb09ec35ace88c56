/**
 * Pages of the delivery log on Citus, where a page of several shards is one statement: Citus merges the first rows of each.
 */
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { readJson, recordsOf, tableOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { all, innerConditions, type LogFilter, outerConditions, toShardFilter } from './log-filter.ts';
import { isPendingOnly, queueCondition } from './log-pending.ts';
import { isInShards, isOneOfNotifications, type ShardKey } from './shards.ts';

type Matches = { keys: ShardKey<number>[]; next: number | undefined };
type KeyRow = { shard_id: number; id: number };
type Page = { order: 'newest first' | 'oldest first'; after: number | undefined; limit: number };

/** The first matches among the first `examinedMax` rows of the log, or of the queue. `isOwn` names the shards. */
export async function findInShards(
  db: Db,
  filter: LogFilter,
  { isOwn, order, after, limit, examinedMax }: Page & { isOwn: Sql; examinedMax: number },
): Promise<Matches> {
  const pending = isPendingOnly(filter) ? queueCondition(filter) : undefined;
  const isDown = order === 'newest first';
  const direction = isDown ? sql`desc` : sql`asc`;
  const isAfter = after === undefined ? sql`true` : isDown ? sql`n.id < ${after}` : sql`n.id > ${after}`;
  const { recordIds } = filter;
  const isOfRecord =
    recordIds === undefined ? sql`true` : sql`n.watched_address_id = any(${listOf(recordIds)}::uuid[])`;
  const isExamined = all([
    isOwn,
    isAfter,
    isOfRecord,
    ...(pending === undefined ? innerConditions(filter) : []),
  ]);
  const examined = await db.query<KeyRow>(sql`
    select n.shard_id, n.id from ${pending === undefined ? sql`notification n` : sql`queue n`}
    where ${isExamined} and ${pending ?? sql`true`} order by n.id ${direction} limit ${examinedMax}`);
  const conditions = [...innerConditions(filter), ...outerConditions(await toShardFilter(db, filter))];
  const found = await filterKeys(db, examined, { conditions, direction, limit });
  const last = examined.length < examinedMax ? undefined : examined.at(-1)?.id;
  return { keys: found, next: found.length === limit ? found.at(-1)?.id : last };
}

async function filterKeys(
  db: Db,
  examined: readonly KeyRow[],
  { conditions, direction, limit }: { conditions: readonly Sql[]; direction: Sql; limit: number },
): Promise<ShardKey<number>[]> {
  if (examined.length === 0) return [];
  const shards = [...new Set(examined.map((row) => row.shard_id))];
  const isExamined = sql`${isInShards(sql`n.shard_id`, shards)} and n.id = any(${listOf(examined.map(({ id }) => id))}::bigint[])`;
  const rows = await db.query<KeyRow>(sql`
    select n.shard_id, n.id from notification_status n where ${all([isExamined, ...conditions])}
    order by n.id ${direction} limit ${limit}`);
  return rows.map(({ shard_id: shardId, id }) => ({ shardId, id }));
}

/** Relations with what the log shows of these notifications. */
export type LogSources = { statuses: Sql; watches: Sql; attempts: Sql; replacements: Sql };

const ATTEMPT_COLUMNS = `shard_id bigint, notification_id bigint, id bigint, started_at timestamptz, duration_ms integer,
  outcome text, status integer`;

export async function readSources(db: Db, keys: readonly ShardKey<number>[]): Promise<LogSources> {
  const isWanted = isWantedOf(keys);
  const statuses = await tableOf(db, 'notification_status', {
    alias: 'n',
    where: isWanted(sql`n.shard_id`, sql`n.id`),
  });
  const records = await db.query<{ shard_id: number; id: string }>(sql`
    select n.shard_id, n.watched_address_id as id from ${statuses} as n`);
  const watches = await tableOf(db, 'watched_address', {
    alias: 'w',
    where: sql`${isInShards(sql`w.shard_id`, [...new Set(records.map((row) => row.shard_id))])}
      and w.id = any(${listOf([...new Set(records.map(({ id }) => id))])}::uuid[])`,
  });
  const attempts = await readJson(
    db,
    sql`
      select shard_id, notification_id, max(id) as id, (array_agg(started_at order by id desc))[1] as started_at,
        (array_agg(duration_ms order by id desc))[1] as duration_ms, (array_agg(outcome order by id desc))[1] as outcome,
        (array_agg(status order by id desc))[1] as status
      from delivery_attempt where ${isWanted(sql`shard_id`, sql`notification_id`)} group by shard_id, notification_id`,
  );
  const replacements = await tableOf(db, 'notification_status', {
    alias: 'n',
    where: sql`${isWanted(sql`n.shard_id`, sql`n.replaces`)} and n.reorg_id is null`,
  });
  return { statuses, watches, attempts: recordsOf(attempts, ATTEMPT_COLUMNS), replacements };
}

const isWantedOf =
  (keys: readonly ShardKey<number>[]) =>
  (shardId: Sql, id: Sql): Sql => {
    const shards = [...new Set(keys.map((key) => key.shardId))];
    return shards.length === 1
      ? isOneOfNotifications(shardId, id, keys)
      : sql`${shardId} = any(${listOf(shards)}::bigint[]) and ${id} = any(${listOf(keys.map((key) => key.id))}::bigint[])`;
  };
