/**
 * The delivery log of all watchers together, for the operator. Ids of all shards come from one sequence, so a span of ids has a
 * bounded number of notifications. A page examines one span: the rows of each shard in it, by the shard's index.
 */
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import {
  countPages,
  examinedMaxOf,
  findExamined,
  findMatches,
  type LoggedNotification,
  type LogPage,
  listLog,
  type MatchCount,
  readLogged,
} from './log.ts';
import { all, examinedColumns, innerConditions, type LogFilter, outerConditions } from './log-filter.ts';
import { findInShards } from './log-in-shards.ts';
import { findPending, isPendingOnly } from './log-pending.ts';
import { hasRange, type Span, skipToRange } from './log-range.ts';
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

async function findMatchesOfAll(
  db: Db,
  filter: LogFilter,
  page: LogPage,
): Promise<{ keys: ShardKey<number>[]; next: number | undefined }> {
  const examinedMax = examinedMaxOf(filter);
  if (db.isDistributed === true) return findInShards(db, filter, { ...page, isOwn: sql`true`, examinedMax });
  if (isPendingOnly(filter)) return findPending(db, eachShard, filter, { ...page, examinedMax });
  if (filter.recordIds !== undefined) return findOfRecords(db, filter.recordIds, filter, page);
  if (filter.hash !== undefined) return findOfTransaction(db, filter, page);
  const { order, after } = page;
  const isDown = order === 'newest first';
  const isKnown = after !== undefined && !hasRange(filter);
  let edge = isKnown ? after : await findEdge(db, filter, { order, after, stepIds: examinedMax });
  // The first span after the cursor may be empty, because ids have gaps and old rows are deleted.
  for (let time = 0; time < 2 && edge !== undefined; time += 1) {
    const span: Span = isDown
      ? { low: Math.max(edge - examinedMax, 0), high: edge }
      : { low: edge + 1, high: edge + 1 + examinedMax };
    const keys = await findInSpan(db, filter, { ...page, span });
    if (keys.length === page.limit) return { keys, next: keys.at(-1)?.id };
    const end = isDown ? span.low : span.high - 1;
    edge = await findEdge(db, filter, { order, after: end, stepIds: examinedMax });
    if (keys.length > 0) return { keys, next: edge };
  }
  return { keys: [], next: edge };
}

async function findInSpan(
  db: Db,
  filter: LogFilter,
  { order, limit, span: { low, high } }: LogPage & { span: Span },
): Promise<ShardKey<number>[]> {
  const page = sql`order by n.id ${order === 'newest first' ? sql`desc` : sql`asc`} limit ${limit}`;
  // Otherwise each shard could be looked for in the range's rows of all shards.
  const fence = hasRange(filter) ? sql`offset 0` : sql``;
  const rows = await db.query<{ shard_id: number; id: number }>(sql`
    select n.shard_id, n.id from ${eachShard} cross join lateral (
      select n.shard_id, n.id from (
        select ${examinedColumns(filter)} from notification_status n
        where n.shard_id = s.id and n.id >= ${low} and n.id < ${high} ${fence}
      ) as n where ${all(outerConditions(filter))} ${page}) as n
    ${page}`);
  return rows.map(({ shard_id: shardId, id }) => ({ shardId, id }));
}

type Edge = { order: LogPage['order']; after: number | undefined; stepIds: number };

/** The cursor after which the next ids have a notification, one in the filter's range if it has one. Undefined at the end. */
async function findEdge(db: Db, filter: LogFilter, edge: Edge): Promise<number | undefined> {
  if (hasRange(filter)) return skipToRange(db, filter, edge);
  const { order, after } = edge;
  const isDown = order === 'newest first';
  const nearest = isDown ? sql`max(n.id)` : sql`min(n.id)`;
  const isAfter = after === undefined ? sql`true` : isDown ? sql`n.id < ${after}` : sql`n.id > ${after}`;
  const [row] = await db.query<{ id: number | null }>(sql`
    select ${nearest} as id from ${eachShard} cross join lateral (
      select ${nearest} as id from notification n where n.shard_id = s.id and ${isAfter}) as n`);
  const id = row?.id ?? undefined;
  if (id === undefined) return undefined;
  return isDown ? id + 1 : id - 1;
}

/** The matches for watched addresses. The notifications of each one are in one shard, and an index finds that. */
async function findOfRecords(
  db: Db,
  recordIds: readonly string[],
  filter: LogFilter,
  page: LogPage,
): Promise<{ keys: ShardKey<number>[]; next: number | undefined }> {
  const rows = await db.query<{ shard_id: number; id: string }>(sql`
    select n.shard_id, r.id from unnest(${listOf(recordIds)}::uuid[]) as r (id)
    cross join lateral (
      select n.shard_id from notification n where n.watched_address_id = r.id order by n.shard_id limit 1) as n
    order by r.id limit ${recordIds.length}`);
  if (rows.length === 0) return { keys: [], next: undefined };
  const records = rows.map(({ shard_id: shardId, id }) => ({ shardId, id }));
  const shards = [...new Set(records.map(({ shardId }) => shardId))];
  return findExamined(db, { shards, records }, filter, page);
}

/** The matches for a transaction, of which an index finds the few notifications. */
async function findOfTransaction(
  db: Db,
  filter: LogFilter,
  { order, after, limit }: LogPage,
): Promise<{ keys: ShardKey<number>[]; next: number | undefined }> {
  const isDown = order === 'newest first';
  const conditions = [...innerConditions(filter), ...outerConditions(filter)];
  if (after !== undefined) conditions.push(isDown ? sql`n.id < ${after}` : sql`n.id > ${after}`);
  const rows = await db.query<{ shard_id: number; id: number }>(sql`
    select n.shard_id, n.id from notification_status n where ${all(conditions)}
    order by n.id ${isDown ? sql`desc` : sql`asc`} limit ${limit}`);
  const keys = rows.map(({ shard_id: shardId, id }) => ({ shardId, id }));
  return { keys, next: keys.length === limit ? keys.at(-1)?.id : undefined };
}

/** Every shard `s`, with its watcher `w`. */
const eachShard = sql`watcher w cross join lateral unnest(${shardsOfWatcher}) as s (id)`;
