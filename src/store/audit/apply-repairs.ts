/**
 * Repairs differences that `verify` found. A repair is applied only if its block and its row are the ones that were compared.
 */
import { type Address, fromBytes, type Hash, toBytes } from '../../core/hex.ts';
import type { BlockId, Transfer } from '../../domain/block.ts';
import { watcherOfShard } from '../../domain/shard.ts';
import { findTip } from '../blocks/blocks.ts';
import { lockForIds } from '../blocks/commit-lock.ts';
import { endReorg, isSentAndOrphaned, orphanNotifications, type ReadNow } from '../blocks/reorgs.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Tx } from '../db/db.ts';
import { requireAnswers, requireNoneLost } from '../db/lost-shards.ts';
import { readJson, recordsOf, rowsOf } from '../db/shard-rows.ts';
import { sql } from '../db/sql.ts';
import { lockLanesIn } from '../delivery/lane-locks.ts';
import { unsentEpoch, wakeLanes } from '../delivery/lanes.ts';
import {
  isRemovalNotice,
  isTransferMessage,
  transferRevision,
  transferSequence,
} from '../delivery/message-kind.ts';
import { isOfTransaction, lockRows } from '../delivery/notification-rows.ts';
import { advanceSequences, type OrderedRecord } from '../delivery/sequence.ts';
import { isDeferred } from '../matching/deferred.ts';
import { addressOf, insertNotifications, listMatches } from '../matching/matching.ts';
import { recomputeDay, recomputeMonth, recomputeVolume } from './sums.ts';

/** Identifies a notification in the version that was compared. */
type Row = { shardId: number; id: number; version: string };

export type Repair =
  /** Creates a notification that is missing. */
  | {
      action: 'create';
      shardId: number;
      watchedAddressId: string;
      /** Its address: the sender or the receiver. If it has another one by now, nothing is created. */
      address: Address;
      transfer: Transfer;
      /** Counts equal transfers of one transaction, from 0. */
      occurrence: number;
      /** Among the transfers of its block, from 1. */
      position: number;
      block: BlockId;
      /** Whether the receiver may have seen the transfer under another id, and so may credit it twice. */
      mayCreditTwice: boolean;
      /** The wrong notification that it replaces, which must have been orphaned in the same call. */
      insteadOf?: number | undefined;
    }
  /** Corrects the block. `isRescheduled` also moves it to the lane of its watched address, and `isLate` makes it due now. */
  | ({ action: 'update'; block: BlockId; isRescheduled: boolean; isLate: boolean } & Row)
  /** Ends a notification whose content is not on the chain, as after a reorg. */
  | ({ action: 'orphan'; block: BlockId } & Row)
  | { action: 'recompute_volume'; pairId: number; startedAt: Date }
  | {
      action: 'recompute_day';
      user: Address;
      /** `2026-11-22`, UTC. */
      day: string;
      category: string;
      rule: string;
      version: number;
      role: string;
    }
  /** `month` is its first day. */
  | { action: 'recompute_month'; user: Address; month: string };

/**
 * Applies the repairs in one transaction, during which no follower commits. Returns the ones that it applied. It skips repairs
 * whose block or row has changed since the comparison, and those that may credit twice unless `mayCreditTwice` allows it.
 * `readNow` is called once the rows are locked, and `onCommit` before the commit. If the database doesn't answer after that, the repairs may
 * have been applied.
 */
