/**
 * Repairs the schedule where it is too far ahead: by rows that a process wrote before it followed a step of the clock, or before a step
 * that no process noticed. Usually there are none, so it looks without locks first, and then locks only the lanes that it changes.
 */
import type { Clock } from '../../core/clock.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { listLost, requireAnswers, withoutLost } from '../db/lost-shards.ts';
import { forEachShard, inReach, rowsOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { wakeLanes } from '../delivery/lanes.ts';
import { scheduleNextVisits } from '../delivery/visit-schedule.ts';
import { readClockState } from './clock-steps.ts';

type Timing = { clock: Clock; leaseMs: number; retryMinutes: readonly number[] };

/** Rows that one transaction brings back. Block commits wait that long for their lanes. */
const ROWS_MAX = 1_000;
/**
 * Lanes or visits that one statement reads and one transaction changes. Each lane takes two index probes; on Citus a page takes a scan of
 * the shards.
 */
const PAGE_MAX = 10_000;
/** More than the clocks of processes differ. What is less far ahead is not late. */
const MARGIN_MS = 1_000;

const withMargin = (time: Date): Date => new Date(time.getTime() + MARGIN_MS);
const margin = sql`${MARGIN_MS}::bigint * interval '1 ms'`;

/**
 * Brings back rows that are further in the future than their retry interval, lanes that are due after their rows, visits after their
 * lanes, and leases that last longer than a lease. Changes nothing while this process has not followed all steps, because its time would
 * bring everything back too far. 'partly': on Citus, without lost shards.
 */
export async function repairSchedule(
  database: Database,
  timing: Timing,
): Promise<'repaired' | 'partly' | 'unchanged'> {
  await requireAnswers(database, 'present', 'the repair of the schedule');
  const lost = await listLost(database);
  const present = await withoutLost(database, lost);
  const isDone =
    (await readClockState(database)).stepsMs === timing.clock.stepsMs() &&
    (await repairRows(present, timing)) &&
    (await repairLanes(present, timing));
  if (!isDone) return 'unchanged';
  await repairVisits(database, timing.clock);
  return lost.length === 0 ? 'repaired' : 'partly';
}

/**
 * Locks lanes in the same order as `followStep`, and then reads the time: what others scheduled while this waited must not seem too far
 * ahead. Undefined if this process has not followed all steps. No process can follow another one before the transaction ends.
 */
async function lockLanes(tx: Tx, clock: Clock, laneIds: readonly number[]): Promise<Date | undefined> {
  await tx.query(sql`
    select count(*) from (
      select id from lane where id = any(${listOf(laneIds)}::bigint[]) order by id for update) as locked`);
  const [state] = await tx.query<{ steps_ms: number }>(sql`select steps_ms from clock_state for share`);
  return state?.steps_ms === clock.stepsMs() ? clock.now() : undefined;
}

type LateRow = { shardId: number; id: number; laneId: number };

/** Returns false if this process has not followed all steps. */
async function repairRows(database: Database, timing: Timing): Promise<boolean> {
  if (!(await hasLateRows(database, timing))) return true;
  let last: LateRow | undefined;
  for (;;) {
    const rows = await listLateRows(database, timing, last);
    if (rows.length > 0 && !(await bringBackRows(database, rows, timing))) return false;
    if (rows.length < ROWS_MAX) return true;
    last = rows.at(-1);
  }
}

/** Whether row `n` is too late. */
function isLate(db: Db, { clock, retryMinutes }: Timing): Sql {
  const now = withMargin(clock.now());
  return sql`n.state = 'waiting' and n.due_at > ${now} and n.due_at > ${latestOf(now, retryMinutes)}${inReach(db, sql`n.shard_id`)}`;
}

/**
 * Whether there is a row that is too late. Usually there is none. Then this reads the whole table in the order of its pages: half a second for a
 * million rows.
 */
async function hasLateRows(db: Db, timing: Timing): Promise<boolean> {
  const rows = await db.query(sql`select n.id from queue n where ${isLate(db, timing)} limit 1`);
  return rows.length > 0;
}

async function listLateRows(db: Db, timing: Timing, after: LateRow | undefined): Promise<LateRow[]> {
  const rows = await db.query<{ shard_id: number; id: number; lane_id: number }>(sql`
    select n.shard_id, n.id, n.lane_id from queue n
    where ${isLate(db, timing)} and (n.shard_id, n.id) > (${after?.shardId ?? 0}::bigint, ${after?.id ?? 0}::bigint)
    order by n.shard_id, n.id limit ${ROWS_MAX}`);
  return rows.map(({ id, shard_id: shardId, lane_id: laneId }) => ({ id, shardId, laneId }));
}

async function bringBackRows(
  database: Database,
  rows: readonly LateRow[],
  { clock, retryMinutes }: Timing,
): Promise<boolean> {
  const laneIds = [...new Set(rows.map(({ laneId }) => laneId))];
  return database.transaction(async (tx) => {
    const now = await lockLanes(tx, clock, laneIds);
    if (now === undefined) return false;
    const latest = latestOf(now, retryMinutes);
    await forEachShard(rows, (shardId, own) =>
      tx.query(sql`
        update queue n set
          due_at = ${latest},
          next_retry_at = case when next_retry_at is not null then ${latest} end
        where shard_id = ${shardId} and id = any(${listOf(own.map(({ id }) => id))}::bigint[])
          and lane_id = any(${listOf(laneIds)}::bigint[]) and state = 'waiting'
          and due_at > ${latestOf(withMargin(now), retryMinutes)}`),
    );
    await wakeLanes(tx, laneIds, now);
    return true;
  });
}

/** The latest time at which notification `n` may be due: its retry interval from now after a failure, otherwise now. */
function latestOf(now: Date, retryMinutes: readonly number[]): Sql {
  const times = [0, ...retryMinutes].map((minutes) => new Date(now.getTime() + minutes * 60_000));
  return sql`(${times}::timestamptz[])[least(n.retry_count, ${retryMinutes.length}::integer) + 1]`;
}

/** Returns false if this process has not followed all steps. */
async function repairLanes(database: Database, timing: Timing): Promise<boolean> {
  let after = 0;
  for (;;) {
    const page = await readLanes(database, timing, after);
    const late = page.filter(({ isLate }) => isLate).map(({ id }) => id);
    const leased = page.filter(({ isLong }) => isLong).map(({ id }) => id);
    if (late.length + leased.length > 0 && !(await bringBackLanes(database, { late, leased }, timing)))
      return false;
    if (page.length < PAGE_MAX) return true;
    after = page.at(-1)?.id ?? after;
  }
}

/** A page of lanes that wait. `isLate`: something in it is due before it. `isLong`: its lease is too long. */
async function readLanes(
  db: Db,
  { clock, leaseMs }: Timing,
  after: number,
): Promise<{ id: number; isLate: boolean; isLong: boolean }[]> {
  const now = withMargin(clock.now());
  const leaseUntil = new Date(now.getTime() + leaseMs);
  const page = sql`(
    select id, shard_id, next_due, lease_until from lane
    where id > ${after} and (next_due > ${now} or lease_until > ${leaseUntil})${inReach(db, sql`shard_id`)}
    order by id limit ${PAGE_MAX})`;
  const rows = await db.query<{ id: number; is_late: boolean; is_long: boolean }>(sql`
    select l.id, coalesce(l.next_due > ${now} and l.next_due > e.due_at + ${margin}, false) as is_late,
      coalesce(l.lease_until > ${leaseUntil}, false) as is_long
    from ${page} as l left join ${await earliestOf(db, page)} order by l.id`);
  return rows.map(({ id, is_late: isLate, is_long: isLong }) => ({ id, isLate, isLong }));
}

/** When something in lane `l` of the page is due first: `e.due_at`. */
async function earliestOf(db: Db, page: Sql): Promise<Sql> {
  if (db.isDistributed !== true) {
    const earliest = (attempts: Sql) => sql`(
      select due_at from queue
      where shard_id = l.shard_id and lane_id = l.id and state = 'waiting' and ${attempts}
      order by due_at limit 1)`;
    return sql`lateral (
      select least(${earliest(sql`retry_count = 0`)}, ${earliest(sql`retry_count > 0`)}) as due_at) as e on true`;
  }
  const lanes = await db.query<{ id: number }>(sql`select id from ${page} as l order by id`);
  const rows = await rowsOf(
    db,
    sql`
      select lane_id, min(due_at) as due_at from queue
      where lane_id = any(${listOf(lanes.map(({ id }) => id))}::bigint[]) and state = 'waiting'${inReach(db, sql`shard_id`)}
      group by lane_id`,
    'lane_id bigint, due_at timestamptz',
  );
  return sql`${rows} as e on e.lane_id = l.id`;
}

async function bringBackLanes(
  database: Database,
  { late, leased }: { late: readonly number[]; leased: readonly number[] },
  { clock, leaseMs }: Timing,
): Promise<boolean> {
  return database.transaction(async (tx) => {
    const now = await lockLanes(tx, clock, [...new Set([...late, ...leased])]);
    if (now === undefined) return false;
    await tx.query(sql`
      update lane set lease_until = least(lease_until, ${new Date(now.getTime() + leaseMs)}::timestamptz)
      where id = any(${listOf(leased)}::bigint[]) and owner is not null`);
    await wakeLanes(tx, late, now);
    return true;
  });
}

/** Schedules visits again that come after a free lane of their watcher is due. */
async function repairVisits(database: Database, clock: Clock): Promise<void> {
  let after = 0;
  for (;;) {
    const now = clock.now();
    const rows = await database.query<{ watcher_id: number }>(sql`
      select watcher_id from watcher_queue q
      where watcher_id > ${after} and next_due > ${withMargin(now)} and exists (
        select from lane l
        where l.watcher_id = q.watcher_id and l.owner is null and l.next_due is not null and l.next_due < q.next_due - ${margin})
      order by watcher_id limit ${PAGE_MAX}`);
    const watcherIds = rows.map((row) => row.watcher_id);
    await scheduleNextVisits(database, watcherIds, now);
    if (watcherIds.length < PAGE_MAX) return;
    after = watcherIds.at(-1) ?? after;
  }
}
