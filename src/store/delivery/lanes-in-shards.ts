/**
 * What lanes need on Citus, where they are on the coordinator and their notifications are in shards.
 */
import { Fault } from '../../core/fault.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Tx } from '../db/db.ts';
import { groupByWorker } from '../db/lost-shards.ts';
import { forEachShard } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';

/**
 * Advisory lock space of lanes that are being woken, on Citus. A transaction there becomes visible on the coordinator before it does on
 * the workers. Until then a released lane would seem empty. Only after that its advisory locks end.
 */
const WAKE_LOCK_SPACE = 0x6362_000c;
/** Lanes of a shard share this many locks, because PostgreSQL's lock table has no room for one of each lane that a commit may wake. */
const LOCKS_EACH = 16;
/** Never the same for two workers: one that hangs may keep the lock of a lane. */
const wakeKey = sql`(get_shard_id_for_distribution_column('watched_address', l.shard_id) * ${LOCKS_EACH} + l.id % ${LOCKS_EACH})::integer`;

/** Keeps these lanes from being given back until this transaction is visible everywhere. */
export async function announceWaking(tx: Tx, laneIds: readonly number[]): Promise<void> {
  await tx.query(sql`
    select pg_advisory_xact_lock_shared(${WAKE_LOCK_SPACE}, key) from (
      select distinct ${wakeKey} as key from lane l where l.id = any(${laneIds}::bigint[]) order by key) as keys`);
}

/** The lanes that no transaction is waking which is visible here, but not yet in the shards. */
export async function withoutWaking(
  tx: Tx,
  lanes: readonly { id: number; shardId: number }[],
): Promise<Set<number>> {
  const ids = lanes.map(({ id }) => id);
  if (tx.isDistributed !== true) return new Set(ids);
  const rows = await tx.query<{ id: number }>(sql`
    select l.id from unnest(${listOf(ids)}::bigint[], ${listOf(lanes.map(({ shardId }) => shardId))}::bigint[]) as l (id, shard_id)
    where pg_try_advisory_xact_lock(${WAKE_LOCK_SPACE}, ${wakeKey})`);
  return new Set(rows.map(({ id }) => id));
}

/** Selects when each of these lanes of one shard next has something due, `id` and `due_at`, with two index probes for each. */
export function selectNextDue(shardId: number, lanes: readonly { id: number }[]): Sql {
  const earliest = (attempts: Sql) => sql`(
    select due_at from queue
    where shard_id = ${shardId} and lane_id = t.id and state = 'waiting' and ${attempts}
    order by due_at limit 1)`;
  return sql`
    select t.id, least(${earliest(sql`retry_count = 0`)}, ${earliest(sql`retry_count > 0`)}) as due_at
    from unnest(${listOf(lanes.map(({ id }) => id))}::bigint[]) as t (id)`;
}

/** On Citus: a relation with the earliest due times of lane `l`, one of these. Each shard is asked with a separate statement. */
export async function readNextDue(tx: Tx, lanes: readonly { id: number; shardId: number }[]): Promise<Sql> {
  const rows = await forEachShard(lanes, (shardId, own) =>
    tx.query<{ id: number; due_at: Date | null }>(selectNextDue(shardId, own)),
  );
  const due = rows.filter((row) => row.due_at !== null);
  return sql`(
    select r.due_at from unnest(
      ${listOf(due.map(({ id }) => id))}::bigint[], ${due.map((row) => row.due_at)}::timestamptz[]) as r (id, due_at)
    where r.id = l.id)`;
}

/**
 * On Citus: gives each worker's lanes back in a separate transaction, which holds their locks while it asks the worker. Returns the lanes
 * that stay leased, also because their worker can't be reached.
 */
export async function releaseReachable<T extends { shardId: number }>(
  database: Database,
  lanes: readonly T[],
  release: (lanes: readonly T[]) => Promise<Set<T>>,
): Promise<Set<T>> {
  if (lanes.length === 0) return new Set();
  const groups = await groupByWorker(database, lanes);
  const results = await Promise.allSettled(groups.map(release));
  const left = new Set(lanes);
  for (const [index, result] of results.entries()) {
    if (result.status === 'fulfilled') {
      for (const lane of groups[index] ?? []) if (!result.value.has(lane)) left.delete(lane);
    } else if (!(result.reason instanceof Fault) || groups.length === 1) throw result.reason;
  }
  return left;
}
