/**
 * Statements that write the notifications which the matching join has computed: on one server as parts of its statement, and on Citus
 * after it.
 */
import type { Tx } from '../db/db.ts';
import { inReach, recordsOf, unnested } from '../db/shard-rows.ts';
import { raw, type Sql, sql } from '../db/sql.ts';
import {
  type ChangedRow,
  changedRow,
  countStored,
  queuedColumns,
  queuedNames,
  type StoredCount,
  type StoredCountRow,
  storedCountColumns,
  toStoredCount,
  writtenColumns,
  writtenNames,
} from './stored-count.ts';

/** The statements that update `earlier` notifications. `inShard` limits each to a shard. */
const reinclusions = (tx: Tx, earlier: Sql, now: Date) => ({
  moved: sql`
      update notification n set block_number = e.new_block_number, ordinal = e.new_ordinal from ${earlier} e
      where e.is_changed and n.shard_id = e.shard_id and n.id = e.id and n.created_at = e.created_at
        and (n.block_number, n.ordinal) <> (e.new_block_number, e.new_ordinal)${inReach(tx, sql`n.shard_id`)}`,
  acknowledged: sql`
      update ended n set reorg_id = null, tx_hash = null, sequence = e.new_sequence from ${earlier} e
      where e.is_changed and e.stays and e.state = 'processed' and n.shard_id = e.shard_id and n.id = e.id${inReach(tx, sql`n.shard_id`)}
      returning n.shard_id, e.lane_id, 'processed' as state,
        case when n.sequence is not null then e.watched_address_id end as ordered_id`,
  resumed: sql`
      delete from ended n using ${earlier} e
      where e.is_changed and not (e.stays and e.state = 'processed') and n.shard_id = e.shard_id and n.id = e.id${inReach(tx, sql`n.shard_id`)}`,
  requeued: sql`
      insert into queue as q (${queuedColumns}, due_at, revision, retry_count, redelivery_count, next_retry_at, may_be_seen)
      select shard_id, id, created_at, case when is_sent_again then new_lane_id else lane_id end, watched_address_id,
        case when stays then state else new_state end, case when not stays then new_release_number end, new_sequence,
        case when is_sent_again then new_epoch else unsent_epoch end,
        case when is_sent_again then ${now}::timestamptz else next_attempt_at end, new_revision,
        retry_count, redelivery_count,
        case when not is_sent_again then next_retry_at when retry_count > 0 then ${now}::timestamptz end, may_be_seen
      from ${earlier} e where is_changed and not (stays and state = 'processed')
      order by shard_id, id
      on conflict (shard_id, id) do update set lane_id = excluded.lane_id, state = excluded.state,
        release_number = excluded.release_number, sequence = excluded.sequence, unsent_epoch = excluded.unsent_epoch,
        due_at = excluded.due_at, revision = excluded.revision, retry_count = excluded.retry_count,
        redelivery_count = excluded.redelivery_count, next_retry_at = excluded.next_retry_at,
        may_be_seen = excluded.may_be_seen, reorg_id = null, tx_hash = null
      returning ${changedRow}`,
});

/** CTEs that update `earlier` notifications, and return those that are canonical again as `changed`. */
export function reincluded(tx: Tx, now: Date): Sql {
  const { moved, acknowledged, resumed, requeued } = reinclusions(tx, sql`earlier`, now);
  return sql`
    moved as (${moved}), acknowledged as (${acknowledged}), resumed as (${resumed}), requeued as (${requeued}), changed as (
      select * from acknowledged union all select * from requeued
    ),`;
}

/** The made rows, as `notification` and `queue` need them. */
const madeTypes = {
  shard_id: 'bigint',
  id: 'bigint',
  created_at: 'timestamptz',
  block_number: 'bigint',
  ordinal: 'integer',
  occurrence: 'integer',
  kind: '"char"',
  watched_address_id: 'uuid',
  tx_hash: 'bytea',
  sender: 'bytea',
  receiver: 'bytea',
  token: 'bytea',
  amount: 'numeric',
  replaces: 'bigint',
  lane_id: 'bigint',
  state: 'text',
  release_number: 'bigint',
  sequence: 'bigint',
  unsent_epoch: 'bigint',
};
type MadeColumn = keyof typeof madeTypes;

