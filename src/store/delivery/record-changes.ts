/**
 * Makes waiting notifications follow a change of their watched address: they are cancelled if the watched address was
 * deleted, and move to another lane if its URL has another origin. This runs after the change is committed, in transactions
 * of bounded size, because each locks lanes for which blocks and workers wait. Notifications that have not followed when they
 * are due, for example after a crash, are corrected by workers (astray.ts).
 */
import { shardOfRecord } from '../../domain/shard.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { rowsOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { unlessLocked } from '../db/unless-locked.ts';
import { lanesWithEpochs, lockLanesIn } from './lane-locks.ts';
import { type Lane, unsentEpoch, wakeLanes } from './lanes.ts';
import { lockRows, moveToEnded } from './notification-rows.ts';
import { advanceSequences } from './sequence.ts';

/** Rows that one transaction changes. */
const ROWS_MAX = 500;
/** Watched addresses for which the queue is read. */
const PAGE_RECORDS = 10_000;
/** Rows that one query reads. More for many watched addresses, because each query is sent the whole list of them. */
const rowsOfPage = ({ length }: readonly string[]): number => Math.max(5_000, 5 * length);
/** Notifications of each watched address that one query reads, if there are enough watched addresses for a page. */
const RECORD_ROWS = 50;

/** Cancels or moves the waiting notifications of changed watched addresses. Call it after the transaction that changed them. */
export async function alignNotifications(
  database: Database,
  watcherId: number,
  recordIds: readonly string[],
  now: Date,
): Promise<void> {
  const byShard = Map.groupBy(new Set(recordIds), (id) => shardOfRecord(watcherId, id));
  for (const [shardId, ids] of byShard) await alignShard(database, shardId, ids, now);
}

async function alignShard(
  database: Database,
  shardId: number,
  recordIds: readonly string[],
  now: Date,
): Promise<void> {
  const sorted = recordIds.toSorted();
  for (let first = 0; first < sorted.length; first += PAGE_RECORDS) {
    const page = { shardId, recordIds: sorted.slice(first, first + PAGE_RECORDS) };
    for await (const found of findMisplaced(database, page)) {
      for (let from = 0; from < found.length; from += ROWS_MAX) {
        const ids = found.slice(from, from + ROWS_MAX);
        await database.transaction(async (tx) => {
          await lockLanesOf(tx, shardId, ids);
          await alignLocked(tx, shardId, ids, now);
        });
      }
    }
  }
}

/**
 * Does the same for these notifications of a lane and some others: up to ROWS_MAX of each kind among the next of the lane, and of their
 * watched addresses in strict order. Leaves out those of lanes that another transaction has locked.
 */
export async function alignUnlessLocked(
  database: Database,
  lane: Pick<Lane, 'id' | 'shardId'>,
  misplaced: readonly Misplaced[],
  now: Date,
): Promise<void> {
  const recordIds = [...new Set(misplaced.map(({ recordId }) => recordId))];
  const others = await findNext(database, lane, recordIds);
  const ids = [...new Set([...misplaced, ...others].map(({ id }) => id))].slice(0, ROWS_MAX);
  await unlessLocked(database, async (tx) => {
    // The others are left to the next read.
    const free = await tryLockLanesOf(tx, lane.shardId, ids);
    if (free.length > 0) await alignLocked(tx, lane.shardId, free, now);
  });
}

