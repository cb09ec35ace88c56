/**
 * Replaces all watched addresses of a watcher for one webhook URL with a given set.
 */
import type { Address } from '../../core/hex.ts';
import { shardOf, shardsOf, sliceForAddress } from '../../domain/shard.ts';
import { webhookOrigin } from '../../domain/webhook-url.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { lockText } from '../db/text-lock.ts';
import { updateTime } from '../db/time-sum.ts';
import { ensureLanes, type HeldWatcher, holdWatcher } from '../delivery/lanes.ts';
import { isInShards } from '../delivery/shards.ts';
import { noteChanges, noteDeletions, type PlaceRow, toPlace } from './note-changes.ts';
import { type ChangeTime, timeOf } from './watched.ts';

export type SetMember = { address: Address; watchCoin: boolean; watchToken: boolean };
/**
 * The caller passes `deletedIds` to `alignNotifications`, which cancels their waiting notifications. If more were deleted, workers do it for
 * each of the others when it is due.
 */
type ReplacedSet = { counts: SetCounts; deletedIds: string[] };
type SetCounts = { created: number; updated: number; deleted: number; unchanged: number };

/** Advisory lock space that serializes two sets for the same URL. */
const SET_LOCK_SPACE = 0x6362_0006;
/** Ids that a statement returns, because a watcher can have millions of records for one URL. */
const IDS_MAX = 100_000;

/**
 * Makes the watched addresses for this URL match the members, which have different addresses. If an address is watched already,
 * its oldest record stays and gets the member's flags. All other records for this URL are deleted.
 */
export async function replaceWatchedSet(
  tx: Tx,
  watcherId: number,
  webhookUrl: string,
  members: readonly SetMember[],
  now: ChangeTime,
  idsMax = IDS_MAX,
): Promise<ReplacedSet> {
  await lockText(tx, SET_LOCK_SPACE, watcherId, webhookUrl);
  const origin = webhookOrigin(webhookUrl);
  const watcher = await holdWatcher(tx, watcherId, [origin]);
  const shards = shardsOf(watcherId, watcher.slices);
  const ofUrl = sql`${isInShards(sql`w.shard_id`, shards)} and w.watcher_id = ${watcherId} and w.webhook_url = ${webhookUrl}`;
  const wanted = bytesOf(members.map(({ address }) => address));
  const deleted = await deleteSurplus(tx, { watcherId, shards, ofUrl, wanted, idsMax });
  // By address: since the doubled ones were read, another transaction may have committed a second record of a member.
  const updatedAddresses = new Set<Address>();
  for (const own of Map.groupBy(members, flagsOf).values())
    for (const address of await giveFlags(tx, { shards, ofUrl, own, now })) updatedAddresses.add(address);
  const stored = await tx.query<{ address: Address }>(sql`
    select '0x' || encode(w.address, 'hex') as address from watched_address w
    where ${ofUrl} and w.address = any(${wanted}::bytea[])`);
  const known = new Set(stored.map(({ address }) => address));
  const created = await insertMembers(tx, {
    ...{ watcher, webhookUrl, now },
    members: members.filter(({ address }) => !known.has(address)),
  });
  await noteChanges(
    tx,
    watcherId,
    created.map((row) => ({ from: undefined, to: toPlace(row) })),
  );
  const updated = updatedAddresses.size;
  const unchanged = members.length - created.length - updated;
  return {
    counts: { created: created.length, updated, deleted: deleted.count, unchanged },
    deletedIds: deleted.ids,
  };
}

type Surplus = {
  watcherId: number;
  shards: readonly number[];
  ofUrl: Sql;
  wanted: Uint8Array;
  idsMax: number;
};

