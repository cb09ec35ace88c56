/**
 * Redelivery on a watcher's request: the same rows with the same ids, on a new schedule.
 */
import { machineSteadyMs } from '../../core/clock.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Tx } from '../db/db.ts';
import { readJson, recordsOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { lockLanes } from './lane-locks.ts';
import { wakeLanes } from './lanes.ts';
import { findKey } from './log.ts';
import type { LogFilter } from './log-filter.ts';
import { findScopedMatches, type Scope } from './log-of-all.ts';
import { isRemovalNotice } from './message-kind.ts';
import { lockRowsOf, readStatuses, watchesOf } from './notification-rows.ts';
import { isOneOfNotifications, type ShardKey } from './shards.ts';

/** Rows of one transaction. Outcomes of their lanes wait for it, some tens of milliseconds. */
const STEP_ROWS = 1_000;

type RedeliveryCursor = {
  /** When the whole redelivery began. A repeated step doesn't redeliver what was processed after this time. */
  startedAt: Date;
  /** The last id of the previous step. */
  after: number | undefined;
};

/**
 * One step through the notifications that match the filter, oldest first. Processed ones start over with a first attempt,
 * waiting ones become due now, all others stay as they are. Returns how many it changed, and the id after which to continue,
 * undefined at the end. Repeating a step changes nothing twice. On Citus a Fault may leave a part of the step done.
 */
export async function redeliverStep(
  database: Database,
  scope: Scope,
  filter: LogFilter,
  { startedAt, after, now }: RedeliveryCursor & { now: Date },
): Promise<{ count: number; next: number | undefined }> {
  const page = { order: 'oldest first', after, limit: STEP_ROWS } as const;
  const { keys, next } = await findScopedMatches(database, scope, filter, page);
  return { count: await redeliverAll(database, { keys, startedAt, now }), next };
}

/** Redelivers one notification. False if there was nothing to change. */
export async function redeliverOne(
  database: Database,
  watcherId: number,
  id: number,
  now: Date,
): Promise<boolean> {
  const key = await findKey(database, watcherId, id);
  if (key === undefined) return false;
  const count = await redeliverAll(database, { keys: [key], startedAt: undefined, now });
  return count > 0;
}

type Wanted = { keys: readonly ShardKey<number>[]; startedAt: Date | undefined; now: Date };

/** The time goes on from the given one, because one that is seconds old would make successes since then seem earlier (see isWanted). */
const movingFrom = (now: Date): (() => Date) => {
  const begunMs = machineSteadyMs();
  return () => new Date(now.getTime() + Math.round(machineSteadyMs() - begunMs));
};

/** On Citus with a transaction for each shard, so that none holds locks of a worker's queues while it asks another one. */
async function redeliverAll(database: Database, wanted: Wanted): Promise<number> {
  const { keys } = wanted;
  const now = movingFrom(wanted.now);
  const isSplit = database.isDistributed === true;
  const groups = isSplit ? Map.groupBy(keys, ({ shardId }) => shardId).values() : [keys];
  let count = 0;
  for (const own of groups) {
    const group = { ...wanted, keys: own, now: now() };
    count += await database.transaction((tx) => redeliver(tx, group));
  }
  return count;
}

/**
 * Moves each notification to the current lane of its watched address. Skips notifications whose watched address is deleted,
 * because there is no URL to send them to. Locks lanes before rows, as `settle` does, so that the two can't deadlock, and watchers last,
 * because on Citus other workers' queues may share them. There the keys are of one shard.
 */
async function redeliver(tx: Tx, wanted: Wanted): Promise<number> {
  const { keys, now } = wanted;
  const sources = await sourcesOf(tx, keys);
  const found = await tx.query<{ shard_id: number; id: number; created_at: Date; lane_id: number }>(sql`
    select n.shard_id, n.id, n.created_at, w.lane_id
    from ${sources.statuses} n join ${sources.watches} w on w.shard_id = n.shard_id and w.id = n.watched_address_id
    where ${isOneOfNotifications(sql`n.shard_id`, sql`n.id`, keys)} and ${isWanted(wanted)}
    order by n.id
    limit ${keys.length}`);
  if (found.length === 0) return 0;
  const laneIds = found.map((row) => row.lane_id);
  await lockLanes(tx, laneIds);
  await lockRowsOf(tx, found);
  const foundKeys = found.map(({ shard_id: shardId, id }) => ({ shardId, id }));
  const redelivered = (statuses: Sql) => sql`
      select n.*, t.lane_id as new_lane_id
      from unnest(
        ${listOf(found.map((row) => row.id))}::bigint[],
        ${listOf(laneIds)}::bigint[]
      ) as t (id, lane_id)
      join ${statuses} n on n.id = t.id
      where ${isOneOfNotifications(sql`n.shard_id`, sql`n.id`, foundKeys)} and ${isWanted(wanted)}`;
  const enqueue = (from: Sql) => sql`
    insert into queue as q (shard_id, id, created_at, watched_address_id, lane_id, state, due_at, sequence, next_retry_at,
      retry_count, redelivery_count, revision, reorg_id, tx_hash, may_be_seen, unsent_epoch)
    select shard_id, id, created_at, watched_address_id, new_lane_id, 'waiting', ${now}, sequence,
      case when next_retry_at is not null then ${now}::timestamptz end,
      case state when 'waiting' then retry_count else 0 end,
      redelivery_count + case state when 'waiting' then 0 else 1 end, revision, reorg_id,
      case when reorg_id is not null then tx_hash end, may_be_seen or lane_id <> new_lane_id, unsent_epoch
    from ${from} r order by id
    on conflict (shard_id, id) do update set lane_id = excluded.lane_id, due_at = excluded.due_at,
      next_retry_at = excluded.next_retry_at, may_be_seen = excluded.may_be_seen
    returning q.id`;
  const run = async () => {
    if (tx.isDistributed !== true)
      return tx.query(sql`
      with redelivered as materialized (${redelivered(sql`notification_status`)}), resumed as (
        delete from ended e using redelivered r where e.shard_id = r.shard_id and e.id = r.id)
      ${enqueue(sql`redelivered`)}`);
    const json = await readJson(tx, redelivered(await readStatuses(tx, foundKeys)));
    const rows = recordsOf(json, REDELIVERED_COLUMNS);
    await tx.query(sql`
      delete from ended where shard_id = ${found[0]?.shard_id} and id in (select id from ${rows} as r)`);
    return tx.query(enqueue(rows));
  };
  const changed = await run();
  await wakeLanes(tx, [...new Set(laneIds)], now);
  return changed.length;
}

/** The view and the watched addresses, or on Citus the rows of these notifications. */
async function sourcesOf(
  tx: Tx,
  keys: readonly ShardKey<number>[],
): Promise<{ statuses: Sql; watches: Sql }> {
  if (tx.isDistributed !== true) return { statuses: sql`notification_status`, watches: sql`watched_address` };
  const statuses = await readStatuses(tx, keys);
  return { statuses, watches: await watchesOf(tx, statuses) };
}

const REDELIVERED_COLUMNS = `shard_id bigint, id bigint, created_at timestamptz, watched_address_id uuid, lane_id bigint,
  new_lane_id bigint, state text, sequence bigint, next_retry_at timestamptz, retry_count integer, redelivery_count integer,
  revision integer, reorg_id bigint, tx_hash bytea, may_be_seen boolean, unsent_epoch bigint`;

/**
 * A waiting row that is already due is left alone, so an attempt under way is not made twice. An orphaned transfer is not sent
 * again, only its removal notice.
 */
function isWanted({ startedAt, now }: Wanted): Sql {
  // Rows processed in the future were processed before the clock was set back: common-clock.ts keeps processes within 4 s.
  return sql`(n.reorg_id is null or ${isRemovalNotice}) and (n.state = 'processed' and (coalesce(n.processed_at, '-infinity') <= ${startedAt ?? 'infinity'}::timestamptz
      or n.processed_at > ${now}::timestamptz + interval '5 seconds')
    or n.state = 'waiting' and n.next_attempt_at > ${now})`;
}