export async function applyRepairs(
  database: Database,
  repairs: readonly Repair[],
  {
    confirmations,
    mayCreditTwice,
    readNow,
    onCommit,
  }: { confirmations: number; mayCreditTwice: boolean; readNow(tx: Tx): Promise<Date>; onCommit?(): void },
): Promise<Set<Repair>> {
  await requireNoneLost(database);
  await requireAnswers(database, 'all', 'the repair');
  return database.transaction(async (tx) => {
    await lockForIds(tx);
    await requireNoneLost(tx);
    await lockLanes(tx, repairs);
    const now = await readNow(tx);
    const tip = await findTip(tx);
    const hashes = await listHashes(tx, repairs);
    const current = repairs.filter(
      (repair) => !('block' in repair) || hashes.get(repair.block.number) === repair.block.hash,
    );
    const ordered: OrderedRecord[] = [];
    const moment = { confirmations, mayCreditTwice, tipNumber: tip?.number ?? 0, now };
    // Mark wrong notifications first, as a reorg does, so that the right ones can refer to what they replace.
    const wrong = current.filter((repair) => repair.action === 'orphan');
    const orphaned = tip && (await orphan(tx, wrong, { tip, now, readNow: () => readNow(tx) }));
    const applied = new Set<Repair>(orphaned?.applied);
    for (const repair of current)
      if (repair.action !== 'orphan' && (await apply(tx, repair, { ...moment, ordered, applied })))
        applied.add(repair);
    if (orphaned !== undefined) ordered.push(...(await endReorg(tx, orphaned.reorgId, now)));
    await advanceSequences(tx, ordered, now);
    onCommit?.();
    return applied;
  });
}

/** Marks the rows that have not changed since the comparison as orphaned. Undefined if there are none. */
async function orphan(
  tx: Tx,
  wrong: readonly Extract<Repair, { action: 'orphan' }>[],
  moment: { tip: BlockId; now: Date; readNow: ReadNow },
): Promise<{ reorgId: number; applied: Repair[] } | undefined> {
  if (wrong.length === 0) return undefined;
  const isOrphaned = sql`n.reorg_id is null and (n.shard_id, n.id, n.version) in (
    select * from unnest(
      ${listOf(wrong.map(({ shardId }) => shardId))}::bigint[],
      ${listOf(wrong.map(({ id }) => id))}::bigint[],
      ${listOf(wrong.map(({ version }) => version))}::text[]))`;
  const { reorgId, marked } = await orphanNotifications(tx, { isOrphaned, ...moment });
  const keys = new Set(marked.map(({ shardId, id }) => `${shardId} ${id}`));
  if (marked.length === 0) return undefined;
  return { reorgId, applied: wrong.filter(({ shardId, id }) => keys.has(`${shardId} ${id}`)) };
}

/** Locks lanes before rows, as a worker that settles does. The opposite order would deadlock. */
async function lockLanes(tx: Tx, repairs: readonly Repair[]): Promise<void> {
  const rows = repairs.flatMap((repair) => ('id' in repair ? [repair] : []));
  const made = repairs.flatMap((repair) => (repair.action === 'create' ? [repair] : []));
  const affected = await rowsOf(
    tx,
    sql`
      select n.shard_id, n.watched_address_id, n.lane_id
      from unnest(
        ${listOf(rows.map(({ shardId }) => shardId))}::bigint[],
        ${listOf(rows.map(({ id }) => id))}::bigint[]
      ) as r (shard_id, id)
      join notification_status n on n.shard_id = r.shard_id and n.id = r.id
      union all
      select shard_id, id, null
      from unnest(
        ${listOf(made.map(({ shardId }) => shardId))}::bigint[],
        ${listOf(made.map(({ watchedAddressId }) => watchedAddressId))}::uuid[]
      ) as m (shard_id, id)`,
    'shard_id bigint, watched_address_id uuid, lane_id bigint',
  );
  await lockLanesIn(
    tx,
    sql`
      with affected as materialized (select * from ${affected} as a)
      select lane_id from affected union all
      select w.lane_id from affected a join watched_address w on w.shard_id = a.shard_id and w.id = a.watched_address_id`,
  );
}

async function listHashes(tx: Tx, repairs: readonly Repair[]): Promise<Map<number, Hash>> {
  const numbers = [...new Set(repairs.flatMap((repair) => ('block' in repair ? [repair.block.number] : [])))];
  const rows = await tx.query<{ number: number; hash: Uint8Array }>(sql`
    select number, hash from block where number = any(${listOf(numbers)}::bigint[])
    order by number limit ${numbers.length}`);
  return new Map(rows.map(({ number, hash }) => [number, fromBytes(hash)]));
}

type Moment = {
  confirmations: number;
  tipNumber: number;
  mayCreditTwice: boolean;
  now: Date;
  /** Collects watched addresses in strict order for `advanceSequences`. */
  ordered: OrderedRecord[];
  /** The repairs that are applied already. */
  applied: ReadonlySet<Repair>;
};