/** Deletes the records of other addresses, and of each wanted address all but the oldest one. */
async function deleteSurplus(
  tx: Tx,
  { watcherId, shards, ofUrl, wanted, idsMax }: Surplus,
): Promise<{ count: number; ids: string[] }> {
  const ids: string[] = [];
  let count = 0;
  // Lists instead of joins: with old statistics of a table that grew by a set, the planner would compare each member with each record.
  for (let doubled: { id: string }[] | undefined; doubled === undefined || doubled.length === idsMax; ) {
    doubled = await tx.query<{ id: string }>(sql`
      select r.id from (
        select w.id, row_number() over (partition by w.address order by w.created_at, w.id) as rank
        from watched_address w where ${ofUrl} and w.address = any(${wanted}::bytea[])
      ) as r
      where r.rank > 1 limit ${idsMax}`);
    // The conditions on the row itself are checked again if another transaction has changed it meanwhile.
    const isSurplus = sql`${ofUrl} and (w.address <> all(${wanted}::bytea[])
      or w.id = any(${listOf(doubled.map(({ id }) => id))}::uuid[]))`;
    const counts = new Map<number, number>();
    for (const isOfShard of partsOf(tx, shards)) {
      const rows = await tx.query<{ lane_id: number; count: number; id: string | null }>(sql`
        with deleted as (delete from watched_address w where ${isSurplus}${isOfShard} returning w.id, w.lane_id)
        select lane_id, count(*) as count, null::uuid as id from deleted group by lane_id
        union all (select lane_id, 0, id from deleted limit ${idsMax - ids.length})`);
      for (const row of rows) {
        if (row.id !== null) ids.push(row.id);
        else counts.set(row.lane_id, (counts.get(row.lane_id) ?? 0) + row.count);
      }
    }
    await noteDeletions(tx, watcherId, counts);
    for (const one of counts.values()) count += one;
  }
  return { count, ids };
}

/** A condition on records `w` for each statement about these shards: on Citus, one statement for each. */
const partsOf = (tx: Tx, shards: readonly number[]): Sql[] =>
  tx.isDistributed === true ? shards.map((shard) => sql` and w.shard_id = ${shard}`) : [sql``];

type SameFlags = { shards: readonly number[]; ofUrl: Sql; own: readonly SetMember[]; now: ChangeTime };

/** Gives the records of these members, which all have the same flags, these flags. Returns the addresses of those that had others. */
async function giveFlags(tx: Tx, { shards, ofUrl, own, now }: SameFlags): Promise<Address[]> {
  const [{ watchCoin, watchToken } = neither] = own;
  const differ = sql`${ofUrl} and w.address = any(${bytesOf(own.map(({ address }) => address))}::bytea[])
    and (w.watch_coin, w.watch_token) is distinct from (${watchCoin}::boolean, ${watchToken}::boolean)`;
  for (const isOfShard of partsOf(tx, shards))
    await tx.query(sql`
      select count(*) from (
        select from watched_address w where ${differ}${isOfShard} order by w.id for update) as locked`);
  const updated = await tx.query<{ address: Address }>(sql`
    update watched_address w set watch_coin = ${watchCoin}, watch_token = ${watchToken},
      updated_at = ${updateTime(sql`w.updated_at`, timeOf(now))}
    where ${differ}
    returning '0x' || encode(w.address, 'hex') as address`);
  return updated.map(({ address }) => address);
}

const flagsOf = ({ watchCoin, watchToken }: SetMember): string => `${watchCoin} ${watchToken}`;
const neither = { watchCoin: false, watchToken: false };

type NewMembers = {
  watcher: HeldWatcher;
  webhookUrl: string;
  members: readonly SetMember[];
  now: ChangeTime;
};

async function insertMembers(tx: Tx, { watcher, webhookUrl, members, now }: NewMembers): Promise<PlaceRow[]> {
  if (members.length === 0) return [];
  const sliceOf = ({ address }: SetMember) => sliceForAddress(address, watcher.slices);
  const origin = webhookOrigin(webhookUrl);
  const keyOf = (slice: number) => ({ shardId: shardOf(watcher.id, slice), origin });
  const laneOf = await ensureLanes(tx, watcher, [...new Set(members.map(sliceOf))].map(keyOf));
  const slices = members.map(sliceOf);
  const at = timeOf(now);
  return tx.query<PlaceRow>(sql`
    insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url,
      created_at, updated_at)
    select t.shard_id, encode(set_byte(uuid_send(gen_random_uuid()), 15, t.slice), 'hex')::uuid, ${watcher.id}::bigint,
      t.lane_id, t.address, t.watch_coin, t.watch_token, ${webhookUrl}::text, ${at}::timestamptz, ${at}::timestamptz
    from unnest(
      ${bytesOf(members.map(({ address }) => address))}::bytea[],
      ${listOf(members.map(({ watchCoin }) => String(watchCoin)))}::boolean[],
      ${listOf(members.map(({ watchToken }) => String(watchToken)))}::boolean[],
      ${listOf(slices)}::integer[],
      ${listOf(slices.map((slice) => keyOf(slice).shardId))}::bigint[],
      ${listOf(slices.map((slice) => laneOf(keyOf(slice))))}::bigint[]
    ) as t (address, watch_coin, watch_token, slice, shard_id, lane_id)
    returning lane_id, address`);
}
