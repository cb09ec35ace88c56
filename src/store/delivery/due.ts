/**
 * Reads the due notifications of leased lanes. Spec 2.7, 3 and 6.2.
 */
import type { Fault } from '../../core/fault.ts';
import type { Address, Hash } from '../../core/hex.ts';
import { messageKind } from '../../domain/message-kind.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Db } from '../db/db.ts';
import { tryEachShard } from '../db/each-shard.ts';
import { isLost } from '../db/lost-shards.ts';
import { rowsOf } from '../db/shard-rows.ts';
import { frequent, type Sql, sql } from '../db/sql.ts';
import { type Astray, correctAstray } from './astray.ts';
import { hasFollowedClock, type Lane } from './lanes.ts';
import { kindText } from './notification-rows.ts';
import type { ShardKey } from './shards.ts';
import type { TransferFields } from './transfer-columns.ts';

export type NotificationType = 'COIN_TRANSFER' | 'TOKEN_TRANSFER';

/** A notification that is due, with everything that its delivery attempt sends or decides by. */
export type DueNotification = TransferFields & {
  id: number;
  shardId: number;
  laneId: number;
  watchedAddressId: string;
  watcherId: number;
  hash: Hash;
  type: NotificationType;
  /** `YYYY-MM-DD HH:MM:SS.ffffff`, UTC (spec 2.7). */
  createdAt: string;
  createdTime: Date;
  webhookUrl: string;
  /** Even: the transfer. Odd: its removal notice, after a reorg orphaned it. 2: canonical again after that. */
  revision: number;
  /** The block that holds the transfer; for a removal notice, the block that held it. */
  blockNumber: number;
  /** Undefined if that block is no longer stored. */
  blockHash: Hash | undefined;
  /** The notification that this one replaces, because their transaction was mined again with another outcome. */
  replaces: number | undefined;
  /** Failed attempts so far of this revision and this delivery. */
  retryCount: number;
  /** How often its watcher has requested a redelivery. */
  redeliveryCount: number;
  /** The scheduled time of this retry, formatted like createdAt; undefined for a first attempt. */
  nextRetryAt: string | undefined;
  /** Whether its watched address has strict order: the next notification then waits until this one has arrived. */
  isOrdered: boolean;
};

type DueRow = {
  id: number;
  watched_address_id: string;
  watcher_id: number;
  tx_hash: Hash;
  kind: string;
  sender: Address;
  receiver: Address | null;
  amount: string;
  token: Address | null;
  created_text: string;
  revision: number;
  retry_count: number;
  redelivery_count: number;
  next_retry_text: string | null;
  is_ordered: boolean;
  block_number: number;
  block_hash: Hash | null;
  replaces: number | null;
  webhook_url: string | null;
  record_lane_id: number | null;
  wants_removed: boolean | null;
};

/** Options of `listDue`. */
type DueRequest = {
  now: Date;
  /** Sum of the clock steps that this process has followed. Nothing is due while it misses one. */
  stepsMs?: number;
  /** Notifications whose attempts are under way. */
  exclude: readonly number[];
  /** Per lane, for first attempts and retries separately. */
  limit: number;
  /** Receives what is due in a lane and must not be sent from it. `correctAstray` by default, for which all lanes then wait. */
  onAstray?(astray: Astray): void | Promise<void>;
};

/**
 * Of a lane. On Citus also 'absent': its shard is lost (lost-shards.ts), so its server may hang, and some of its notifications may be of
 * blocks that a reorg has orphaned since. A Fault: the server can't be reached. Other lanes are read meanwhile.
 */
export type DueOfLane = DueNotification[] | 'lost' | 'absent' | Fault;

/**
 * For each lane, up to `limit` due first attempts in order, then up to `limit` retries; 'lost' if the lane has been freed
 * or has passed to another worker. Also corrects rows whose watched address changed while they were written: cancels them if it was deleted,
 * moves them if its webhook origin changed, and withdraws removal notices that it no longer wants.
 */
