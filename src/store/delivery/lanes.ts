/**
 * A lane is the delivery queue of one shard for one webhook origin. Workers lease whole lanes, not rows, and every lease
 * gets a new epoch.
 */
import { Fault } from '../../core/fault.ts';
import { SLICES_MAX } from '../../domain/shard.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { isLost, listLostAmong } from '../db/lost-shards.ts';
import { type Sql, sql } from '../db/sql.ts';
import { announceWaking, readNextDue, releaseReachable, withoutWaking } from './lanes-in-shards.ts';
import { shardsOfWatcher } from './shards.ts';
import { freeVisits, isFreeVisit, visitNotAfter } from './visit-schedule.ts';
import { runningWorkers } from './workers.ts';

/**
 * NOTIFY channel. The payload lists the lanes that have something due, or is `*` when there are too many to list. With
 * REORG_PREFIX before it, rows that a worker has already read from those lanes are out of date.
 */
export const LANE_CHANNEL = 'chainbell_lane';
export const REORG_PREFIX = 'reorg ';
/** PostgreSQL limits a NOTIFY payload to 8,000 bytes. */
const PAYLOAD_LANES_MAX = 500;

/** For a row that enters lane `l`: leases of that lane up to this epoch can't have sent the row. */
export const unsentEpoch = sql`case when l.owner is null then l.epoch else l.epoch - 1 end`;

/** A leased lane. `origin` is the scheme, host and port of its webhook URLs. */
export type Lane = { id: number; watcherId: number; shardId: number; origin: string; epoch: number };

/** A lane by what it is for. */
type LaneKey = { shardId: number; origin: string };

/** A watcher with its lanes for some origins. */
export type HeldWatcher = { id: number; slices: number; lanes: Map<string, number> };

const textOf = ({ shardId, origin }: LaneKey) => `${shardId} ${origin}`;

/**
 * Reads the watcher's number of slices and its lanes for these origins, and keeps it from being deleted until the transaction ends.
 * @throws Fault `unauthorized` if its deletion began after the request was authenticated.
 */
export async function holdWatcher(
  db: Db,
  watcherId: number,
  origins: readonly string[],
): Promise<HeldWatcher> {
  const rows = await db.query<{ slices: number; id: number | null; shard_id: number; origin: string }>(sql`
    with owner as materialized (
      select w.slices, ${shardsOfWatcher} as shards from watcher w
      where w.id = ${watcherId} and w.deleting_at is null for key share
    )
    select owner.slices, l.id, l.shard_id, l.origin
    from owner left join lane l on l.shard_id = any(owner.shards) and l.origin = any(${origins}::text[])
    order by l.id limit ${Math.max(origins.length, 1) * SLICES_MAX}`);
  const [first] = rows;
  if (first === undefined) throw new Fault('unauthorized', 'Unauthorized');
  const known = rows.flatMap(({ id, shard_id: shardId, origin }) =>
    id === null ? [] : [[textOf({ shardId, origin }), id] as const],
  );
  return { id: watcherId, slices: first.slices, lanes: new Map(known) };
}

/** The watcher's lanes for these keys, whose origins it was held with. Creates lanes that do not exist. */
export async function ensureLanes(
  db: Db,
  watcher: HeldWatcher,
  keys: readonly LaneKey[],
): Promise<(key: LaneKey) => number> {
  const missing = [...new Map(keys.map((key) => [textOf(key), key]))].filter(
    ([text]) => !watcher.lanes.has(text),
  );
  if (missing.length > 0) {
    // All transactions insert in the same order, so that two that create the same lanes can't deadlock.
    await db.query(sql`
      insert into lane (shard_id, watcher_id, origin)
      select shard_id, ${watcher.id}::bigint, origin
      from unnest(
        ${listOf(missing.map(([, { shardId }]) => shardId))}::bigint[], ${missing.map(([, { origin }]) => origin)}::text[]
      ) as missing (shard_id, origin)
      order by shard_id, origin
      on conflict do nothing`);
    const { lanes } = await holdWatcher(db, watcher.id, [...new Set(keys.map(({ origin }) => origin))]);
    for (const [text, laneId] of lanes) watcher.lanes.set(text, laneId);
  }
  return (key) => {
    const laneId = watcher.lanes.get(textOf(key));
    if (laneId === undefined) throw new Error(`lane ${textOf(key)} is missing`);
    return laneId;
  };
}

