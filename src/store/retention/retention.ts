/**
 * Deletes old data in small steps. Notifications that still wait are never deleted, and neither are those of blocks that a reorg
 * can still orphan: without its notification, a transaction that is mined again would be sent again.
 */
import type { Clock } from '../../core/clock.ts';
import type { Step } from '../../core/loop.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Db } from '../db/db.ts';
import { listLost } from '../db/lost-shards.ts';
import { forEachShard } from '../db/shard-rows.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import { STATISTICS_RETENTION_MS } from '../delivery/statistics.ts';
import { pruneObservations } from '../prices/price-rounds.ts';
import { ANSWER_RETENTION_MS, pruneAnswers } from '../watchers/idempotency.ts';
import {
  type Crowded,
  dropOldPartitions,
  finalNumber,
  isOutsidePartitions,
  preparePartitions,
  unlessGone,
} from './partitions.ts';
import { raisePruneMark } from './prune-marks.ts';

/** Rows that one step deletes per table. A delete of this size takes milliseconds. */
const STEP_ROWS = 1_000;
/** Stored responses are up to a thousand times as large as other rows. */
const STEP_ANSWERS = 100;

/**
 * A step that maintains the partitions, and deletes attempts, sums of deliveries, stored responses, price observations, and finished
 * notifications (processed, withdrawn, cancelled) after their retention. Notifications count from their creation, and attempts
 * from their start. Nothing is deleted while shards are lost. The rows of a partition are dropped together; those in the default partitions are deleted in steps.
 */
export function createPruner(options: {
  database: Database;
  clock: Clock;
  attemptsMs: number;
  notificationsMs: number;
  observationsMs: number;
  /** While it is false, partitions are created, and nothing is deleted. */
  mayPrune?(): boolean;
}): Step {
  const { database, clock, attemptsMs, notificationsMs, observationsMs, mayPrune = () => true } = options;
  const crowded: Crowded = new Map();
  const pruneCrowded = createCrowdedPruner(database);
  const pruneDefault = createDefaultPruner(database, clock);
  const pruneEnded = createEndedPruner(database, clock);
  return async () => {
    if ((await listLost(database)).length > 0) return 'idle';
    const now = clock.now().getTime();
    const before = {
      notification: new Date(now - notificationsMs),
      delivery_attempt: new Date(now - attemptsMs),
      record_delivery_sum: new Date(now - STATISTICS_RETENTION_MS),
    };
    await preparePartitions(database, { now: new Date(now), before });
    if (!mayPrune()) return 'idle';
    await raisePruneMark(database, 'notification', before.notification);
    const isDropped = await dropOldPartitions(database, { before, crowded, clock });
    const attempts = await pruneAttempts(database, before.delivery_attempt, STEP_ROWS);
    const hasOld = await pruneDefault(before.notification);
    const hasEnded = await pruneEnded(before.notification, isDropped);
    const answers = await pruneAnswers(database, new Date(now - ANSWER_RETENTION_MS), STEP_ANSWERS);
    const observations = await pruneObservations(database, new Date(now - observationsMs), STEP_ROWS);
    const sums = await pruneDeliverySums(database, before.record_delivery_sum, STEP_ROWS);
    const isMore = [attempts, observations, sums].includes(STEP_ROWS) || answers === STEP_ANSWERS;
    const hasPages = await pruneCrowded(crowded);
    return isMore || isDropped || hasOld || hasEnded || hasPages ? 'worked' : 'idle';
  };
}

/** Deletes up to `limit` sums of each kind from before `before`, and returns the larger number. */
async function pruneDeliverySums(db: Db, before: Date, limit: number): Promise<number> {
  const counts = [];
  for (const table of ['delivery_sum', 'record_delivery_sum_default']) {
    const rows = await db.query(sql`
      delete from ${raw(table)} where ctid = any(array(
        select ctid from ${raw(table)} where started_at < ${before} order by started_at limit ${limit}))
        and started_at < ${before}
      returning shard_id`);
    counts.push(rows.length);
  }
  return Math.max(...counts);
}

/**
 * Deletes up to `limit` attempts from before `before` in the default partition, and returns their number. It deletes by ctid,
 * because a delete by key read a whole table of 100,000 rows.
 */
async function pruneAttempts(db: Db, before: Date, limit: number): Promise<number> {
  if (db.isDistributed === true)
    return deleteInShards(db, {
      from: sql`delivery_attempt_default n`,
      where: sql`n.started_at < ${before}`,
      order: sql`n.started_at`,
      limit,
    });
  const rows = await db.query(sql`
    delete from delivery_attempt_default where ctid = any(array(
      select ctid from delivery_attempt_default where started_at < ${before} order by started_at limit ${limit}))
      and started_at < ${before}
    returning id`);
  return rows.length;
}

