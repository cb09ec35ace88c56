/**
 * The delivery log of all watchers together, for the operator. Ids of all shards come from one sequence, so a span of ids has a
 * bounded number of notifications. A page examines one span: the rows of each shard in it, by the shard's index.
 */
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import {
  countPages,
  examinedMaxOf,
  findMatches,
  type LoggedNotification,
  type LogPage,
  listLog,
  type MatchCount,
  readLogged,
} from './log.ts';
import { all, innerConditions, type LogFilter, outerConditions } from './log-filter.ts';
import { findInShards } from './log-in-shards.ts';
import { findPending, isPendingOnly } from './log-pending.ts';
import { type ShardKey, shardsOfWatcher, watcherOf } from './shards.ts';

/** One watcher, or undefined for all of them. */
export type Scope = number | undefined;

/** A page of the log of one watcher or of all. `next` is the cursor of the next page, undefined at the end. */
export async function listScopedLog(
  db: Db,
  scope: Scope,
  filter: LogFilter,
  page: LogPage,
): Promise<{ notifications: LoggedNotification[]; next: number | undefined }> {
  if (scope !== undefined) return listLog(db, scope, filter, page);
  const { keys, next } = await findMatchesOfAll(db, filter, page);
  return { notifications: await readLogged(db, keys, page.order), next };
}

/** The notifications of a page of one watcher or of all. */
export const findScopedMatches = (db: Db, scope: Scope, filter: LogFilter, page: LogPage) =>
  scope === undefined ? findMatchesOfAll(db, filter, page) : findMatches(db, scope, filter, page);

/** How many notifications of one watcher or of all match. */
export const countScopedMatches = (db: Db, scope: Scope, filter: LogFilter): Promise<MatchCount> =>
  countPages((page) => findScopedMatches(db, scope, filter, page));

/** The watcher of a notification. It looks into each shard, because the id alone doesn't say where it is. */
export async function findWatcherOfNotification(db: Db, id: number): Promise<number | undefined> {
  if (db.isDistributed === true) {
    const [found] = await db.query<{ shard_id: number }>(
      sql`select shard_id from notification where id = ${id} limit 1`,
    );
    const [owner] = await db.query<{ id: number }>(sql`
      select id from watcher where id = ${watcherOf(sql`${found?.shard_id ?? 0}::bigint`)}`);
    return owner?.id;
  }
  const [row] = await db.query<{ watcher_id: number }>(sql`
    select w.id as watcher_id from ${eachShard}
    cross join lateral (select from notification n where n.shard_id = s.id and n.id = ${id} limit 1) as found limit 1`);
  return row?.watcher_id;
}

/** Ids from `low` on and below `high`. */
type Span = { low: number; high: number };

async function findMatchesOfAll(
  db: Db,
  filter: LogFilter,
  page: LogPage,
): Promise<{ keys: ShardKey<number>[]; next: number | undefined }> {
  const examinedMax = examinedMaxOf(filter);
  if (db.isDistributed === true) return findInShards(db, filter, { ...page, isOwn: sql`true`, examinedMax });
  if (isPendingOnly(filter)) return findPending(db, eachShard, filter, { ...page, examinedMax });
  if (filter.recordIds !== undefined || filter.hash !== undefined) return findByIndex(db, filter, page);
  const isDown = page.order === 'newest first';
  const end = isDown ? { below: Number.MAX_SAFE_INTEGER } : { from: 0 };
  let edge = page.after ?? beside(await findNearest(db, filter, end), isDown);
  // The first span after the cursor may be empty, because ids have gaps and old rows are deleted.
  for (let time = 0; time < 2 && edge !== undefined; time += 1) {
    const span: Span = isDown
      ? { low: Math.max(edge - examinedMax, 0), high: edge }
      : { low: edge + 1, high: edge + 1 + examinedMax };
    const keys = await findInSpan(db, filter, { ...page, span });
    if (keys.length === page.limit) return { keys, next: keys.at(-1)?.id };
    edge = beside(await findNearest(db, filter, isDown ? { below: span.low } : { from: span.high }), isDown);
    if (keys.length > 0) return { keys, next: edge };
  }
  return { keys: [], next: edge };
}