/**
 * Marks lanes as having something due now, and notifies the workers when the transaction commits. Call it after the
 * transaction's other statements. It locks lanes by id, then watchers by id, so that transactions that wake the same lanes
 * can't deadlock. `shared`: lanes that this transaction has locked with a key share. It only notifies the workers of those that are leased,
 * which is enough while they can't be released: two transactions that share a lane would wait for each other.
 */
export async function wakeLanes(
  tx: Tx,
  laneIds: readonly number[],
  now: Date,
  reason: 'due' | 'reorg' = 'due',
  shared: readonly number[] = [],
): Promise<void> {
  if (laneIds.length === 0) return;
  const isShared = sql`id = any(${shared}::bigint[]) and owner is not null`;
  if (tx.isDistributed === true) await announceWaking(tx, laneIds);
  await tx.query(sql`
    with locked as materialized (
      select id, watcher_id, next_due from lane
      where id = any(${laneIds}::bigint[]) and not (${isShared}) order by id for update
    ), woken as (
      update lane l set next_due = ${now} from locked
      where l.id = locked.id and (locked.next_due is null or locked.next_due > ${now})
    )
    ${visitNotAfter(sql`select watcher_id, min(${now}::timestamptz) as next_due from locked group by watcher_id`)}`);
  const lanes = laneIds.length <= PAYLOAD_LANES_MAX ? laneIds.join(',') : '*';
  const payload = reason === 'reorg' ? `${REORG_PREFIX}${lanes}` : lanes;
  await tx.query(sql`select pg_notify(${LANE_CHANNEL}, ${payload})`);
}

/**
 * Whether the process has followed all steps of the common clock. If it has not, its `now` is from before a step and may be
 * far from the times in the database.
 */
export const hasFollowedClock = (stepsMs: number) =>
  sql`(select steps_ms from clock_state) = ${stepsMs}::bigint`;

/** Watchers that one lease may visit, and lanes that it may take from each. */
export const VISIT_WATCHERS_MAX = 128;
export const VISIT_LANES_MAX = 4;

type LeaseRequest = {
  owner: number;
  now: Date;
  /** Sum of the clock steps that this process has followed. Nothing is leased while it misses one. */
  stepsMs?: number;
  leaseUntil: Date;
  /** Watchers to skip: they have no room for another lane in this process. */
  full?: readonly number[];
  /** At most VISIT_WATCHERS_MAX. */
  watchersMax?: number;
  /** Lanes of each watcher, at most VISIT_LANES_MAX. */
  lanesEach?: number;
};

/**
 * Visits the watchers with something due, the one visited longest ago first, and leases due lanes of each that have no
 * owner, except those of lost shards. Each lease increments the lane's epoch. A visited watcher goes to the end of the queue, which all
 * workers share.
 * `drained` lists the watchers that had fewer lanes than a visit may take: call `scheduleNextVisits` for them.
 */
