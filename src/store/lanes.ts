/**
 * Lanes: all work of one shard for one webhook origin. Workers lease lanes, not rows; every lease has a new epoch.
 */
import type { Database, Db, Tx } from './db.ts';
import { type Sql, sql } from './sql.ts';

/**
 * NOTIFY channel; the payload lists the lanes that have something due, or is `*` for "look yourself". With REORG_PREFIX
 * before it, rows of those lanes that were read before are out of date.
 */
export const LANE_CHANNEL = 'chainbell_lane';
export const REORG_PREFIX = 'reorg ';
/** NOTIFY payloads end at 8,000 bytes. */
const PAYLOAD_LANES_MAX = 500;
/** Advisory lock space of delivery workers: the key is the worker's number. Its end means the worker's end. */
export const WORKER_LOCK_SPACE = 0x6362_0003;

/** For a row that comes into lane `l`: its leases up to this epoch can't have sent the row. */
export const unsentEpoch = sql`case when l.owner is null then l.epoch else l.epoch - 1 end`;

/** A leased lane. `origin` is the webhooks' scheme, host and port. */
export type Lane = { id: number; shardId: number; origin: string; epoch: number };

/** The lane of a shard and a webhook origin, made when it is new. */
export async function ensureLane(db: Db, shardId: number, origin: string): Promise<number> {
  const laneId = (await ensureLanes(db, shardId, [origin])).get(origin);
  if (laneId === undefined) throw new Error(`lane ${shardId} ${origin} is missing`);
  return laneId;
}

/** The lanes of a shard by webhook origin, made when they are new; each origin once. */
export async function ensureLanes(
  db: Db,
  shardId: number,
  origins: readonly string[],
): Promise<Map<string, number>> {
  const list = async () => {
    const rows = await db.query<{ id: number; origin: string }>(sql`
      select id, origin from lane where shard_id = ${shardId} and origin = any(${origins}::text[])
      order by id limit ${origins.length}`);
    return new Map(rows.map(({ id, origin }) => [origin, id]));
  };
  const known = await list();
  if (known.size === origins.length) return known;
  // In one order, so that two who make the same lanes wait for each other one way round only.
  await db.query(sql`
    insert into lane (shard_id, origin) select ${shardId}::bigint, origin from unnest(${origins}::text[]) as origin
    order by origin
    on conflict do nothing`);
  return list();
}

/**
 * Marks lanes as having something due now and tells the workers, when the transaction commits. Their rows are locked in
 * the order of their ids, so that transactions that wake the same lanes take turns.
 */
export async function wakeLanes(
  tx: Tx,
  laneIds: readonly number[],
  now: Date,
  reason: 'due' | 'reorg' = 'due',
): Promise<void> {
  if (laneIds.length === 0) return;
  await tx.query(sql`
    update lane set next_due = least(next_due, ${now})
    where id in (select id from lane where id = any(${laneIds}::bigint[]) order by id for update)`);
  const lanes = laneIds.length <= PAYLOAD_LANES_MAX ? laneIds.join(',') : '*';
  const payload = reason === 'reorg' ? `${REORG_PREFIX}${lanes}` : lanes;
  await tx.query(sql`select pg_notify(${LANE_CHANNEL}, ${payload})`);
}

/** Whether `stepsMs` are all steps of the clock: else `now` is of before a step, and may be far from the schedule. */
export const isOfThisTime = (stepsMs: number) => sql`(select steps_ms from clock_state) = ${stepsMs}::bigint`;

/**
 * Leases up to `limit` lanes that have something due and no living owner; their epochs go up by one. None while the
 * process has not followed all `stepsMs` of the clock.
 */
export async function leaseLanes(
  db: Db,
  {
    owner,
    now,
    stepsMs = 0,
    leaseUntil,
    limit,
  }: { owner: number; now: Date; stepsMs?: number; leaseUntil: Date; limit: number },
): Promise<Lane[]> {
  const rows = await db.query<{ id: number; shard_id: number; origin: string; epoch: number }>(sql`
    update lane set owner = ${owner}, epoch = epoch + 1, lease_until = ${leaseUntil}
    where id in (
      select id from lane
      where next_due <= ${now} and (owner is null or lease_until <= ${now}) and ${isOfThisTime(stepsMs)}
      order by next_due
      limit ${limit}
      for update skip locked
    )
    returning id, shard_id, origin, epoch`);
  return rows.map(({ id, shard_id: shardId, origin, epoch }) => ({ id, shardId, origin, epoch }));
}

/** Extends the worker's leases on these lanes; returns those that it still has. */
export async function renewLeases(
  db: Db,
  { owner, laneIds, leaseUntil }: { owner: number; laneIds: readonly number[]; leaseUntil: Date },
): Promise<Set<number>> {
  const rows = await db.query<{ id: number }>(sql`
    update lane set lease_until = ${leaseUntil}
    where owner = ${owner} and id = any(${laneIds}::bigint[])
    returning id`);
  return new Set(rows.map((row) => row.id));
}

/**
 * Gives a lane back and notes when it next has something due: now at the earliest, so that a lane which gives way comes
 * after those that wait. Does nothing when the lease is lost.
 */
export async function releaseLane(
  database: Database,
  { id, shardId, epoch }: Lane,
  now: Date,
): Promise<void> {
  const earliest = (attempts: Sql) => sql`(
    select next_attempt_at from notification
    where shard_id = ${shardId} and lane_id = ${id} and state = 'waiting' and ${attempts}
    order by next_attempt_at limit 1)`;
  await database.transaction(async (tx) => {
    // The lock comes in a statement of its own: the next one then sees every notification whose commit could not wake
    // this lane before it, and a later commit waits for this one and wakes it again.
    const [own] = await tx.query(sql`select id from lane where id = ${id} and epoch = ${epoch} for update`);
    if (own === undefined) return;
    await tx.query(sql`
      update lane set owner = null, lease_until = null, next_due = (
        select greatest(min(next_attempt_at), ${now}::timestamptz)
        from (${earliest(sql`retry_count = 0`)} union all ${earliest(sql`retry_count > 0`)}) as next
        having min(next_attempt_at) is not null)
      where id = ${id}`);
  });
}

/** The numbers of the living workers. */
export const livingWorkers = sql`
  select objid::bigint from pg_locks
  where locktype = 'advisory' and classid = ${WORKER_LOCK_SPACE} and granted
    and database = (select oid from pg_database where datname = current_database())`;

/** Takes the lanes of dead workers, whose advisory lock is free. Returns how many. */
export async function freeDeadLanes(db: Db): Promise<number> {
  const rows = await db.query(sql`
    update lane set owner = null, lease_until = null
    where owner is not null and owner not in (${livingWorkers})
    returning id`);
  return rows.length;
}

/** How many workers live, and how many lanes they and this one among them have at work, all of one moment. */
export async function countWorkers(
  db: Db,
  owner: number,
): Promise<{ workers: number; lanes: number; own: number }> {
  const [counts] = await db.query<{ workers: number; lanes: number; own: number }>(sql`
    select (select count(*) from (${livingWorkers}) as w) as workers, count(*) as lanes,
      count(*) filter (where owner = ${owner}) as own
    from lane where owner is not null`);
  return counts ?? { workers: 0, lanes: 0, own: 0 };
}

/** When the earliest lane without an owner has something due. */
export async function findNextDue(db: Db): Promise<Date | undefined> {
  const [row] = await db.query<{ next_due: Date }>(
    sql`select next_due from lane where next_due is not null and owner is null order by next_due limit 1`,
  );
  return row?.next_due;
}
