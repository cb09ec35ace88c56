/**
 * Records the outcomes of delivery attempts. Spec 3 and 6.2.
 */
import { listOf } from '../db/arrays.ts';
import type { Database, Db, Tx } from '../db/db.ts';
import { tryEachShard } from '../db/each-shard.ts';
import { within } from '../db/shard-rows.ts';
import { frequent, sql } from '../db/sql.ts';
import { unlessLocked } from '../db/unless-locked.ts';
import { isTransferMessage } from './message-kind.ts';
import type { RowKey } from './notification-rows.ts';
import { recordFailures } from './receivers.ts';
import { toRemovalNotices } from './removals.ts';
import { advanceSequences } from './sequence.ts';
import { type Recorded, recordInShards, settleInShard } from './settle-in-shards.ts';
import {
  attemptColumns,
  failuresBefore,
  outcomesOf,
  type Settlement,
  settleEnded,
  settleQueued,
  validOf,
} from './settle-sql.ts';
import { isInShards, isOneOfNotifications } from './shards.ts';

export type { Settlement };

/**
 * Records attempts: a log row for each, and `processed` or the next retry on its notification. Settles only lanes that are
 * still leased under the same epoch. Returns the settlements that were not recorded, whose rows are unchanged: 'lost' if
 * another worker has the lane, 'locked' if another transaction has locked something of that watcher, or if the server of its
 * shard can't be reached while others can (Citus). Settle the latter again.
 *
 * The lanes are locked with `for key share`, so that a worker that takes over waits for these outcomes and doesn't send the same
 * rows again. One group may contain outcomes of a lane's former lease beside those of the current one. A row may have been
 * withdrawn or cancelled while its attempt was in flight, or be held because its transaction was mined again. A 2xx makes
 * such a row processed; a failure leaves its state. If the watched address has `removed` on, an attempt that may have arrived
 * turns a withdrawn row into a removal notice.
 */
export async function settle(
  database: Database,
  settlements: readonly Settlement[],
): Promise<Map<Settlement, Unrecorded>> {
  if (database.isDistributed === true) return settleEachShard(database, settlements);
  // One statement settles nearly all of them without the further round trips of a transaction. The rest take the slow path.
  return settleLeft(database, await settleInOneStatement(database, settlements));
}

/**
 * The same on Citus, with transactions for each shard: one that writes a single worker needs no two-phase commit. If the server of a
 * shard can't be reached, its outcomes are 'locked', so that they don't hold up the others.
 */
async function settleEachShard(
  database: Database,
  settlements: readonly Settlement[],
): Promise<Map<Settlement, Unrecorded>> {
  const elements = settlements.map((settlement) => ({ shardId: settlement.lane.shardId, settlement }));
  const { found, failed } = await tryEachShard(database, elements, async (shardId, own) => {
    const ofShard = own.map(({ settlement }) => settlement);
    const left = await settleLeft(database, await settleInShard(database, shardId, ofShard));
    return [...left];
  });
  const [fault] = failed.values();
  if (fault !== undefined && elements.every(({ shardId }) => failed.has(shardId))) throw fault;
  const unreached = elements.filter(({ shardId }) => failed.has(shardId));
  return new Map([...found, ...unreached.map(({ settlement }) => [settlement, 'locked'] as const)]);
}

type Unrecorded = 'lost' | 'locked';

/** Settles those that the fast path left. */
async function settleLeft(
  database: Database,
  left: readonly Settlement[],
): Promise<Map<Settlement, Unrecorded>> {
  const unrecorded = await settleInTransaction(database, left);
  if (unrecorded !== undefined) return unrecorded;
  // Something of one watcher is locked. Settle each watcher separately, so that it doesn't hold up the others.
  const found = new Map<Settlement, Unrecorded>();
  for (const own of Map.groupBy(left, ({ lane }) => lane.watcherId).values()) {
    const ofWatcher = await settleInTransaction(database, own);
    for (const one of own) {
      const result = ofWatcher === undefined ? 'locked' : ofWatcher.get(one);
      if (result !== undefined) found.set(one, result);
    }
  }
  return found;
}

/** Settles any outcome. Records nothing and returns undefined if it would have to wait for another transaction's lock. */
async function settleInTransaction(
  database: Database,
  settlements: readonly Settlement[],
): Promise<Map<Settlement, Unrecorded> | undefined> {
  const [first] = settlements;
  if (first === undefined) return new Map();
  return unlessLocked(database, async (tx) => {
    const recorded = await record(tx, settlements);
    const untouched = recorded.filter(({ isUpdated }) => !isUpdated).map(({ settlement }) => settlement);
    if (untouched.length > 0) await removeArrived(tx, untouched, first.settledAt);
    const ordered = recorded.flatMap(({ settlement, orderedId: id }) =>
      id === null ? [] : [{ shardId: settlement.lane.shardId, id }],
    );
    const lanes = [...new Set(recorded.map(({ settlement }) => settlement.lane.id))];
    await advanceSequences(tx, ordered, first.settledAt, lanes);
    const known = new Set(recorded.map(({ settlement }) => settlement));
    const left = settlements.filter((settlement) => !known.has(settlement));
    const epochs = await readEpochs(tx, left);
    return new Map(
      left.map((one) => [one, epochs.get(one.lane.id) === one.lane.epoch ? 'locked' : 'lost'] as const),
    );
  });
}

