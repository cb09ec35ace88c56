/**
 * Shards. A watcher's data is in as many shards as it has slices, usually one. Tables are distributed by `shard_id`, which never
 * changes.
 */
import type { Address } from '../core/hex.ts';

/** A record's slice is one byte of its id. */
export const SLICES_MAX = 256;
/** Watcher ids are below this number, and shard ids below 2^48, so they are exact as JavaScript numbers. */
export const SHARD_STEP = 2 ** 40;

/** The shard of one slice of the watcher. That of slice 0 has the watcher's id. */
export const shardOf = (watcherId: number, slice = 0): number => watcherId + slice * SHARD_STEP;

/** The watcher of a shard. */
export const watcherOfShard = (shardId: number): number => shardId % SHARD_STEP;

export const shardsOf = (watcherId: number, slices: number): number[] =>
  Array.from({ length: slices }, (_, slice) => shardOf(watcherId, slice));

/** The slice of a watched address: the last byte of its id. An id that no watched address has may give any slice. */
export const sliceOfRecord = (recordId: string): number => Number.parseInt(recordId.slice(-2), 16);

/** The shard of a watched address, however many slices its watcher had and has. */
export const shardOfRecord = (watcherId: number, recordId: string): number =>
  shardOf(watcherId, sliceOfRecord(recordId));

/** The id of a new record in this slice: the given UUID with another last byte, which is still a UUID of version 4. */
export const recordIdIn = (slice: number, uuid: string): string =>
  uuid.slice(0, -2) + slice.toString(16).padStart(2, '0');

/**
 * The slice of a new record. Records with the same address share it until the number of slices is raised. FNV-1a (32 bits) of
 * the address's digits. Source: RFC 9923.
 */
export function sliceForAddress(address: Address, slices: number): number {
  if (slices === 1) return 0;
  let hash = 0x811c9dc5;
  for (let at = 2; at < address.length; at += 1)
    hash = Math.imul(hash ^ address.charCodeAt(at), 0x01000193) >>> 0;
  return hash % slices;
}