/** The cursor whose next page begins with this id. */
function beside(id: number | undefined, isDown: boolean): number | undefined {
  if (id === undefined) return undefined;
  return isDown ? id + 1 : id - 1;
}

async function findInSpan(
  db: Db,
  filter: LogFilter,
  { order, limit, span: { low, high } }: LogPage & { span: Span },
): Promise<ShardKey<number>[]> {
  const page = sql`order by n.id ${order === 'newest first' ? sql`desc` : sql`asc`} limit ${limit}`;
  const conditions = [
    sql`n.shard_id = s.id`,
    sql`n.id >= ${low}`,
    sql`n.id < ${high}`,
    ...conditionsOf(filter),
  ];
  const rows = await db.query<{ shard_id: number; id: number }>(sql`
    select n.shard_id, n.id from ${eachShard} cross join lateral (
      select n.shard_id, n.id from notification_status n where ${all(conditions)} ${page}) as n
    ${page}`);
  return rows.map(({ shard_id: shardId, id }) => ({ shardId, id }));
}

/** The nearest id outside of a span. */
async function findNearest(
  db: Db,
  filter: LogFilter,
  edge: { below: number } | { from: number },
): Promise<number | undefined> {
  const isBelow = 'below' in edge;
  const conditions = [
    isBelow ? sql`n.id < ${edge.below}` : sql`n.id >= ${edge.from}`,
    ...innerConditions({ ...filter, recordIds: undefined, hash: undefined }),
  ];
  const nearest = isBelow ? sql`max(n.id)` : sql`min(n.id)`;
  // Conditions on times and blocks have indexes over all shards. Without one, the ends of the shards' indexes are read.
  const [row] = await db.query<{ id: number | null }>(
    conditions.length > 1
      ? sql`select ${nearest} as id from notification n where ${all(conditions)}`
      : sql`
        select ${nearest} as id from ${eachShard} cross join lateral (
          select ${nearest} as id from notification n where n.shard_id = s.id and ${all(conditions)}) as n`,
  );
  return row?.id ?? undefined;
}

/** The matches for a transaction or for watched addresses, which have indexes. */
async function findByIndex(
  db: Db,
  filter: LogFilter,
  { order, after, limit }: LogPage,
): Promise<{ keys: ShardKey<number>[]; next: number | undefined }> {
  const isDown = order === 'newest first';
  const page = sql`order by n.id ${isDown ? sql`desc` : sql`asc`} limit ${limit}`;
  const conditions = conditionsOf(filter);
  if (after !== undefined) conditions.push(isDown ? sql`n.id < ${after}` : sql`n.id > ${after}`);
  const { recordIds } = filter;
  const rows = await db.query<{ shard_id: number; id: number }>(
    recordIds === undefined
      ? sql`select n.shard_id, n.id from notification_status n where ${all(conditions)} ${page}`
      : sql`
        select n.shard_id, n.id from unnest(${listOf(recordIds)}::uuid[]) as r (id)
        cross join lateral (
          select n.shard_id, n.id from notification_status n
          where n.watched_address_id = r.id and ${all(conditions)} ${page}) as n
        ${page}`,
  );
  const keys = rows.map(({ shard_id: shardId, id }) => ({ shardId, id }));
  return { keys, next: keys.length === limit ? keys.at(-1)?.id : undefined };
}

const conditionsOf = (filter: LogFilter): Sql[] => [...innerConditions(filter), ...outerConditions(filter)];

/** Every shard `s`, with its watcher `w`. */
const eachShard = sql`watcher w cross join lateral unnest(${shardsOfWatcher}) as s (id)`;