export async function listDue(
  database: Database,
  lanes: readonly Lane[],
  request: DueRequest,
): Promise<Map<number, DueOfLane>> {
  const { now, stepsMs = 0, exclude, limit } = request;
  const onAstray = request.onAstray ?? ((astray: Astray) => correctAstray(database, astray, now));
  const due = (attempts: Sql) => sql`(
    select * from queue
    where shard_id = l.shard_id and lane_id = l.id and state = 'waiting' and ${attempts}
      and due_at <= ${now} and id <> all(${listOf(exclude)}::bigint[]) and ${hasFollowedClock(stepsMs)}
    order by due_at, id
    limit ${limit})`;
  // A lane with nothing due still returns one row, without a notification. A lost lane returns none.
  if (database.isDistributed === true) return listDueInShards(database, lanes, { ...request, onAstray });
  const rows = await database.query<LaneDueRow>(
    frequent(sql`
    select l.id as lane, q.id, l.watcher_id, ${kindText(sql`n.kind`)} as kind, ${transferTexts},
      q.revision, q.retry_count, q.redelivery_count,
      ${timeText(sql`q.next_retry_at`)} as next_retry_text,
      q.sequence is not null as is_ordered, n.block_number, ${hexText(sql`coalesce(b.hash, o.hash)`)} as block_hash, n.replaces,
      w.webhook_url, w.lane_id as record_lane_id, w.removed as wants_removed
    from unnest(
      ${listOf(lanes.map(({ id }) => id))}::bigint[], ${listOf(lanes.map(({ epoch }) => epoch))}::bigint[]
    ) as leased (id, epoch)
    join lane l on l.id = leased.id and l.epoch = leased.epoch and l.owner is not null
    left join watcher_queue v on v.watcher_id = l.watcher_id
    left join lateral (${due(sql`retry_count = 0`)} union all ${due(sql`retry_count > 0`)}) as q on v.suspended is not true
    left join notification n on n.shard_id = q.shard_id and n.id = q.id and n.created_at = q.created_at
    left join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id
    left join block b on q.reorg_id is null and b.number = n.block_number
    left join orphaned_block o on o.reorg_id = q.reorg_id and o.number = n.block_number
    order by l.id, q.retry_count > 0, q.due_at, q.id`),
  );
  const byLane = Map.groupBy(rows, (row) => row.lane);
  const found = new Map<number, DueOfLane>();
  for (const lane of lanes) {
    const own = byLane.get(lane.id);
    if (own === undefined) {
      found.set(lane.id, 'lost');
      continue;
    }
    const { wanted, astray } = split(lane, own);
    found.set(lane.id, wanted);
    if (astray !== undefined) await onAstray(astray);
  }
  return found;
}

type LaneDueRow = ({ lane: number } & DueRow) | { lane: number; id: null };