const isFinal = sql`n.block_number <= coalesce(${finalNumber}, n.block_number)`;
/** A scalar subquery probes the index for each row, where `not exists` would read the whole queue. */
const isSettled = sql`(select q.id from queue q where q.shard_id = n.shard_id and q.id = n.id) is null`;

/** When to look again at old notifications that had to be kept, if they are more than one step looks at. */
const KEPT_LOOK_MS = 3_600_000;

/**
 * Deletes the finished notifications of final blocks that were created before `before`, in the default partition, and returns whether there
 * may be more. Each step looks at the STEP_ROWS oldest ones after those of the step before, because those of receivers that have failed for
 * long stay there.
 */
function createDefaultPruner(database: Database, clock: Clock): (before: Date) => Promise<boolean> {
  const first = { at: new Date(0), place: '(0,0)' };
  let [last, kept, nextMs] = [first, 0, Number.NEGATIVE_INFINITY];
  return async (before) => {
    if (database.isDistributed === true)
      return (await pruneNotificationsInShards(database, before, STEP_ROWS)) === STEP_ROWS;
    if (clock.steadyMs() < nextMs) return false;
    // Those of one block have the same time.
    const old = await database.query<typeof first>(sql`
      select n.created_at as at, n.ctid::text as place from notification_default n
      where n.created_at >= ${last.at} and n.created_at < ${before} and (n.created_at > ${last.at} or n.ctid > ${last.place}::tid)
      order by n.created_at, n.ctid limit ${STEP_ROWS}`);
    const chosen = sql`n.ctid = any(${old.map(({ place }) => place)}::tid[]) and n.created_at < ${before}`;
    kept += old.length - (await deleteFinished(database, sql`notification_default`, chosen));
    last = old.at(-1) ?? last;
    if (old.length === STEP_ROWS) return true;
    if (kept > STEP_ROWS) nextMs = clock.steadyMs() + KEPT_LOOK_MS;
    [last, kept] = [first, 0];
    return false;
  };
}

/**
 * Deletes the chosen notifications that are finished and final with their rows in `ended`, and returns their number. The locks are a
 * separate statement. The delete then sees the redeliveries of every transaction that held them before, and a later one finds its
 * notification deleted.
 */
function deleteFinished(database: Database, table: Sql, chosen: Sql): Promise<number> {
  const isFinished = sql`${chosen} and ${isFinal} and ${isSettled}`;
  return database.transaction(async (tx) => {
    const locked = await tx.query<{ place: string }>(sql`
      select n.ctid::text as place from ${table} n where ${isFinished} order by n.ctid for update skip locked`);
    if (locked.length === 0) return 0;
    const rows = await tx.query<{ shard_id: number; id: number }>(sql`
      delete from ${table} n
      where n.ctid = any(${locked.map(({ place }) => place)}::tid[]) and ${isFinished} returning n.shard_id, n.id`);
    const [shards, ids] = [rows.map((row) => row.shard_id), rows.map(({ id }) => id)].map(listOf);
    // A scalar subquery probes the index for each, where a join would read the whole table.
    await tx.query(sql`
      delete from ended where ctid = any(array(
        select (select e.ctid from ended e where e.shard_id = gone.shard_id and e.id = gone.id)
        from unnest(${shards}::bigint[], ${ids}::bigint[]) as gone (shard_id, id)))`);
    return rows.length;
  });
}

/** Pages of a partition that one step looks at: about two thousand rows. */
const STEP_PAGES = 50;
const PAGE_BYTES = 8_192;

/**
 * Deletes the finished notifications of these partitions, which can't be dropped, some pages at a time, and returns whether there are
 * more pages. None is added to such a partition, so one pass through it is enough until it is looked at again.
 */
function createCrowdedPruner(database: Database): (crowded: Crowded) => Promise<boolean> {
  return async (crowded) => {
    // A page is one of a single shard. On Citus, such partitions stay whole until their receivers work again.
    if (database.isDistributed === true) return false;
    for (const [name, pass] of crowded) {
      if (!pass.isCrowded || !Number.isFinite(pass.page)) continue;
      const [size] = await database.query<{ bytes: number | null }>(
        sql`select pg_relation_size(to_regclass(${name}::text))::bigint as bytes`,
      );
      if (pass.page * PAGE_BYTES >= (size?.bytes ?? 0)) {
        pass.page = Number.POSITIVE_INFINITY;
        continue;
      }
      const [from, until] = [pass.page, pass.page + STEP_PAGES].map((page) => sql`${`(${page},0)`}::tid`);
      const chosen = sql`n.ctid >= ${from} and n.ctid < ${until}`;
      await unlessGone(deleteFinished(database, raw(name), chosen));
      pass.page += STEP_PAGES;
      return true;
    }
    return false;
  };
}