const EARLIER_COLUMNS = `shard_id bigint, id bigint, created_at timestamptz, lane_id bigint, watched_address_id uuid,
  unsent_epoch bigint, retry_count integer, redelivery_count integer, next_retry_at timestamptz, next_attempt_at timestamptz,
  may_be_seen boolean, state text, is_changed boolean, is_sent_again boolean, stays boolean, new_lane_id bigint, new_state text,
  new_release_number bigint, new_sequence bigint, new_epoch bigint, new_block_number bigint, new_ordinal integer,
  new_revision integer`;

/** The same on Citus: computes the rows on the coordinator, and writes them with a statement for each table. */
export async function insertInShards(
  tx: Tx,
  { selected, made, hasEarlier, now }: { selected: Sql; made: Sql; hasEarlier: boolean; now: Date },
): Promise<StoredCount[]> {
  // Arrays, because PostgreSQL takes three times as long to write and read rows as JSON.
  const arrays = Object.keys(madeTypes)
    .map((name) => `array_agg(m.${name})::text as ${name}`)
    .join();
  const [computed] = await tx.query<Computed>(sql`
    with ${selected}, ${made}, counts as (
      select ${storedCountColumns} from (
        select shard_id, lane_id, state, case when sequence is not null then watched_address_id end as ordered_id, true as is_new
        from made) as stored
      group by shard_id, lane_id, state, ordered_id order by lane_id, state, ordered_id
    )
    select ${raw(arrays)}, coalesce((select json_agg(c) from counts c), '[]')::text as counts,
      ${hasEarlier ? sql`(select json_agg(e) from earlier e)` : sql`null`}::text as earlier
    from made m`);
  let changed: ChangedRow[] = [];
  if (computed?.earlier !== null && computed?.earlier !== undefined) {
    const steps = reinclusions(tx, recordsOf(computed.earlier, EARLIER_COLUMNS), now);
    await tx.query(steps.moved);
    const acknowledged = await tx.query<ChangedRow>(steps.acknowledged);
    await tx.query(steps.resumed);
    changed = [...acknowledged, ...(await tx.query<ChangedRow>(steps.requeued))];
  }
  if (computed !== undefined && computed.id !== null) {
    await announceCopy(tx, computed.shard_id);
    await tx.query(sql`
      insert into notification (${writtenColumns}, is_held)
      select ${writtenColumns}, state = 'held' from ${arraysOf(computed, [...writtenNames, 'state'])} m order by id`);
    // Without `returning`, for which Citus would write the rows to files first.
    await tx.query(sql`
      insert into queue (${queuedColumns}, due_at)
      select ${queuedColumns}, created_at from ${arraysOf(computed, queuedNames)} m order by id`);
  }
  const counts: StoredCountRow[] = JSON.parse(computed?.counts ?? '[]');
  return [...counts.map(toStoredCount), ...countStored(changed.map((row) => ({ ...row, is_new: false })))];
}

/**
 * Citus writes `insert … select` of other rows with COPY. It prepares only connections that it knows to write, and doesn't note that
 * of a COPY on a connection that has read before: such a worker would commit after the coordinator, and if it were lost in between,
 * the block would be stored without its notifications. This statement matches no row, but is noted as a write.
 */
async function announceCopy(tx: Tx, shards: string | null): Promise<void> {
  await tx.query(sql`delete from queue where shard_id = any(${shards}::bigint[]) and id = 0`);
}

/** Each column of the made rows, as PostgreSQL writes an array; null without rows. */
type Computed = Record<MadeColumn, string | null> & { counts: string; earlier: string | null };

/** A relation with these columns of the made rows. */
const arraysOf = (computed: Computed, names: readonly MadeColumn[]): Sql =>
  unnested(names.map((name) => ({ name, type: madeTypes[name], array: sql`${computed[name]}` })));