async function apply(
  tx: Tx,
  repair: Exclude<Repair, { action: 'orphan' }>,
  moment: Moment,
): Promise<boolean> {
  switch (repair.action) {
    case 'create':
      return create(tx, repair, moment);
    case 'update':
      return repair.isRescheduled ? reschedule(tx, repair, moment) : correctBlock(tx, repair);
    case 'recompute_volume':
      return recomputeVolume(tx, repair);
    case 'recompute_day':
      return recomputeDay(tx, repair);
    case 'recompute_month':
      return recomputeMonth(tx, repair);
  }
}

/**
 * Creates the notification as the commit of the block would have. False if it exists already, is still to be written, may credit twice,
 * or isn't wanted any more.
 */
async function create(
  tx: Tx,
  repair: Extract<Repair, { action: 'create' }>,
  moment: Moment,
): Promise<boolean> {
  const { shardId, watchedAddressId, address, transfer, occurrence, position, block, insteadOf } = repair;
  const records = [{ shardId, id: watchedAddressId }];
  const isOrphan = (one: Repair) => one.action === 'orphan' && one.id === insteadOf;
  if (insteadOf !== undefined && ![...moment.applied].some(isOrphan)) return false;
  if (!moment.mayCreditTwice && (repair.mayCreditTwice || (await hasSentOrphan(tx, repair)))) return false;
  // A reorg since the comparison may have left it to the deferred writer, which would write it again.
  if (await isDeferred(tx, { watcherId: watcherOfShard(shardId), address }, block.number)) return false;
  const watched = await tx.query(sql`
    select from watched_address where shard_id = ${shardId} and id = ${watchedAddressId} and address = ${toBytes(address)}`);
  if (watched.length === 0) return false;
  const blocks = [{ header: block, transfers: [transfer] }];
  // The other side of the transfer may be watched too. With its match, the record would get a second notification.
  const matches = (await listMatches(tx, blocks))
    .filter((match) => addressOf(match) === address)
    .map((match) => ({ ...match, occurrence, position }));
  const made = await insertNotifications(tx, { matches, records, ...moment }, undefined);
  await wakeLanes(tx, [...new Set(made.map(({ laneId }) => laneId))], moment.now);
  moment.ordered.push(...made.flatMap((one) => one.ordered ?? []));
  return made.length > 0;
}

/** Whether the receiver may have seen other content of the transaction that no removal notice will remove. */
async function hasSentOrphan(
  tx: Tx,
  { shardId, watchedAddressId, transfer: { txHash, kind } }: Extract<Repair, { action: 'create' }>,
): Promise<boolean> {
  const rows = await tx.query(sql`
    select from notification_status n
    join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id and not w.removed
    where ${isOfTransaction(sql`${toBytes(txHash)}::bytea`)} and n.watched_address_id = ${watchedAddressId} and n.shard_id = ${shardId}
      and n.kind = ${kind} and ${isSentAndOrphaned} limit 1`);
  return rows.length > 0;
}

const CHANGED_COLUMNS = `shard_id bigint, id bigint, created_at timestamptz, watched_address_id uuid, redelivery_count integer,
  reorg_id bigint, tx_hash bytea, may_be_seen boolean, unsent_epoch bigint, state text, release_number bigint, sequence bigint,
  revision integer, retry_count integer, next_retry_at timestamptz, due_at timestamptz`;

const isAsCompared = ({ shardId, id, version }: Row) =>
  sql`n.shard_id = ${shardId} and n.id = ${id} and n.version = ${version}`;

async function correctBlock(tx: Tx, repair: Extract<Repair, { action: 'update' }>): Promise<boolean> {
  await lockRows(tx, isAsCompared(repair));
  const found = await tx.query(sql`select n.id from notification_status n where ${isAsCompared(repair)}`);
  if (found.length === 0) return false;
  await tx.query(sql`
    update notification set block_number = ${repair.block.number} where shard_id = ${repair.shardId} and id = ${repair.id}`);
  return true;
}

/**
 * Moves the notification to the lane of its watched address, with the state that its confirmations and strict order require.
 * If a removal notice was sent for a transfer that is on the chain, the transfer is sent again.
 */