export async function leaseLanes(
  db: Db,
  { owner, now, stepsMs = 0, leaseUntil, full = [], ...limits }: LeaseRequest,
): Promise<{ leased: Lane[]; drained: number[]; visited: number }> {
  const { watchersMax = VISIT_WATCHERS_MAX, lanesEach = VISIT_LANES_MAX } = limits;
  const isReachable = db.isDistributed === true ? sql` and not ${isLost(sql`shard_id`)}` : sql``;
  const rows = await db.query<{ watcher_id: number } & (LaneRow | { id: null })>(sql`
    with due_watcher as materialized (
      select watcher_id from watcher_queue
      where next_due <= ${now} and not suspended and watcher_id <> all(${listOf(full)}::bigint[])
        and ${hasFollowedClock(stepsMs)}
      order by next_due limit ${watchersMax}
      for update skip locked
    ), picked as materialized (
      select l.id from due_watcher cross join lateral (
        select id from lane
        where lane.watcher_id = due_watcher.watcher_id and owner is null and next_due is not null and next_due <= ${now}${isReachable}
        order by next_due limit ${lanesEach}
        for update skip locked) as l
    ), leased as (
      update lane set owner = ${owner}, epoch = epoch + 1, lease_until = ${leaseUntil}
      from picked where lane.id = picked.id
      returning lane.id, lane.watcher_id, shard_id, origin, epoch
    ), visited as (
      update watcher_queue q set next_due = ${now} from due_watcher where q.watcher_id = due_watcher.watcher_id
    )
    select due_watcher.watcher_id, leased.id, shard_id, origin, epoch
    from due_watcher left join leased on leased.watcher_id = due_watcher.watcher_id
    order by leased.id`);
  const counts = new Map<number, number>();
  const leased: Lane[] = [];
  for (const { watcher_id: watcherId, ...row } of rows) {
    const count = counts.get(watcherId) ?? 0;
    counts.set(watcherId, row.id === null ? count : count + 1);
    if (row.id === null) continue;
    leased.push({ id: row.id, watcherId, shardId: row.shard_id, origin: row.origin, epoch: row.epoch });
  }
  const drained = [...counts].filter(([, count]) => count < lanesEach).map(([id]) => id);
  return { leased, drained, visited: counts.size };
}

type LaneRow = { id: number; shard_id: number; origin: string; epoch: number };

/**
 * Extends the leases of a worker, by its present and former numbers, on these lanes. `kept` are the lanes that it still owns.
 * `locked` are those of them whose leases are not extended because another transaction has locked them. No other worker can take
 * those until it ends. Settlements don't hold up a renewal: on a busy lane, one of them is nearly always under way.
 */
export async function renewLeases(
  db: Db,
  {
    owners,
    laneIds,
    leaseUntil,
  }: { owners: readonly number[]; laneIds: readonly number[]; leaseUntil: Date },
): Promise<{ kept: Set<number>; locked: number[] }> {
  const isOwn = sql`owner = any(${listOf(owners)}::bigint[]) and id = any(${laneIds}::bigint[])`;
  const rows = await db.query<{ id: number; is_extended: boolean }>(sql`
    with free as materialized (
      select id from lane where ${isOwn} order by id for no key update skip locked
    ), extended as (
      update lane set lease_until = ${leaseUntil} from free where lane.id = free.id
      returning lane.id
    )
    select id, id in (select id from extended) as is_extended from lane where ${isOwn} order by id`);
  return {
    kept: new Set(rows.map((row) => row.id)),
    locked: rows.flatMap((row) => (row.is_extended ? [] : [row.id])),
  };
}

/**
 * Gives lanes back and stores when each next has something due. That is never before now, so that a lane which gives way
 * comes after those that already wait. Does nothing for lanes whose lease is lost. Returns the lanes that it could not give
 * back because another transaction has locked them or their watchers' visits, or because their shard can't be reached (Citus).
 */
export async function releaseLanes(
  database: Database,
  lanes: readonly Lane[],
  now: Date,
): Promise<Set<Lane>> {
  const release = (own: readonly Lane[]) => releaseTogether(database, own, now);
  if (database.isDistributed !== true) return release(lanes);
  const lost = await listLostAmong(database, [...new Set(lanes.map(({ shardId }) => shardId))]);
  const [absent, present] = [true, false].map((isAbsent) =>
    lanes.filter(({ shardId }) => lost.has(shardId) === isAbsent),
  );
  const left = await releaseUnasked(database, absent ?? [], now);
  return left.union(await releaseReachable(database, present ?? [], release));
}