/** The current epochs of the settlements' lanes, read without locking them. */
async function readEpochs(tx: Tx, settlements: readonly Settlement[]): Promise<Map<number, number>> {
  if (settlements.length === 0) return new Map();
  const ids = [...new Set(settlements.map(({ lane }) => lane.id))];
  const rows = await tx.query<{ id: number; epoch: number }>(sql`
    select id, epoch from lane where id = any(${listOf(ids)}::bigint[]) order by id limit ${ids.length}`);
  return new Map(rows.map(({ id, epoch }) => [id, epoch]));
}

/** In another lane, which isn't locked, it may wait for a transaction that locks this one's lanes next. */
const isInItsLane = sql`n.lane_id = s.lane_id`;

/**
 * Settles rows that are unchanged since they were read, still in the lane that sent them, and that no strict order depends on. Returns the
 * other settlements.
 */
async function settleInOneStatement(db: Db, settlements: readonly Settlement[]): Promise<Settlement[]> {
  const rows = await db.query<{ position: number }>(
    frequent(sql`
    with ${validOf(settlements)}, ${settleQueued(sql`n.sequence is null and ${isInItsLane}`)}, logged as (
      insert into delivery_attempt (${attemptColumns}, failures) select ${attemptColumns}, failures from updated order by position
    )${failuresOf(settlements)}
    select position from updated order by position`),
  );
  const settled = new Set(rows.map(({ position }) => position - 1));
  return settlements.filter((_, index) => !settled.has(index));
}

/** For lanes that are still leased: writes the log rows, and updates the notifications whose outcome still counts. */
async function record(tx: Tx, settlements: readonly Settlement[]): Promise<Recorded[]> {
  if (tx.isDistributed === true) return recordInShards(tx, settlements);
  await lockSettled(tx, settlements);
  const rows = await tx.query<{ position: number; is_updated: boolean; ordered_id: string | null }>(sql`
    with ${validOf(settlements)}, ${settleQueued(sql`true`)}, late as (
      ${settleEnded(outcomesOf(sql`valid`))}
      returning s.position, n.shard_id, n.id, n.sequence is not null and n.state = 'processed' as is_ordered,
        case when s.next_retry_at is null then ${failuresBefore} end as failures
    ), logged as (
      insert into delivery_attempt (${attemptColumns}, failures)
      select ${attemptColumns}, coalesce(
        (select u.failures from updated u where u.position = v.position),
        (select l.failures from late l where l.position = v.position)) as failures
      from valid v
      -- The worker repeats a commit whose answer was lost.
      where not exists (
        select from delivery_attempt a
        where a.shard_id = v.shard_id and a.notification_id = v.notification_id and a.started_at = v.started_at)
      order by position
    )${failuresOf(settlements)}
    select v.position, u.position is not null or late.position is not null as is_updated,
      case when u.is_ordered then u.watched_address_id when late.is_ordered then (
        select n.watched_address_id from notification n where n.shard_id = v.shard_id and n.id = v.notification_id
      ) end as ordered_id
    from valid v
    left join updated u on u.shard_id = v.shard_id and u.notification_id = v.notification_id
    left join late on late.shard_id = v.shard_id and late.id = v.notification_id
    order by v.position`);
  return rows.flatMap((row) => {
    const settlement = settlements[row.position - 1];
    return settlement === undefined
      ? []
      : [{ settlement, isUpdated: row.is_updated, orderedId: row.ordered_id }];
  });
}

/** Locks the rows, which other transactions could otherwise move between `queue` and `ended` while this one looks for them. */
async function lockSettled(tx: Tx, settlements: readonly Settlement[]): Promise<void> {
  const keys = (left: readonly Settlement[]) => sql`unnest(
    ${listOf(left.map(({ lane }) => lane.shardId))}::bigint[],
    ${listOf(left.map(({ notificationId }) => notificationId))}::bigint[]) as k (shard_id, id)`;
  const queued = await tx.query<{ id: number }>(sql`
    select q.id from ${keys(settlements)} join queue q on q.shard_id = k.shard_id and q.id = k.id
    order by q.shard_id, q.id for update of q`);
  const found = new Set(queued.map(({ id }) => id));
  const left = settlements.filter(({ notificationId }) => !found.has(notificationId));
  if (left.length === 0) return;
  await tx.query(sql`
    select from ${keys(left)} join notification n on n.shard_id = k.shard_id and n.id = k.id
    order by n.shard_id, n.id for update of n`);
}

/** The CTE that records failing receivers, left out when all attempts succeeded, which is the usual case. */
const failuresOf = (settlements: readonly Settlement[]) =>
  settlements.some(({ nextRetryAt }) => nextRetryAt !== undefined)
    ? sql`, failed as (${recordFailures})`
    : sql``;

/** Sends removal notices for transfers that arrived, or may have arrived, after they were withdrawn. */
async function removeArrived(tx: Tx, untouched: readonly Settlement[], now: Date): Promise<void> {
  const keys = untouched
    .filter(({ mayHaveArrived }) => mayHaveArrived)
    .map(({ lane, notificationId }) => ({ shardId: lane.shardId, id: notificationId }));
  const shards = [...new Set(keys.map(({ shardId }) => shardId))];
  const candidates = await tx.query<RowKey>(sql`
    select n.shard_id, n.id, n.created_at from ended n
    where n.state = 'withdrawn' and ${isInShards(sql`n.shard_id`, shards)} and ${isOneOfNotifications(sql`n.shard_id`, sql`n.id`, keys)}`);
  // On Citus, no worker of another shard holds this up.
  const own = tx.isDistributed === true ? within(tx, shards) : tx;
  const condition = sql`n.state = 'withdrawn' and ${isTransferMessage}`;
  await advanceSequences(tx, await toRemovalNotices(own, { candidates, condition }, now), now);
}
