/**
 * Reorgs in the database. The notifications of orphaned blocks are marked before the new branch is stored. Those that are also
 * in the new branch lose the mark again (blocks.ts). The others are withdrawn or become removal notices.
 */
import type { BlockId } from '../../domain/block.ts';
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { inReach, readJson, recordsOf, rowsOf, tableOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { lockLanes } from '../delivery/lane-locks.ts';
import { wakeLanes } from '../delivery/lanes.ts';
import { isTransferMessage } from '../delivery/message-kind.ts';
import { lockRowsOf, moveToEnded, type RowKey, storedColumns } from '../delivery/notification-rows.ts';
import { toRemovalNotices } from '../delivery/removals.ts';
import { sentBy } from '../delivery/sent-by.ts';
import type { OrderedRecord } from '../delivery/sequence.ts';

/** What became due while a transaction waited for its locks may have been sent, so the time is read after them. */
export type ReadNow = () => Date | Promise<Date>;

/** Removes the blocks above the ancestor and marks their notifications as orphaned. `readNow`: called once these are locked. */
export async function beginReorg(
  tx: Tx,
  { ancestorNumber, tip, now, readNow }: { ancestorNumber: number; tip: BlockId; now: Date; readNow(): Date },
): Promise<{ reorgId: number; orphanedCount: number }> {
  const reorgId = await insertReorg(tx, ancestorNumber, now);
  const orphaned = await tx.query(sql`
    with gone as (delete from block where number > ${ancestorNumber} returning number, hash)
    insert into orphaned_block (reorg_id, number, hash) select ${reorgId}, number, hash from gone returning number`);
  await markOrphaned(tx, { reorgId, isOrphaned: isAbove(tx, ancestorNumber, tip), readNow });
  return { reorgId, orphanedCount: orphaned.length };
}

/** Whether notification `n` is of a block above the ancestor, so that a reorg orphans it. */
export const isAbove = (tx: Tx, ancestorNumber: number, tip: BlockId): Sql =>
  sql`n.block_number > ${ancestorNumber} and n.block_number <= ${tip.number} and n.reorg_id is null${inReach(tx, sql`n.shard_id`)}`;

/** Marks the notifications that these reorgs orphaned, oldest first, in shards that were lost then. */
export async function beginMissedReorgs(tx: Tx, reorgIds: readonly number[], now: Date): Promise<void> {
  for (const reorgId of reorgIds) {
    const [reorg] = await tx.query<{ ancestor_number: number }>(
      sql`select ancestor_number from reorg where id = ${reorgId}`,
    );
    if (reorg === undefined) throw new Error(`reorg ${reorgId} is missing`);
    const isOrphaned = sql`n.block_number > ${reorg.ancestor_number} and n.reorg_id is null${inReach(tx, sql`n.shard_id`)}`;
    await markOrphaned(tx, { reorgId, isOrphaned, readNow: () => now });
  }
}

/**
 * Marks the notifications `n` that match the condition as orphaned, although their blocks stay, because their content is not on
 * the chain. Call `endReorg` to end them, as after a reorg. Returns the marked ones.
 */
export async function orphanNotifications(
  tx: Tx,
  { isOrphaned, tip, now, readNow }: { isOrphaned: Sql; tip: BlockId; now: Date; readNow: ReadNow },
): Promise<{ reorgId: number; marked: Marked[] }> {
  const reorgId = await insertReorg(tx, tip.number, now);
  const marked = await markOrphaned(tx, { reorgId, isOrphaned, readNow });
  // A removal notice names the block with which its transfer was sent.
  const numbers = [...new Set(marked.map(({ blockNumber }) => blockNumber))];
  await tx.query(sql`
    insert into orphaned_block (reorg_id, number, hash)
    select ${reorgId}, number, hash from block where number = any(${listOf(numbers)}::bigint[])`);
  return { reorgId, marked };
}

/**
 * On Citus: marks the notifications of blocks above this one. There are some if the coordinator failed after the only worker of a
 * commit had committed. Returns the reorg that stands for them, if any.
 */
export async function orphanStrays(
  tx: Tx,
  above: number,
  { tip, now }: { tip: BlockId; now: Date },
): Promise<number[]> {
  const isOrphaned = sql`n.block_number > ${above} and n.reorg_id is null${inReach(tx, sql`n.shard_id`)}`;
  const found = await tx.query(
    sql`select n.id from notification_status n where ${isOrphaned} order by n.id limit 1`,
  );
  return found.length === 0
    ? []
    : [(await orphanNotifications(tx, { isOrphaned, tip, now, readNow: () => now })).reorgId];
}

async function insertReorg(tx: Tx, ancestorNumber: number, now: Date): Promise<number> {
  const [reorg] = await tx.query<{ id: number }>(sql`
    insert into reorg (happened_at, ancestor_number) values (${now}, ${ancestorNumber}) returning id`);
  if (reorg === undefined) throw new Error('the statement returned no row');
  return reorg.id;
}

type Marked = { shardId: number; id: number; blockNumber: number };
type MarkedRow = { shard_id: number; id: number; block_number: number };

async function markOrphaned(
  tx: Tx,
  { reorgId, isOrphaned, readNow }: { reorgId: number; isOrphaned: Sql; readNow: ReadNow },
): Promise<Marked[]> {
  await lockOrphaned(tx, isOrphaned);
  const now = await readNow();
  const rows =
    tx.isDistributed === true
      ? await markInShards(tx, { reorgId, isOrphaned, now })
      : await tx.query<MarkedRow>(sql`
          with orphaned as materialized (
            select n.shard_id, n.id, n.created_at, n.block_number, n.tx_hash, n.state, n.processed_at, ${mayBeSeen(now)} as is_seen
            from notification_status n where ${isOrphaned}
          ), pending as (${markPending(tx, sql`orphaned`, reorgId)}), finished as (${markFinished(sql`orphaned`, reorgId)})
          select shard_id, id, block_number from orphaned order by shard_id, id`);
  return rows.map((row) => ({ shardId: row.shard_id, id: row.id, blockNumber: row.block_number }));
}

/** Locks lanes before rows, as a worker that settles does. The opposite order would deadlock. Also locks the lanes of removal notices. */
async function lockOrphaned(tx: Tx, isOrphaned: Sql): Promise<void> {
  const rows = await tx.query<RowKey & { lane_id: number | null; next_lane_id: number | null }>(sql`
    select n.shard_id, n.id, n.created_at, n.lane_id, w.lane_id as next_lane_id
    from notification_status n
    left join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id${inReach(tx, sql`w.shard_id`)}
    where ${isOrphaned}`);
  await lockLanes(
    tx,
    rows.flatMap((row) => [row.lane_id, row.next_lane_id]).filter((id) => id !== null),
  );
  await lockRowsOf(tx, rows);
}

const markPending = (tx: Tx, orphaned: Sql, reorgId: number): Sql => sql`
      update queue q set reorg_id = ${reorgId}, tx_hash = o.tx_hash, may_be_seen = o.is_seen from ${orphaned} o
      where q.shard_id = o.shard_id and q.id = o.id${inReach(tx, sql`q.shard_id`)}`;
const markFinished = (orphaned: Sql, reorgId: number): Sql => sql`
      insert into ended as e (shard_id, id, created_at, state, ended_at, may_be_seen, reorg_id, tx_hash)
      select shard_id, id, created_at, state, processed_at, is_seen, ${reorgId}::bigint, tx_hash from ${orphaned} o
      where state not in ('held', 'waiting') order by shard_id, id
      on conflict (shard_id, id) do update
        set may_be_seen = excluded.may_be_seen, reorg_id = excluded.reorg_id, tx_hash = excluded.tx_hash`;

/** The same on Citus, with a statement for each table. */
async function markInShards(
  tx: Tx,
  { reorgId, isOrphaned, now }: { reorgId: number; isOrphaned: Sql; now: Date },
): Promise<MarkedRow[]> {
  const statuses = await tableOf(tx, 'notification_status', {
    ...{ alias: 'n', columns: storedColumns },
    where: isOrphaned,
  });
  const json = await readJson(
    tx,
    sql`
      select n.shard_id, n.id, n.created_at, n.block_number, n.tx_hash, n.state, ${mayBeSeen(now)} as is_seen
      from ${statuses} n order by n.shard_id, n.id`,
  );
  const marked = recordsOf(
    json,
    'shard_id bigint, id bigint, created_at timestamptz, block_number bigint, tx_hash bytea, state text, is_seen boolean',
  );
  const processed = await readProcessedAt(tx, marked);
  const orphaned = sql`(select o.*, p.processed_at from ${marked} o left join ${processed} p on p.shard_id = o.shard_id and p.id = o.id)`;
  await tx.query(markPending(tx, orphaned, reorgId));
  await tx.query(markFinished(orphaned, reorgId));
  return tx.query<MarkedRow>(sql`select shard_id, id, block_number from ${orphaned} as o`);
}

/** When those that are processed were: the end of their last success, as in the view. */
async function readProcessedAt(tx: Tx, notifications: Sql): Promise<Sql> {
  const rows = await tx.query<{ shard_id: number; id: number; created_at: Date }>(sql`
    select shard_id, id, created_at from ${notifications} as n where state = 'processed' order by created_at`);
  const [oldest] = rows;
  const columns = 'shard_id bigint, id bigint, processed_at timestamptz';
  if (oldest === undefined) return recordsOf('[]', columns);
  const ids = listOf(rows.map(({ id }) => id));
  return rowsOf(
    tx,
    sql`
      select a.shard_id, a.notification_id as id, max(a.started_at + a.duration_ms * interval '1 ms') as processed_at
      from delivery_attempt a
      where a.shard_id = any(${listOf([...new Set(rows.map((row) => row.shard_id))])}::bigint[])
        and a.notification_id = any(${ids}::bigint[]) and a.outcome = 'success'
        and a.started_at >= ${oldest.created_at}::timestamptz - interval '1 day'
      group by a.shard_id, a.notification_id`,
    columns,
  );
}

/**
 * Whether a receiver may have seen the notification `n`. A lane that was leased while the row was due may have sent it,
 * because nothing is written before an attempt.
 */
export const mayBeSeen = (now: Date): Sql => sql`(n.may_be_seen or n.state = 'processed'
  or n.state = 'waiting' and n.next_attempt_at <= ${sentBy(now)} and coalesce((
    select l.owner is not null or l.epoch > n.unsent_epoch from lane l where l.id = n.lane_id), true))`;

/**
 * Whether the notification `n` was orphaned after its receiver may have seen it, without a removal notice or a notification
 * that replaces it.
 */
export const isSentAndOrphaned = sql`n.reorg_id is not null and n.may_be_seen and ${isTransferMessage} and not exists (
  select from notification_status r where substr(r.tx_hash, 29) = substr(n.tx_hash, 29) and r.shard_id = n.shard_id and r.replaces = n.id
    and r.reorg_id is null)`;

/**
 * Ends the notifications that the new branch doesn't contain. If the watched address has `removed` on and the receiver may
 * have seen the transfer, a removal notice is sent. Otherwise attempts stop, because a receiver that reads only the body
 * would take a removal notice for a credit. Returns the affected watched addresses in strict order, for `advanceSequences`.
 */
export async function endReorg(tx: Tx, reorgId: number, now: Date): Promise<OrderedRecord[]> {
  const isSent = sql`reorg_id = ${reorgId} and may_be_seen${inReach(tx, sql`shard_id`)}`;
  const candidates = [
    ...(await tx.query<RowKey>(sql`select shard_id, id, created_at from queue where ${isSent}`)),
    ...(await tx.query<RowKey>(
      sql`select shard_id, id, created_at from ended where ${isSent} and state <> 'withdrawn'`,
    )),
  ];
  const condition = sql`${isTransferMessage} and n.may_be_seen and n.state <> 'withdrawn'`;
  const reported = await toRemovalNotices(tx, { candidates, condition }, now);
  const rows = await moveToEnded(
    tx,
    sql`n.reorg_id = ${reorgId} and ${isTransferMessage}${inReach(tx, sql`n.shard_id`)}`,
    {
      state: 'withdrawn',
      now,
    },
  );
  await wakeLanes(tx, [...new Set(rows.map(({ lane_id }) => lane_id))], now, 'reorg');
  const withdrawn = rows.flatMap(({ shard_id: shardId, ordered_id: id }) =>
    id === null ? [] : [{ shardId, id }],
  );
  return [...reported, ...withdrawn];
}
