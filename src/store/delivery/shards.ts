/**
 * Conditions and pages over the shards of a watcher. With one shard they compare with a constant, so that such statements need
 * no array and no merge.
 */
import { SHARD_STEP, shardOfRecord, shardsOf } from '../../domain/shard.ts';
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { isLost, lostFault } from '../db/lost-shards.ts';
import { frequent, type Sql, sql } from '../db/sql.ts';

/** The watcher of a shard. */
export const watcherOf = (shardId: Sql): Sql => sql`(${shardId} & ${SHARD_STEP - 1}::bigint)`;

/** The shards of watcher `w`, as an array. */
export const shardsOfWatcher = sql`array(select w.id + slice * ${SHARD_STEP}::bigint from generate_series(0, w.slices - 1) as slice)`;

/** The shards of a watcher. Read them for each use, because an operator may raise their number. */
export async function listShards(db: Db, watcherId: number): Promise<number[]> {
  const [row] = await db.query<{ slices: number }>(
    frequent(sql`select slices from watcher where id = ${watcherId}`),
  );
  return shardsOf(watcherId, row?.slices ?? 1);
}

/** On Citus. @throws Fault `unavailable` if all shards of the watcher are lost, as each of its requests would wait for their worker. */
export async function requireSomeShard(db: Db, watcherId: number): Promise<void> {
  if (db.isDistributed !== true) return;
  const lost = await db.query(sql`
    select from watcher w where w.id = ${watcherId} and exists (select from lost_shards)
      and not exists (select from unnest(${shardsOfWatcher}) as t (id) where not ${isLost(sql`t.id`)})`);
  if (lost.length > 0) throw lostFault();
}

/** Whether the row with this shard is in one of the shards. Without any it is a constant, because Citus asks all servers for an empty array. */
export function isInShards(shardId: Sql, shards: readonly number[]): Sql {
  if (shards.length === 0) return sql`false`;
  return shards.length === 1
    ? sql`${shardId} = ${shards[0]}`
    : sql`${shardId} = any(${listOf(shards)}::bigint[])`;
}

/** Whether the row of `queue` is of one of these lanes, with their shards, so that Citus looks only there. */
export function isOfLanes(lanes: readonly { id: number; shard_id: number }[]): Sql {
  const shards = [...new Set(lanes.map((lane) => lane.shard_id))];
  return sql`${isInShards(sql`shard_id`, shards)} and lane_id = any(${listOf(lanes.map(({ id }) => id))}::bigint[])`;
}

/** Identifies a watched address or a notification. */
export type ShardKey<Id> = { shardId: number; id: Id };

export const recordKeys = (watcherId: number, ids: readonly string[]): ShardKey<string>[] =>
  ids.map((id) => ({ shardId: shardOfRecord(watcherId, id), id }));

/** Whether the record with this shard and id is one of these. */
export const isOneOfRecords = (shardId: Sql, id: Sql, keys: readonly ShardKey<string>[]): Sql =>
  isOneOf({ shardId, id, type: sql`uuid[]` }, keys);

/** Whether the notification with this shard and id is one of these. */
export const isOneOfNotifications = (shardId: Sql, id: Sql, keys: readonly ShardKey<number>[]): Sql =>
  isOneOf({ shardId, id, type: sql`bigint[]` }, keys);

function isOneOf(
  { shardId, id, type }: { shardId: Sql; id: Sql; type: Sql },
  keys: readonly ShardKey<string | number>[],
): Sql {
  const ids = sql`${listOf(keys.map((key) => key.id))}::${type}`;
  const [only = 0, ...others] = new Set(keys.map((key) => key.shardId));
  if (others.length === 0) return sql`(${shardId} = ${only} and ${id} = any(${ids}))`;
  const shards = listOf(keys.map((key) => key.shardId));
  return sql`((${shardId}, ${id}) in (select * from unnest(${shards}::bigint[], ${ids})))`;
}

/** The first rows of each shard. `page` has the order and the limit, and names columns without a table. */
export function partsOfShards(shards: readonly number[], select: (shardId: Sql) => Sql, page: Sql): Sql {
  if (shards.length === 1) return sql`${select(sql`${shards[0]}`)} ${page}`;
  return sql`
    select part.* from unnest(${listOf(shards)}::bigint[]) as shard (id)
    cross join lateral (${select(sql`shard.id`)} ${page}) as part`;
}

/** The first rows of all shards together. */
export function pageOfShards(
  db: Db,
  shards: readonly number[],
  select: (shardId: Sql) => Sql,
  page: Sql,
): Sql {
  // Citus runs no lateral join with a limit over several shards, and merges the first rows of each by itself.
  if (db.isDistributed === true) return sql`${select(sql`any(${listOf(shards)}::bigint[])`)} ${page}`;
  const parts = partsOfShards(shards, select, page);
  return shards.length === 1 ? parts : sql`${parts} ${page}`;
}
