/**
 * Filters of the delivery log as conditions on the view `notification_status`.
 */
import { type Address, type Hash, toBytes } from '../../core/hex.ts';
import { type NotificationState, type StoredStatus, statusRules } from '../../domain/delivery-status.ts';
import { listOf } from '../db/arrays.ts';
import type { Db } from '../db/db.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import type { NotificationType } from './due.ts';
import { isTransferMessage } from './message-kind.ts';
import { isOfTransaction } from './notification-rows.ts';

/** A notification must match all conditions that are given. */
export type LogFilter = {
  state?: NotificationState | undefined;
  type?: NotificationType | undefined;
  hash?: Hash | undefined;
  /** Notifications of any of these watched addresses. */
  recordIds?: readonly string[] | undefined;
  /** Creation time: `from` is inclusive, `until` exclusive. */
  from?: Date | undefined;
  until?: Date | undefined;
  /** Both inclusive. */
  fromBlock?: number | undefined;
  toBlock?: number | undefined;
  status?: StoredStatus | undefined;
  token?: Address | 'native' | undefined;
  /** In the smallest unit, both inclusive. */
  minAmount?: bigint | undefined;
  maxAmount?: bigint | undefined;
  /** As seen from the watched address. A transfer to itself matches both. */
  direction?: 'in' | 'out' | undefined;
  /** Scheme, host and port of the webhook URL. */
  origin?: string | undefined;
  /** HTTP status or outcome of the last attempt. */
  lastAnswer?: number | string | undefined;
};

/** A filter for statements on shards, which don't have the table `lane`: with the delivery queues of its origin. */
type ShardFilter = LogFilter & { laneIds?: readonly number[] | undefined };

export async function toShardFilter(db: Db, filter: LogFilter): Promise<ShardFilter> {
  const { origin, ...rest } = filter;
  if (origin === undefined) return rest;
  const rows = await db.query<{ id: number }>(sql`select id from lane where origin = ${origin} order by id`);
  return { ...rest, laneIds: rows.map(({ id }) => id) };
}

/** Conditions on rows `n` of a page that have an index in which few rows fulfill them. */
export const innerConditions = ({ hash }: LogFilter): Sql[] =>
  hash === undefined ? [] : [isOfTransaction(sql`${toBytes(hash)}::bytea`)];

/** Conditions on the examined rows `n` of a page. `shardId`: a constant if they have the same, so that Citus asks only that shard. */
export const outerConditions = (filter: ShardFilter, shardId = sql`n.shard_id`): Sql[] =>
  listOuter(filter, shardId).map(({ is }) => is);

/** The columns of examined rows `n` of the view: only those that are needed, because the view joins a table for some of them. */
export function examinedColumns(filter: LogFilter): Sql {
  const needed = listOuter(filter, sql`n.shard_id`).flatMap(({ of }) => of);
  const names = new Set(['shard_id', 'id', ...needed]);
  return raw([...names].map((name) => `n.${name}`).join(', '));
}

/** A condition on examined rows `n`, and the columns of the view that it needs. */
type OuterCondition = { is: Sql; of: string[] };

function listOuter(filter: ShardFilter, shardId: Sql): OuterCondition[] {
  const { state, type, status, token, minAmount, maxAmount, direction, origin, lastAnswer } = filter;
  const { from, until, fromBlock, toBlock } = filter;
  const conditions: OuterCondition[] = [];
  const add = (is: Sql, ...of: string[]) => conditions.push({ is, of });
  if (from !== undefined) add(sql`n.created_at >= ${from}`, 'created_at');
  if (until !== undefined) add(sql`n.created_at < ${until}`, 'created_at');
  if (fromBlock !== undefined) add(sql`n.block_number >= ${fromBlock}`, 'block_number');
  if (toBlock !== undefined) add(sql`n.block_number <= ${toBlock}`, 'block_number');
  if (state !== undefined) add(sql`n.state = ${state}`, 'state');
  if (type !== undefined)
    add(type === 'TOKEN_TRANSFER' ? sql`n.kind = 'token'` : sql`n.kind <> 'token'`, 'kind');
  if (status !== undefined) add(hasStatus(status), 'state', 'retry_count', 'reorg_id', 'revision');
  if (token !== undefined)
    add(token === 'native' ? sql`n.token is null` : sql`n.token = ${toBytes(token)}`, 'token');
  if (minAmount !== undefined) add(sql`n.amount >= ${String(minAmount)}::numeric`, 'amount');
  if (maxAmount !== undefined) add(sql`n.amount <= ${String(maxAmount)}::numeric`, 'amount');
  if (direction !== undefined)
    add(
      sql`(select w.address from watched_address w where w.shard_id = ${shardId} and w.id = n.watched_address_id)
        = ${direction === 'in' ? sql`n.receiver` : sql`n.sender`}`,
      ...['watched_address_id', direction === 'in' ? 'receiver' : 'sender'],
    );
  if (origin !== undefined)
    add(sql`(select l.origin from lane l where l.id = n.lane_id) = ${origin}`, 'lane_id');
  if (filter.laneIds !== undefined) add(sql`n.lane_id = any(${listOf(filter.laneIds)}::bigint[])`, 'lane_id');
  if (lastAnswer !== undefined) {
    const answer = typeof lastAnswer === 'number' ? sql`a.status` : sql`a.outcome`;
    add(sql`(${lastAttemptOf(answer, shardId)}) = ${lastAnswer}`, 'created_at');
  }
  return conditions;
}

/** domain/delivery-status.ts as a condition on notification `n` of the view. */
function hasStatus(status: StoredStatus): Sql {
  const rules = statusRules.filter((rule) => rule.status === status);
  return rules
    .map(({ state, failures, isOrphanedTransfer: isOrphaned }) =>
      all([
        sql`n.state = ${state}`,
        ...(failures === undefined
          ? []
          : [sql`n.retry_count between ${failures.from} and ${failures.to}::bigint`]),
        ...(isOrphaned === undefined ? [] : [sql`(${isOrphanedTransfer}) = ${isOrphaned}`]),
      ]),
    )
    .reduce((any, rule) => sql`(${any} or ${rule})`);
}

const isOrphanedTransfer = sql`n.reorg_id is not null and ${isTransferMessage}`;

/**
 * Columns of the last attempt `a` of notification `n`, which is never older than a day before the notification (clocks.md). The
 * offset keeps the planner from reading the shard's attempts backward until one of this notification comes.
 */
export const lastAttemptOf = (columns: Sql, shardId = sql`n.shard_id`): Sql => sql`
  select ${columns} from (
    select * from delivery_attempt
    where shard_id = ${shardId} and notification_id = n.id and started_at >= n.created_at - interval '1 day' offset 0
  ) as a
  order by a.id desc limit 1`;

export const all = (conditions: readonly Sql[]): Sql =>
  conditions.reduce((together, condition) => sql`${together} and ${condition}`, sql`true`);
