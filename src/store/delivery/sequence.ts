/**
 * `strict_order`: for each watched address with this setting, only one notification at a time may be attempted, in the order of
 * the chain. The ones after it are held, so that no worker reads them while the first one fails.
 */
import { listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { forEachShard } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { wakeLanes } from './lanes.ts';
import type { ShardKey } from './shards.ts';

/** Advisory lock space of watched addresses whose sequence a transaction advances. */
const SEQUENCE_LOCK_SPACE = 0x6362_0007;

export type OrderedRecord = ShardKey<string>;

/**
 * If a watched address has no notification waiting for an attempt, makes its first held one due, unless that one lacks
 * confirmations. Every transaction that creates or ends a notification of the watched address must call this after its other
 * statements.
 */
export async function advanceSequences(tx: Tx, records: readonly OrderedRecord[], now: Date): Promise<void> {
  if (records.length === 0) return;
  const ordered = [...new Map(records.map((record) => [record.id, record])).values()].sort((a, b) =>
    a.id < b.id ? -1 : 1,
  );
  const ids = listOf(ordered.map(({ id }) => id));
  // The lock orders a transaction that creates and one that ends: the update of the later one sees the other's changes.
  await tx.query(
    sql`select pg_advisory_xact_lock(${SEQUENCE_LOCK_SPACE}, hashtext(id)) from unnest(${ids}::text[]) as r (id)`,
  );
  const advance = (own: readonly OrderedRecord[], shardId: Sql) =>
    tx.query<{ lane_id: number }>(sql`
    update queue n set state = 'waiting', due_at = greatest(${now}, next_retry_at)
    from unnest(
      ${listOf(own.map((record) => record.shardId))}::bigint[], ${listOf(own.map(({ id }) => id))}::uuid[]) as r (shard_id, id)
    cross join lateral (
      select o.id, o.state, o.release_number from queue o
      where o.shard_id = ${shardId} and o.watched_address_id = r.id and o.sequence is not null
      order by o.state desc, o.sequence limit 1
    ) as first
    where n.shard_id = ${shardId} and n.id = first.id and first.state = 'held' and first.release_number is null
    returning n.lane_id`);
  const rows =
    tx.isDistributed === true
      ? await forEachShard(ordered, (shardId, own) => advance(own, sql`${shardId}`))
      : await advance(ordered, sql`r.shard_id`);
  await wakeLanes(tx, [...new Set(rows.map(({ lane_id }) => lane_id))], now);
}