/** How often to look for rows in `ended` without a notification, such as those that a process left which had dropped a partition. */
const ENDED_LOOK_MS = 3_600_000;

/**
 * Deletes the rows of `ended` whose notifications were dropped with their partition, up to STEP_ROWS at a time, and returns whether there may
 * be more. Rows of partitions that are still there aren't looked at, because a watcher can have any number of them. Nor are others before an
 * hour has passed: in the default partition, a notification is deleted together with its row.
 */
function createEndedPruner(
  database: Database,
  clock: Clock,
): (before: Date, isDropped: boolean) => Promise<boolean> {
  let nextMs = Number.NEGATIVE_INFINITY;
  return async (before, isDropped) => {
    if (!isDropped && clock.steadyMs() < nextMs) return false;
    const isMore = (await pruneEnded(database, before, STEP_ROWS)) === STEP_ROWS;
    nextMs = isMore ? Number.NEGATIVE_INFINITY : clock.steadyMs() + ENDED_LOOK_MS;
    return isMore;
  };
}

/** Deletes up to `limit` rows of `ended` whose notifications are deleted. A partition is never dropped before its last day is over. */
async function pruneEnded(db: Db, before: Date, limit: number): Promise<number> {
  const isOutside = await isOutsidePartitions(db, sql`n.created_at`, before);
  if (db.isDistributed === true)
    return deleteInShards(db, {
      from: sql`ended n`,
      where: sql`${isOutside} and not exists (
        select from notification o where o.shard_id = n.shard_id and o.id = n.id and o.created_at = n.created_at)`,
      order: sql`n.created_at`,
      limit,
    });
  const rows = await db.query(sql`
    delete from ended where ctid = any(array(
      select n.ctid from ended n
      where ${isOutside} and (
        select o.id from notification o where o.shard_id = n.shard_id and o.id = n.id and o.created_at = n.created_at) is null
      order by n.created_at limit ${limit}))
    returning id`);
  return rows.length;
}

type Deletion = {
  /** The table, as `n`. */
  from: Sql;
  where: Sql;
  order: Sql;
  limit: number;
};

/** On Citus, which deletes no limited number of rows: finds the oldest, and deletes them with a statement for each shard. */
async function deleteInShards(db: Db, { from, where, order, limit }: Deletion): Promise<number> {
  const found = await db.query<{ shard_id: number; id: number }>(sql`
    select n.shard_id, n.id from ${from} where ${where} order by ${order} limit ${limit}`);
  const keys = found.map(({ shard_id: shardId, id }) => ({ shardId, id }));
  const gone = await forEachShard(keys, (shardId, own) =>
    db.query(sql`
      delete from ${from} where n.shard_id = ${shardId} and n.id = any(${listOf(own.map(({ id }) => id))}::bigint[]) and ${where}
      returning n.id`),
  );
  return gone.length;
}

/** The locks are separate statements, as in `deleteFinished`. */
async function pruneNotificationsInShards(database: Database, before: Date, limit: number): Promise<number> {
  const [chain] = await database.query<{ number: number | null }>(sql`select ${finalNumber} as number`);
  const isFinished = sql`n.created_at < ${before} and n.block_number <= coalesce(${chain?.number ?? null}::bigint, n.block_number)
    and not exists (select from queue q where q.shard_id = n.shard_id and q.id = n.id)`;
  const found = await database.query<{ shard_id: number; id: number }>(sql`
    select n.shard_id, n.id from notification_default n where ${isFinished} order by n.created_at limit ${limit}`);
  const keys = found.map(({ shard_id: shardId, id }) => ({ shardId, id }));
  const gone = await forEachShard(keys, (shardId, own) =>
    database.transaction(async (tx) => {
      const isOwn = sql`n.shard_id = ${shardId} and n.id = any(${listOf(own.map(({ id }) => id))}::bigint[])`;
      const locked = await tx.query<{ id: number }>(sql`
        select n.id from notification_default n where ${isOwn} and ${isFinished} order by n.id for update skip locked`);
      const ids = listOf(locked.map(({ id }) => id));
      const rows = await tx.query<{ id: number }>(sql`
        delete from notification_default n where n.shard_id = ${shardId} and n.id = any(${ids}::bigint[]) and ${isFinished}
        returning n.id`);
      await tx.query(sql`
        delete from ended where shard_id = ${shardId} and id = any(${listOf(rows.map(({ id }) => id))}::bigint[])`);
      return rows;
    }),
  );
  return gone.length;
}