/** The same on Citus: one statement for each shard, and one for the blocks on the coordinator. */
async function listDueInShards(
  database: Database,
  lanes: readonly Lane[],
  { now, stepsMs = 0, exclude, limit, onAstray }: DueRequest & Required<Pick<DueRequest, 'onAstray'>>,
): Promise<Map<number, DueOfLane>> {
  const held = await database.query<{ id: number; is_ready: boolean; is_lost: boolean }>(
    frequent(sql`
    select l.id, ${hasFollowedClock(stepsMs)} and v.suspended is not true as is_ready, ${isLost(sql`l.shard_id`)} as is_lost
    from unnest(
      ${listOf(lanes.map(({ id }) => id))}::bigint[], ${listOf(lanes.map(({ epoch }) => epoch))}::bigint[]
    ) as leased (id, epoch)
    join lane l on l.id = leased.id and l.epoch = leased.epoch and l.owner is not null
    left join watcher_queue v on v.watcher_id = l.watcher_id
    order by l.id`),
  );
  const ready = new Set(held.flatMap((row) => (row.is_ready ? [row.id] : [])));
  const heldIds = new Set(held.map(({ id }) => id));
  const absent = new Set(held.flatMap((row) => (row.is_lost ? [row.id] : [])));
  const own = lanes.filter(({ id }) => ready.has(id) && !absent.has(id));
  const excluded = listOf(exclude);
  const { found, failed } = await tryEachShard(database, own, (shardId, inShard) => {
    const due = (attempts: Sql) => sql`(
      select * from queue
      where shard_id = ${shardId} and lane_id = l.id and state = 'waiting' and ${attempts}
        and due_at <= ${now} and id <> all(${excluded}::bigint[])
      order by due_at, id
      limit ${limit})`;
    return database.query<DueRow & { lane: number; reorg_id: number | null }>(
      frequent(sql`
      select l.id as lane, q.id, ${kindText(sql`n.kind`)} as kind, ${transferTexts}, q.revision, q.retry_count, q.redelivery_count,
        ${timeText(sql`q.next_retry_at`)} as next_retry_text,
        q.sequence is not null as is_ordered, n.block_number, q.reorg_id, n.replaces,
        w.webhook_url, w.lane_id as record_lane_id, w.removed as wants_removed
      from unnest(${listOf(inShard.map(({ id }) => id))}::bigint[]) as l (id)
      join lateral (${due(sql`retry_count = 0`)} union all ${due(sql`retry_count > 0`)}) as q on true
      join notification n on n.shard_id = ${shardId} and n.id = q.id and n.created_at = q.created_at
      left join watched_address w on w.shard_id = ${shardId} and w.id = n.watched_address_id
      order by l.id, q.retry_count > 0, q.due_at, q.id`),
    );
  });
  const hashOf = await readHashes(database, found);
  const rowsOfLane = Map.groupBy(found, (row) => row.lane);
  const wanted = await tryEachShard(database, own, async (_, inShard) => {
    const read: [number, DueOfLane][] = [];
    for (const lane of inShard) {
      const rows = (rowsOfLane.get(lane.id) ?? []).map((row) => ({
        ...row,
        watcher_id: lane.watcherId,
        block_hash: hashOf(row),
      }));
      const { wanted: own, astray } = split(lane, rows);
      read.push([lane.id, own]);
      if (astray !== undefined) await onAstray(astray);
    }
    return read;
  });
  const dueOf = new Map(wanted.found);
  return new Map(
    lanes.map((lane) => {
      if (!heldIds.has(lane.id)) return [lane.id, 'lost'];
      if (absent.has(lane.id)) return [lane.id, 'absent'];
      return [
        lane.id,
        failed.get(lane.shardId) ?? wanted.failed.get(lane.shardId) ?? dueOf.get(lane.id) ?? [],
      ];
    }),
  );
}

type BlockRef = { block_number: number; reorg_id: number | null };

/** The hashes of the blocks that hold the transfers, or held them before a reorg. */
async function readHashes(
  database: Database,
  refs: readonly BlockRef[],
): Promise<(ref: BlockRef) => Hash | null> {
  const keyOf = ({ block_number: number, reorg_id: reorgId }: BlockRef) => `${number} ${reorgId ?? ''}`;
  const wanted = [...new Map(refs.map((ref) => [keyOf(ref), ref])).values()];
  if (wanted.length === 0) return () => null;
  const rows = await database.query<BlockRef & { hash: Hash | null }>(
    frequent(sql`
    select r.number as block_number, r.reorg_id, ${hexText(sql`coalesce(b.hash, o.hash)`)} as hash
    from unnest(
      ${listOf(wanted.map((ref) => ref.block_number))}::bigint[], ${listOf(wanted.map((ref) => ref.reorg_id ?? 'null'))}::bigint[]
    ) as r (number, reorg_id)
    left join block b on r.reorg_id is null and b.number = r.number
    left join orphaned_block o on o.reorg_id = r.reorg_id and o.number = r.number
    order by r.number`),
  );
  const hashes = new Map(rows.map((row) => [keyOf(row), row.hash]));
  return (ref) => hashes.get(keyOf(ref)) ?? null;
}

/**
 * A notification with everything that its message contains, whatever its state is. Undefined if it doesn't exist, or if its watched
 * address is deleted, so that it has no URL.
 */
