/**
 * Repairs of what `verify` found: each is applied only while the block, and the row, are those that were compared.
 */
import type { BlockId, Transfer } from '../core/block.ts';
import { type Address, fromBytes, type Hash } from '../core/hex.ts';
import { listOf } from './arrays.ts';
import { findTip, holdBlocks } from './blocks.ts';
import type { Database, Tx } from './db.ts';
import { wakeLanes } from './lanes.ts';
import { insertNotifications, listMatches } from './matching.ts';
import { takeBack } from './removals.ts';
import { sql } from './sql.ts';
import { recomputeDay, recomputeMonth, recomputeVolume } from './sums.ts';
import { giveTurns } from './turns.ts';

/** A notification as it was compared. */
type Row = { shardId: number; id: number; version: string };

export type Repair =
  /** A notification that is not stored. */
  | {
      action: 'create';
      shardId: number;
      watchedAddressId: string;
      transfer: Transfer;
      /** Which of several equal transfers of its transaction it is. */
      occurrence: number;
      block: BlockId;
    }
  /** `block` is the one that it is in; `isRescheduled`: it goes to its record's queue; `isLate`: and is due now. */
  | ({ action: 'update'; block: BlockId; isRescheduled: boolean; isLate: boolean } & Row)
  /** A notification of a transfer that is not on the chain is not sent any more. */
  | ({ action: 'withdraw'; block: BlockId } & Row)
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
 * Applies the repairs in one transaction, in which no follower commits. Returns those that were applied: others met a block
 * or a row that has changed since it was compared.
 */
export async function applyRepairs(
  database: Database,
  repairs: readonly Repair[],
  { confirmations, now }: { confirmations: number; now: Date },
): Promise<Set<Repair>> {
  return database.transaction(async (tx) => {
    await holdBlocks(tx);
    await lockLanes(tx, repairs);
    const releasedNumber = ((await findTip(tx))?.number ?? 0) - confirmations;
    const hashes = await listHashes(tx, repairs);
    const applied = new Set<Repair>();
    for (const repair of repairs) {
      if ('block' in repair && hashes.get(repair.block.number) !== repair.block.hash) continue;
      if (await apply(tx, repair, { confirmations, releasedNumber, now })) applied.add(repair);
    }
    return applied;
  });
}

/** Queues before rows, as a worker that settles locks them: the other way round they would stop each other. */
async function lockLanes(tx: Tx, repairs: readonly Repair[]): Promise<void> {
  const rows = repairs.flatMap((repair) => ('id' in repair ? [repair] : []));
  const made = repairs.flatMap((repair) => (repair.action === 'create' ? [repair] : []));
  await tx.query(sql`
    with affected as (
      select n.shard_id, n.watched_address_id, n.lane_id
      from unnest(
        ${listOf(rows.map(({ shardId }) => shardId))}::bigint[],
        ${listOf(rows.map(({ id }) => id))}::bigint[]
      ) as r (shard_id, id)
      join notification n on n.shard_id = r.shard_id and n.id = r.id
      union all
      select shard_id, id, null
      from unnest(
        ${listOf(made.map(({ shardId }) => shardId))}::bigint[],
        ${listOf(made.map(({ watchedAddressId }) => watchedAddressId))}::uuid[]
      ) as m (shard_id, id)
    )
    select from lane where id in (
      select lane_id from affected union all
      select w.lane_id from affected a join watched_address w on w.shard_id = a.shard_id and w.id = a.watched_address_id)
    order by id for update`);
}

async function listHashes(tx: Tx, repairs: readonly Repair[]): Promise<Map<number, Hash>> {
  const numbers = [...new Set(repairs.flatMap((repair) => ('block' in repair ? [repair.block.number] : [])))];
  const rows = await tx.query<{ number: number; hash: Uint8Array }>(sql`
    select number, hash from block where number = any(${listOf(numbers)}::bigint[])
    order by number limit ${numbers.length}`);
  return new Map(rows.map(({ number, hash }) => [number, fromBytes(hash)]));
}

type Moment = { confirmations: number; releasedNumber: number; now: Date };

async function apply(tx: Tx, repair: Repair, moment: Moment): Promise<boolean> {
  switch (repair.action) {
    case 'create':
      return create(tx, repair, moment);
    case 'update':
      return repair.isRescheduled ? reschedule(tx, repair, moment) : correctBlock(tx, repair);
    case 'withdraw':
      return withdraw(tx, repair, moment.now);
    case 'recompute_volume':
      return recomputeVolume(tx, repair);
    case 'recompute_day':
      return recomputeDay(tx, repair);
    case 'recompute_month':
      return recomputeMonth(tx, repair);
  }
}

