/**
 * Pages of the delivery log on Citus, where a page of several shards is one statement: Citus merges the first rows of each.
 */
import { fromBytes } from '../../core/hex.ts';
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { readJsonOfEach, recordsOf, rowsFrom } from '../db/shard-rows.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { all, innerConditions, type LogFilter, outerConditions, toShardFilter } from './log-filter.ts';
import { isPendingOnly, queueCondition } from './log-pending.ts';
import { inRange } from './log-range.ts';
import { isOfTransactions, readStatuses, storedColumns, watchesOf } from './notification-rows.ts';
import { isInShards, type ShardKey } from './shards.ts';

type Matches = { keys: ShardKey<number>[]; next: number | undefined };
type KeyRow = { shard_id: number; id: number };
type Page = { order: 'newest first' | 'oldest first'; after: number | undefined; limit: number };

/** The first matches among the first `examinedMax` rows of the log, or of the queue. `isOwn` names the shards. */
export async function findInShards(
  db: Db,
  filter: LogFilter,
  { isOwn, order, after: given, limit, examinedMax }: Page & { isOwn: Sql; examinedMax: number },
): Promise<Matches> {
  const isDown = order === 'newest first';
  const direction = isDown ? sql`desc` : sql`asc`;
  const shardFilter = await toShardFilter(db, filter);
  const conditionsIn = (shardId: Sql) => [
    ...innerConditions(filter),
    ...outerConditions(shardFilter, shardId),
  ];
  const examine = async (source: Sql, conditions: readonly Sql[], after: number | undefined) => {
    const isAfter = after === undefined ? sql`true` : isDown ? sql`n.id < ${after}` : sql`n.id > ${after}`;
    const examined = await db.query<KeyRow>(sql`
      select n.shard_id, n.id from ${source} n where ${all([isOwn, isAfter, ...conditions])}
      order by n.id ${direction} limit ${examinedMax}`);
    const keys = await filterKeys(db, examined, { conditionsIn, direction, limit });
    return { keys, last: examined.length < examinedMax ? undefined : examined.at(-1)?.id };
  };
  if (isPendingOnly(filter)) {
    const { keys, last } = await examine(sql`queue`, [queueCondition(filter) ?? sql`true`], given);
    return { keys, next: keys.length === limit ? keys.at(-1)?.id : last };
  }
  const { recordIds } = filter;
  const conditions = innerConditions(filter);
  if (recordIds !== undefined) conditions.push(sql`n.watched_address_id = any(${listOf(recordIds)}::uuid[])`);
  const start = { order, after: given, limit, stepIds: examinedMax, isOwn };
  return inRange(db, filter, start, (after) => examine(sql`notification`, conditions, after));
}

async function filterKeys(
  db: Db,
  examined: readonly KeyRow[],
  { conditionsIn, direction, limit }: { conditionsIn(shardId: Sql): Sql[]; direction: Sql; limit: number },
): Promise<ShardKey<number>[]> {
  if (examined.length === 0) return [];
  const shards = [...new Set(examined.map((row) => row.shard_id))];
  const isExamined = sql`${isInShards(sql`n.shard_id`, shards)} and n.id = any(${listOf(examined.map(({ id }) => id))}::bigint[])`;
  const conditions = conditionsIn(shards.length === 1 ? sql`${shards[0]}::bigint` : sql`n.shard_id`);
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
  const statuses = await readStatuses(db, keys);
  const watches = await watchesOf(db, statuses);
  const idsOf = (own: readonly ShardKey<number>[]) => sql`any(${listOf(own.map(({ id }) => id))}::bigint[])`;
  const attempts = await readJsonOfEach(
    db,
    keys,
    (shardId, own) => sql`
      select shard_id, notification_id, max(id) as id, (array_agg(started_at order by id desc))[1] as started_at,
        (array_agg(duration_ms order by id desc))[1] as duration_ms, (array_agg(outcome order by id desc))[1] as outcome,
        (array_agg(status order by id desc))[1] as status
      from delivery_attempt where shard_id = ${shardId} and notification_id = ${idsOf(own)} group by shard_id, notification_id`,
  );
  // Only an orphaned notification can have one, which is of the same transaction.
  const orphaned = await db.query<{ shard_id: number; id: number; tx_hash: Uint8Array }>(sql`
    select n.shard_id, n.id, n.tx_hash from ${statuses} as n where n.reorg_id is not null`);
  const replacements = await readJsonOfEach(
    db,
    orphaned.map(({ shard_id: shardId, id, tx_hash: hash }) => ({ shardId, id, hash: fromBytes(hash) })),
    (shardId, own) => sql`
      select ${raw(storedColumns)} from notification_status n
      where n.shard_id = ${shardId} and n.replaces = ${idsOf(own)} and n.reorg_id is null
        and ${isOfTransactions(own.map(({ hash }) => hash))}`,
  );
  return {
    statuses,
    watches,
    attempts: recordsOf(attempts, ATTEMPT_COLUMNS),
    replacements: rowsFrom('notification_status', replacements),
  };
}