/** Reads only index entries of the lane and of these watched addresses, however many notifications the shard has. */
async function findNext(
  db: Db,
  { id: laneId, shardId }: Pick<Lane, 'id' | 'shardId'>,
  recordIds: readonly string[],
): Promise<{ id: number }[]> {
  const next = (condition: Sql, order: Sql) => sql`(
    select q.id, q.watched_address_id, q.lane_id from queue q where q.shard_id = ${shardId} and ${condition} ${order} limit ${ROWS_MAX})`;
  const ofLane = (attempts: Sql) =>
    next(sql`q.lane_id = ${laneId} and q.state = 'waiting' and ${attempts}`, sql`order by q.due_at, q.id`);
  const inOrder = next(
    sql`q.watched_address_id = any(${listOf(recordIds)}::uuid[]) and q.sequence is not null`,
    sql``,
  );
  return db.query<{ id: number }>(sql`
    select n.id from (
      ${ofLane(sql`q.retry_count = 0`)} union all ${ofLane(sql`q.retry_count > 0`)} union all ${inOrder}) as n
    where not exists (
      select from watched_address w where w.shard_id = ${shardId} and w.id = n.watched_address_id and w.lane_id = n.lane_id)`);
}

type Misplaced = { recordId: string; id: number };

type Search = { shardId: number; recordIds: readonly string[] };
/** Yields a page of ids at a time, and returns the last one. */
type Pages = AsyncGenerator<number[], number[]>;

/**
 * Notifications in the queue whose watched address is deleted or has another lane, by their ids. `queue` has no index on
 * `watched_address_id`, which each delivery would have to write. So the queue of the shard and all notifications of these watched
 * addresses are read in turns. Once there are no more of either, all are found, so this reads at most twice as much as the shorter way.
 */
async function* findMisplaced(db: Db, search: Search): AsyncGenerator<number[]> {
  const ways = [readQueue(db, search), readRecords(db, search)];
  for (;;) {
    for (const way of ways) {
      const { value: ids, done } = await way.next();
      yield ids;
      if (done === true) return;
    }
  }
}

/** Whether a notification with this lane is misplaced: null unless it is in the queue. No lane has the id 0. */
const isMisplaced = (shardId: number, laneId: Sql, recordId: Sql): Sql => sql`
  ${laneId} <> coalesce((
    select w.lane_id from watched_address w where w.shard_id = ${shardId} and w.id = ${recordId}), 0)`;

/**
 * A limit that the planner doesn't know, so that it reads rows in the order of an index. Above its estimate, which for a busy watched
 * address is the average, it would read and sort all rows for each page.
 */
const upTo = (rows: number): Sql => sql`limit (select ${rows}::bigint)`;

async function* readQueue(db: Db, { shardId, recordIds }: Search): Pages {
  const limit = rowsOfPage(recordIds);
  for (let after = -1; ; ) {
    const rows = await db.query<{ id: number; is_last: boolean }>(sql`
      with page as materialized (
        select id, lane_id, watched_address_id from queue where shard_id = ${shardId} and id > ${after}
        order by id ${upTo(limit)}
      )
      select n.id, false as is_last from page n
      where n.watched_address_id = any(${listOf(recordIds)}::uuid[])
        and ${isMisplaced(shardId, sql`n.lane_id`, sql`n.watched_address_id`)}
      union all
      select max(id), true from page having count(*) = ${limit}
      order by is_last, id`);
    const ids = rows.flatMap(({ id, is_last }) => (is_last ? [] : id));
    const last = rows.at(-1);
    if (last?.is_last !== true) return ids;
    yield ids;
    after = last.id;
  }
}