async function reschedule(
  tx: Tx,
  repair: Extract<Repair, { action: 'update' }>,
  { confirmations, tipNumber, now, ordered }: Moment,
): Promise<boolean> {
  const { shardId, block, isLate } = repair;
  const [found] = await tx.query<{ lane_id: number; record_id: string }>(sql`
    select w.lane_id, w.id as record_id
    from notification_status n
    join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id
    where ${isAsCompared(repair)}`);
  if (found === undefined) return false;
  await wakeLanes(tx, [found.lane_id], now);
  await lockRows(tx, isAsCompared(repair));
  const [lane] = await tx.query<{ unsent_epoch: number }>(sql`
    select ${unsentEpoch} as unsent_epoch from lane l where l.id = ${found.lane_id}`);
  const select = sql`
      select n.shard_id, n.id, n.created_at, n.watched_address_id, n.reorg_id, n.tx_hash,
        -- Epochs of different lanes can't be compared.
        n.may_be_seen or n.lane_id <> ${found.lane_id} and n.state = 'waiting' as may_be_seen,
        case when n.lane_id = ${found.lane_id} and n.state in ('held', 'waiting') then n.unsent_epoch
          else ${lane?.unsent_epoch ?? 0}::bigint end as unsent_epoch,
        case when n.state = 'waiting' and ${isTransferMessage} then 'waiting'
          when release.number > ${tipNumber} or n.sequence is not null then 'held' else 'waiting' end as state,
        case when (n.state <> 'waiting' or ${isRemovalNotice}) and release.number > ${tipNumber}
          then release.number end as release_number,
        ${transferSequence} as sequence, ${transferRevision} as revision,
        case when ${isRemovalNotice} then 0 else n.retry_count end as retry_count,
        case when ${isRemovalNotice} then 0 else n.redelivery_count end as redelivery_count,
        case when ${isTransferMessage} and n.next_retry_at is not null
          then case when ${isLate}::boolean or n.state <> 'waiting' then ${now}::timestamptz else n.next_retry_at end
          end as next_retry_at,
        case when ${isLate}::boolean or n.state <> 'waiting' or ${isRemovalNotice}
          then ${now}::timestamptz else n.next_attempt_at end as due_at
      from notification_status n
      join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id
      cross join lateral (
        select ${block.number}::bigint + greatest(w.confirmations, ${confirmations}::integer) as number) as release
      where ${isAsCompared(repair)}`;
  const changed = recordsOf(await readJson(tx, select), CHANGED_COLUMNS);
  await tx.query(sql`
      update notification n set block_number = ${block.number} from ${changed} c
      where n.shard_id = ${shardId} and n.id = c.id and n.created_at = c.created_at and n.block_number <> ${block.number}`);
  await tx.query(sql`
      delete from ended e using ${changed} c where e.shard_id = ${shardId} and e.id = c.id`);
  const [row] = await tx.query<{ sequence: number | null }>(sql`
    insert into queue as q (shard_id, id, created_at, watched_address_id, lane_id, redelivery_count, reorg_id, tx_hash,
      may_be_seen, unsent_epoch, state, release_number, sequence, revision, retry_count, next_retry_at, due_at)
    select shard_id, id, created_at, watched_address_id, ${found.lane_id}::bigint, redelivery_count, reorg_id,
      case when reorg_id is not null then tx_hash end,
      may_be_seen, unsent_epoch, state, release_number, sequence, revision, retry_count, next_retry_at, due_at
    from ${changed} c
    on conflict (shard_id, id) do update set lane_id = excluded.lane_id, may_be_seen = excluded.may_be_seen,
      unsent_epoch = excluded.unsent_epoch, state = excluded.state, release_number = excluded.release_number,
      sequence = excluded.sequence, revision = excluded.revision, retry_count = excluded.retry_count,
      redelivery_count = excluded.redelivery_count, next_retry_at = excluded.next_retry_at, due_at = excluded.due_at
    returning q.sequence`);
  if (row !== undefined && row.sequence !== null) ordered.push({ shardId, id: found.record_id });
  return row !== undefined;
}