export async function findAsDue(
  db: Db,
  { shardId, id }: ShardKey<number>,
): Promise<DueNotification | undefined> {
  const notification = await rowsOf(
    db,
    sql`
    select n.id, n.watcher_id, n.kind, ${transferTexts}, n.revision, n.retry_count, n.redelivery_count,
      ${timeText(sql`n.next_retry_at`)} as next_retry_text, n.sequence is not null as is_ordered, n.block_number, n.reorg_id,
      n.replaces, w.webhook_url, w.lane_id
    from notification_status n
    join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id
    where n.shard_id = ${shardId} and n.id = ${id}`,
    `id bigint, watched_address_id uuid, watcher_id bigint, tx_hash text, kind text, sender text, receiver text, amount numeric,
      token text, created_text text, revision integer, retry_count integer, redelivery_count integer,
      next_retry_text text, is_ordered boolean, block_number bigint, reorg_id bigint, replaces bigint, webhook_url text,
      lane_id bigint`,
  );
  const [row] = await db.query<DueRow & { lane_id: number; webhook_url: string }>(sql`
    select n.*, ${hexText(sql`coalesce(b.hash, o.hash)`)} as block_hash
    from ${notification} as n
    left join block b on n.reorg_id is null and b.number = n.block_number
    left join orphaned_block o on o.reorg_id = n.reorg_id and o.number = n.block_number`);
  return row && toDue(row, row.webhook_url, { id: row.lane_id, shardId });
}

/** The format of times in webhooks (spec 2.7). */
const timeText = (time: Sql): Sql => sql`to_char(${time} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')`;

/** Hex as webhooks have it. Bytes of the driver would need two more objects for each value. */
const hexText = (bytes: Sql): Sql => sql`('0x' || encode(${bytes}, 'hex'))`;

/** What a webhook shows of notification `n`. */
const transferTexts = sql`n.watched_address_id, ${hexText(sql`n.tx_hash`)} as tx_hash,
  ${hexText(sql`n.sender`)} as sender, ${hexText(sql`n.receiver`)} as receiver, n.amount, ${hexText(sql`n.token`)} as token,
  ${timeText(sql`n.created_at`)} as created_text`;

/** Splits rows of a lane into those that their watched addresses still want in it, and the others, whose watched addresses changed. */
function split(
  lane: Lane,
  rows: readonly (DueRow | { id: null })[],
): { wanted: DueNotification[]; astray: Astray | undefined } {
  const wanted: DueNotification[] = [];
  const [misplaced, unwanted]: [Astray['misplaced'][number][], Astray['unwanted'][number][]] = [[], []];
  for (const row of rows) {
    if (row.id === null) continue;
    const { id, watched_address_id: recordId, revision } = row;
    if (row.webhook_url === null || row.record_lane_id !== lane.id) misplaced.push({ id, recordId });
    else if (messageKind(row) === 'removal' && row.wants_removed !== true)
      unwanted.push({ id, recordId, revision });
    else wanted.push(toDue(row, row.webhook_url, lane));
  }
  const isAstray = misplaced.length + unwanted.length > 0;
  return { wanted, astray: isAstray ? { lane, misplaced, unwanted } : undefined };
}

function toDue(row: DueRow, webhookUrl: string, lane: Pick<Lane, 'id' | 'shardId'>): DueNotification {
  return {
    id: row.id,
    shardId: lane.shardId,
    laneId: lane.id,
    watchedAddressId: row.watched_address_id,
    watcherId: row.watcher_id,
    hash: row.tx_hash,
    type: row.kind === 'token' ? 'TOKEN_TRANSFER' : 'COIN_TRANSFER',
    sender: row.sender,
    receiver: row.receiver ?? undefined,
    amount: BigInt(row.amount),
    token: row.token ?? undefined,
    createdAt: row.created_text,
    createdTime: new Date(`${row.created_text.slice(0, 10)}T${row.created_text.slice(11, 23)}Z`),
    webhookUrl,
    revision: row.revision,
    blockNumber: row.block_number,
    blockHash: row.block_hash ?? undefined,
    replaces: row.replaces ?? undefined,
    retryCount: row.retry_count,
    redeliveryCount: row.redelivery_count,
    nextRetryAt: row.next_retry_text ?? undefined,
    isOrdered: row.is_ordered,
  };
}