/** As the commit of the block would have; false when it is there already. */
async function create(
  tx: Tx,
  { watchedAddressId: recordId, transfer, occurrence, block }: Extract<Repair, { action: 'create' }>,
  moment: Moment,
): Promise<boolean> {
  // Equal transfers before it are there, and stay as they are.
  const blocks = [{ header: block, transfers: Array<Transfer>(occurrence + 1).fill(transfer) }];
  const matches = await listMatches(tx, blocks);
  const made = await insertNotifications(tx, { blocks, matches, recordId, ...moment }, undefined);
  await wakeLanes(tx, [...new Set(made.map(({ laneId }) => laneId))], moment.now);
  const ordered = made.flatMap((one) => one.ordered ?? []);
  await giveTurns(tx, ordered, moment.now);
  return made.length > 0;
}

const isAsCompared = ({ shardId, id, version }: Row) =>
  sql`n.shard_id = ${shardId} and n.id = ${id} and n.xmin::text = ${version}`;

async function correctBlock(tx: Tx, repair: Extract<Repair, { action: 'update' }>): Promise<boolean> {
  const rows = await tx.query(sql`
    update notification n set block_number = ${repair.block.number} where ${isAsCompared(repair)} returning n.id`);
  return rows.length > 0;
}

/**
 * Puts the notification where a worker finds it: into the queue of its record, with the state that its confirmations and
 * strict order ask for. A removal that was announced of a transfer on the chain is followed by the transfer.
 */
async function reschedule(
  tx: Tx,
  repair: Extract<Repair, { action: 'update' }>,
  { confirmations, releasedNumber, now }: Moment,
): Promise<boolean> {
  const { shardId, block, isLate } = repair;
  const [found] = await tx.query<{ lane_id: number; record_id: string }>(sql`
    select l.id as lane_id, w.id as record_id
    from notification n
    join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id
    join lane l on l.id = w.lane_id
    where ${isAsCompared(repair)}`);
  if (found === undefined) return false;
  await wakeLanes(tx, [found.lane_id], now);
  const [row] = await tx.query<{ turn: number | null }>(sql`
    update notification n set
      block_number = ${block.number},
      lane_id = ${found.lane_id},
      state = case when n.state = 'waiting' and n.revision % 2 = 0 then 'waiting'
        when release.number > ${releasedNumber} or n.turn is not null then 'held' else 'waiting' end,
      release_number = case when (n.state <> 'waiting' or n.revision % 2 = 1) and release.number > ${releasedNumber}
        then release.number end,
      turn = abs(n.turn),
      revision = n.revision + n.revision % 2,
      retry_count = case when n.revision % 2 = 1 then 0 else n.retry_count end,
      next_retry_at = case when n.revision % 2 = 0 and n.next_retry_at is not null
        then case when ${isLate}::boolean or n.state <> 'waiting' then ${now}::timestamptz else n.next_retry_at end end,
      next_attempt_at = case when ${isLate}::boolean or n.state <> 'waiting' or n.revision % 2 = 1
        then ${now}::timestamptz else n.next_attempt_at end,
      processed_at = null
    from watched_address w
    cross join lateral (
      select ${block.number}::bigint + greatest(w.confirmations - ${confirmations}::integer, 0) as number) as release
    where ${isAsCompared(repair)} and w.shard_id = n.shard_id and w.id = n.watched_address_id
    returning n.turn`);
  if (row?.turn !== null) await giveTurns(tx, [{ shardId, id: found.record_id }], now);
  return row !== undefined;
}

/** A receiver that wants `removed`, and may have seen it, is told that it is gone. */
async function withdraw(tx: Tx, row: Row, now: Date): Promise<boolean> {
  const [found] = await tx.query<{ record_id: string; is_seen: boolean }>(sql`
    select n.watched_address_id as record_id, n.retry_count > 0 or n.revision > 0 as is_seen
    from notification n where ${isAsCompared(row)}`);
  if (found === undefined) return false;
  const ordered = found.is_seen ? await takeBack(tx, isAsCompared(row), now) : [];
  // Where nothing was taken back the row is as it was.
  await tx.query(sql`update notification n set state = 'withdrawn' where ${isAsCompared(row)}`);
  await giveTurns(tx, [...ordered, { shardId: row.shardId, id: found.record_id }], now);
  return true;
}