/** The same without asking the shards: as if something were due now. A worker asks when the shards have caught up. */
async function releaseUnasked(database: Database, lanes: readonly Lane[], now: Date): Promise<Set<Lane>> {
  if (lanes.length === 0) return new Set();
  const rows = await database.query<{ id: number }>(sql`
    with held as materialized (
      select l.id, l.watcher_id from ${heldOf(lanes)} order by l.id for update of l skip locked
    ), ${freeVisits(sql`select watcher_id from held`)}, released as (
      update lane l set owner = null, lease_until = null, next_due = ${now} from held
      where l.id = held.id and ${isFreeVisit(sql`held.watcher_id`)}
      returning l.id, l.watcher_id, l.next_due
    ), noted as (
      ${visitNotAfter(sql`select watcher_id, min(next_due) as next_due from released group by watcher_id`)}
    )
    select l.id from ${heldOf(lanes)} where l.id not in (select id from released) order by l.id`);
  const left = new Set(rows.map(({ id }) => id));
  return new Set(lanes.filter(({ id }) => left.has(id)));
}

/** The lanes `l` among these that are still leased under the same epoch. */
const heldOf = (lanes: readonly Lane[]): Sql => sql`
  unnest(
    ${listOf(lanes.map(({ id }) => id))}::bigint[], ${listOf(lanes.map(({ epoch }) => epoch))}::bigint[]
  ) as leased (id, epoch)
  join lane l on l.id = leased.id and l.epoch = leased.epoch`;

async function releaseTogether(database: Database, lanes: readonly Lane[], now: Date): Promise<Set<Lane>> {
  const earliest = (attempts: Sql) => sql`(
    select due_at from queue
    where shard_id = l.shard_id and lane_id = l.id and state = 'waiting' and ${attempts}
    order by due_at limit 1)`;
  return database.transaction(async (tx) => {
    // The locks are a separate statement. The update then sees the notifications of every transaction that held them
    // before, and a later transaction waits for this one and wakes the lanes again.
    const held = heldOf(lanes);
    // On Citus, visits are locked after the shards have answered, because watchers have lanes of several workers.
    const isDistributed = tx.isDistributed === true;
    const rows = await tx.query<{ id: number; is_free: boolean }>(sql`
      with free as materialized (
        select l.id, l.watcher_id from ${held} order by l.id for update of l skip locked
      )${isDistributed ? sql`` : sql`, ${freeVisits(sql`select watcher_id from free`)}`}
      select l.id, l.id in (select id from free) and ${isDistributed ? sql`true` : isFreeVisit(sql`l.watcher_id`)} as is_free
      from ${held} order by l.id`);
    const freeIds = new Set(rows.flatMap((row) => (row.is_free ? [row.id] : [])));
    const free = await withoutWaking(
      tx,
      lanes.filter(({ id }) => freeIds.has(id)),
    );
    const ready = lanes.filter(({ id }) => free.has(id));
    const nextDue = isDistributed
      ? await readNextDue(tx, ready)
      : sql`(${earliest(sql`retry_count = 0`)} union all ${earliest(sql`retry_count > 0`)})`;
    const own = isDistributed ? await withFreeVisits(tx, ready) : ready;
    const stillHeld = new Set(rows.map(({ id }) => id));
    const owned = new Set(own);
    const left = new Set(lanes.filter((lane) => stillHeld.has(lane.id) && !owned.has(lane)));
    if (own.length === 0) return left;
    await tx.query(sql`
      with released as (
        update lane l set owner = null, lease_until = null, next_due = (
          select greatest(min(due_at), ${now}::timestamptz)
          from ${nextDue} as next
          having min(due_at) is not null)
        where id = any(${own.map(({ id }) => id)}::bigint[])
        returning watcher_id, next_due
      )
      ${visitNotAfter(sql`select watcher_id, min(next_due) as next_due from released group by watcher_id`)}`);
    return left;
  });
}

