/**
 * Notifications that a commit has written, counted by lane.
 */
import { raw, sql } from '../db/sql.ts';
import type { OrderedRecord } from '../delivery/sequence.ts';

/**
 * A group of notifications that a commit created, included again or released. They share lane and state, and in strict order
 * the record. `count` counts only the created ones.
 */
export type StoredCount = {
  laneId: number;
  state: string;
  count: number;
  ordered: OrderedRecord | undefined;
};

export type StoredCountRow = {
  shard_id: number;
  lane_id: number;
  state: string;
  ordered_id: string | null;
  count: number;
};

export function toStoredCount({ shard_id, lane_id, state, ordered_id, count }: StoredCountRow): StoredCount {
  const ordered = ordered_id === null ? undefined : { shardId: shard_id, id: ordered_id };
  return { laneId: lane_id, state, count, ordered };
}

export type ChangedRow = Omit<StoredCountRow, 'count'> & { is_new: boolean };

/** Groups rows with the columns `changedRow`, as `storedCountColumns` do. */
export function countStored(rows: readonly ChangedRow[]): StoredCount[] {
  const groups = Map.groupBy(rows, ({ lane_id, state, ordered_id }) => `${lane_id} ${state} ${ordered_id}`);
  return [...groups.values()].flatMap((own) => {
    const [first] = own;
    return first === undefined
      ? []
      : toStoredCount({ ...first, count: own.filter((row) => row.is_new).length });
  });
}

/** The columns of a StoredCount, grouped from rows with the columns `changedRow`. */
export const storedCountColumns = sql`shard_id, lane_id, state, ordered_id, count(*) filter (where is_new) as count`;
export const changedRow = sql`q.shard_id, q.lane_id, q.state,
  case when q.sequence is not null then q.watched_address_id end as ordered_id`;

/** The columns of `notification` and of `queue` that the matching join computes. */
export const writtenNames = [
  ...(['shard_id', 'id', 'created_at', 'block_number', 'ordinal', 'occurrence', 'kind'] as const),
  ...(['watched_address_id', 'tx_hash', 'sender', 'receiver', 'token', 'amount', 'replaces'] as const),
] as const;
export const queuedNames = [
  ...(['shard_id', 'id', 'created_at', 'lane_id', 'watched_address_id', 'state'] as const),
  ...(['release_number', 'sequence', 'unsent_epoch'] as const),
] as const;
export const writtenColumns = raw(writtenNames.join(', '));
export const queuedColumns = raw(queuedNames.join(', '));
