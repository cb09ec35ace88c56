/**
 * Referrals of users, in the order of the chain. A reorg deletes those of orphaned blocks.
 */
import { type Address, fromBytes } from '../../core/hex.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';

export type Referral = {
  user: Address;
  referrer: Address;
  blockNumber: number;
  /** Index of the log in its block. */
  logIndex: number;
  /** Block time. */
  linkedAt: Date;
};

/** Counts only referrals before this log, or of blocks before this time. */
export type ReferredBefore = { blockNumber: number; logIndex: number } | { time: Date };

/** Whether a user's first referral counts for good, or always the newest one. */
type ReferralOrder = 'first' | 'newest';

/** Stores the referrals of new blocks, given in order. With `first`, users who already have one get no other. */
export async function insertReferrals(
  tx: Tx,
  referrals: readonly Referral[],
  order: ReferralOrder,
): Promise<void> {
  const users = new Set<Address>();
  const added = referrals.filter(({ user }) => order === 'newest' || (!users.has(user) && users.add(user)));
  if (added.length === 0) return;
  await tx.query(sql`
    insert into referral (user_address, referrer_address, block_number, log_index, linked_at)
    select t.* from unnest(
      ${bytesOf(added.map(({ user }) => user))}::bytea[],
      ${bytesOf(added.map(({ referrer }) => referrer))}::bytea[],
      ${listOf(added.map(({ blockNumber }) => blockNumber))}::bigint[],
      ${listOf(added.map(({ logIndex }) => logIndex))}::integer[],
      ${added.map(({ linkedAt }) => linkedAt)}::timestamptz[]
    ) as t (user_address, referrer_address, block_number, log_index, linked_at)
    where ${order === 'newest'} or not exists (select from referral r where r.user_address = t.user_address)`);
}

/** The referrer for each query, undefined if there is none. */
export async function findReferrers(
  db: Db,
  queries: readonly { user: Address; before: ReferredBefore }[],
  order: ReferralOrder,
): Promise<(Address | undefined)[]> {
  if (queries.length === 0) return [];
  const logs = queries.map(({ before }) => ('time' in before ? undefined : before));
  const direction = order === 'first' ? sql`block_number, log_index` : sql`block_number desc, log_index desc`;
  const rows = await db.query<{ referrer_address: Uint8Array | null }>(sql`
    select found.referrer_address
    from unnest(
      ${bytesOf(queries.map(({ user }) => user))}::bytea[],
      ${listOf(logs.map((log) => log?.blockNumber ?? 'null'))}::bigint[],
      ${listOf(logs.map((log) => log?.logIndex ?? 'null'))}::integer[],
      ${queries.map(({ before }) => ('time' in before ? before.time : null))}::timestamptz[]
    ) with ordinality as q (user_address, block_number, log_index, time, position)
    left join lateral (
      select referrer_address from referral r
      where r.user_address = q.user_address and case when q.time is null
        then (r.block_number, r.log_index) < (q.block_number, q.log_index) else r.linked_at < q.time end
      order by ${direction} limit 1
    ) as found on true
    order by q.position limit ${queries.length}`);
  return rows.map((row) => (row.referrer_address === null ? undefined : fromBytes(row.referrer_address)));
}

/** Deletes the referrals of all blocks above the ancestor. */
export async function deleteReferralsAbove(tx: Tx, ancestorNumber: number): Promise<void> {
  await tx.query(sql`delete from referral where block_number > ${ancestorNumber}`);
}