/** The lanes of watchers whose visits no other transaction has locked. Locks those. */
async function withFreeVisits(tx: Tx, lanes: readonly Lane[]): Promise<Lane[]> {
  const watcherIds = listOf([...new Set(lanes.map(({ watcherId }) => watcherId))]);
  const rows = await tx.query<{ id: number }>(sql`
    with ${freeVisits(sql`select unnest(${watcherIds}::bigint[])`)}
    select id from unnest(${watcherIds}::bigint[]) as w (id) where ${isFreeVisit(sql`w.id`)} order by id`);
  const free = new Set(rows.map(({ id }) => id));
  return lanes.filter(({ watcherId }) => free.has(watcherId));
}

/** Workers, by their numbers. */
export type Owners = readonly number[] | 'all';

/**
 * Frees the lanes of `own` numbers, those of the `gone` ones whose session, and with it their advisory lock, has ended, and those of
 * the `late` ones whose lease has ended. While this process misses a step of the clock it can't know which leases have ended. Leaves
 * lanes that are locked, or whose watcher's visit is, to the next call, and never frees those in `except`. Returns how many lanes it
 * freed, how many lanes of `own` numbers it left, and all numbers that own lanes and have no lock (`unlocked`), or have one of which the
 * lease has ended (`overdue`).
 */
export async function freeAbandonedLanes(
  db: Db,
  options: {
    now: Date;
    stepsMs?: number;
    except?: readonly number[];
    own?: readonly number[];
    gone?: Owners;
    late?: Owners;
  },
): Promise<{ freed: number; left: number; unlocked: number[]; overdue: number[] }> {
  const { now, stepsMs = 0, except = [], own = [], gone = 'all', late = 'all' } = options;
  const isOneOf = (owners: Owners) =>
    owners === 'all' ? sql`true` : sql`owner = any(${listOf(owners)}::bigint[])`;
  const isOwn = sql`owner = any(${listOf(own)}::bigint[])`;
  const isFree = sql`owner is not null and id <> all(${listOf(except)}::bigint[])`;
  const isOver = sql`lease_until <= ${now} and ${hasFollowedClock(stepsMs)}`;
  type Row = { owner: number; is_unlocked: boolean; is_overdue: boolean; freed: number; left: number };
  const rows = await db.query<Row | (Row & { owner: null })>(sql`
    with holder as materialized (
      select owner, owner not in (${runningWorkers}) as is_unlocked, bool_or(${isFree} and ${isOver}) as is_overdue
      from lane where owner is not null group by owner
    ), abandoned as materialized (
      select id, watcher_id from lane
      where ${isFree} and (${isOwn} or ${isOneOf(late)} and ${isOver}
        or ${isOneOf(gone)} and owner in (select owner from holder where is_unlocked))
      order by id for update skip locked
    ), ${freeVisits(sql`select watcher_id from abandoned`)}, freed as (
      update lane l set owner = null, lease_until = null from abandoned
      where l.id = abandoned.id and ${isFreeVisit(sql`abandoned.watcher_id`)}
      returning l.id, l.watcher_id, l.next_due
    ), noted as (
      ${visitNotAfter(sql`select watcher_id, min(next_due) as next_due from freed group by watcher_id`)}
    )
    select owner, is_unlocked, is_overdue, 0 as freed, 0 as left from holder where is_unlocked or is_overdue
    union all select null, false, false, (select count(*) from freed),
      (select count(*) from lane where ${isFree} and ${isOwn} and id not in (select id from freed))`);
  const sums = rows.find(({ owner }) => owner === null);
  const ownersOf = (isOne: (row: Row) => boolean) =>
    rows.flatMap((row) => (row.owner !== null && isOne(row) ? [row.owner] : []));
  return {
    freed: sums?.freed ?? 0,
    left: sums?.left ?? 0,
    unlocked: ownersOf((row) => row.is_unlocked),
    overdue: ownersOf((row) => row.is_overdue),
  };
}