/** Reads an equal number of notifications of each of some watched addresses, until there are no more of it. */
async function* readRecords(db: Db, { shardId, recordIds }: Search): Pages {
  const rowsMax = rowsOfPage(recordIds);
  const recordsMax = Math.floor(rowsMax / RECORD_ROWS);
  for (let left = recordIds.map((id) => ({ id, after: -1 })); ; ) {
    const records = left.slice(0, recordsMax);
    const limit = Math.floor(rowsMax / records.length);
    // A scalar subquery probes the index for each row, where a join could read the whole queue. With an array, only the index of watched
    // addresses has the order. Otherwise the planner may go through all notifications of the shard in the order of their ids.
    const laneId = sql`(select q.lane_id from queue q where q.shard_id = ${shardId} and q.id = n.id)`;
    const rows = await db.query<{ record_id: string; id: number; is_misplaced: boolean | null }>(sql`
      select r.id as record_id, n.id, ${isMisplaced(shardId, laneId, sql`r.id`)} as is_misplaced
      from unnest(
        ${listOf(records.map(({ id }) => id))}::uuid[], ${listOf(records.map(({ after }) => after))}::bigint[]) as r (id, after)
      cross join lateral (
        select o.id from notification o
        where o.shard_id = ${shardId} and o.watched_address_id = any(array[r.id]) and o.id > r.after
        order by o.watched_address_id, o.id ${upTo(limit)}
      ) as n
      order by n.id`);
    const ids = rows.flatMap(({ id, is_misplaced }) => (is_misplaced === true ? id : []));
    const further = [...Map.groupBy(rows, ({ record_id }) => record_id)].flatMap(([id, own]) =>
      own.length < limit ? [] : own.slice(-1).map((last) => ({ id, after: last.id })),
    );
    left = [...further, ...left.slice(recordsMax)];
    if (left.length === 0) return ids;
    yield ids;
  }
}

const waitingOf = (shardId: number, ids: readonly number[]): Sql =>
  sql`n.shard_id = ${shardId} and n.id = any(${listOf(ids)}::bigint[])`;

/** The lanes in which these notifications wait, and those of their watched addresses, with the ids of the notifications. */
const lanesOf = (shardId: number, ids: readonly number[]): Sql => sql`
  select n.id, n.lane_id from queue n where ${waitingOf(shardId, ids)}
  union
  select n.id, w.lane_id from queue n
  join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id where ${waitingOf(shardId, ids)}`;

/** Locks lanes before rows and in the order of their ids, as a worker that settles does. */
async function lockLanesOf(tx: Tx, shardId: number, ids: readonly number[]): Promise<void> {
  await lockLanesIn(tx, sql`select lane_id from (${lanesOf(shardId, ids)}) as l`);
}

/** Locks those of their lanes that are free, and returns the notifications whose lanes are all locked now. */
export async function tryLockLanesOf(tx: Tx, shardId: number, ids: readonly number[]): Promise<number[]> {
  const wanted = await rowsOf(tx, lanesOf(shardId, ids), 'id bigint, lane_id bigint');
  const rows = await tx.query<{ id: number }>(sql`
    with wanted as materialized (select id, lane_id from ${wanted} as l), locked as materialized (
      select id from lane where id in (select lane_id from wanted) order by id for update skip locked
    )
    select id from wanted group by id having bool_and(lane_id in (select id from locked))`);
  return rows.map(({ id }) => id);
}

/**
 * A waiting row that moves may already have been sent by its former lane. A held row has not been sent since it is held, so only leases
 * of its new lane from now on can send it. In strict order a cancelled notification lets the next one advance, and that one is
 * cancelled after it.
 */
async function alignLocked(tx: Tx, shardId: number, ids: readonly number[], now: Date): Promise<void> {
  await lockRows(tx, waitingOf(shardId, ids));
  const cancelled = await moveToEnded(
    tx,
    sql`${waitingOf(shardId, ids)} and not exists (
        select from watched_address w where w.shard_id = n.shard_id and w.id = n.watched_address_id)`,
    { state: 'cancelled', now },
  );
  const epochs = await lanesWithEpochs(tx, lanesOf(shardId, ids));
  const moved = await tx.query<{ lane_id: number }>(sql`
    update queue n set lane_id = l.id, may_be_seen = n.may_be_seen or n.state = 'waiting',
      unsent_epoch = ${unsentEpoch}
    from watched_address w join ${epochs} l on l.id = w.lane_id
    where ${waitingOf(shardId, ids)} and w.shard_id = n.shard_id and w.id = n.watched_address_id
      and n.lane_id <> l.id
    returning n.lane_id`);
  await wakeLanes(tx, [...new Set(moved.map((row) => row.lane_id))], now);
  const ordered = cancelled.flatMap(({ ordered_id: id }) => (id === null ? [] : [{ shardId, id }]));
  await advanceSequences(tx, ordered, now);
}
