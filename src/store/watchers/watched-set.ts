/**
 * Replaces all watched addresses of a watcher for one webhook URL with a given set.
 */
import type { Address } from '../../core/hex.ts';
import { shardOf, shardsOf, sliceForAddress } from '../../domain/shard.ts';
import { webhookOrigin } from '../../domain/webhook-url.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { tableOf } from '../db/shard-rows.ts';
import { sql } from '../db/sql.ts';
import { updateTime } from '../db/time-sum.ts';
import { ensureLanes, holdWatcher } from '../delivery/lanes.ts';
import { isInShards } from '../delivery/shards.ts';
import { noteChanges, type PlaceRow, toDeletion, toPlace } from './note-changes.ts';

export type SetMember = { address: Address; watchCoin: boolean; watchToken: boolean };
/** The caller passes `deletedIds` to `alignNotifications`, which cancels their waiting notifications. */
type ReplacedSet = { counts: SetCounts; deletedIds: string[] };
type SetCounts = { created: number; updated: number; deleted: number; unchanged: number };

/** Advisory lock space that serializes two sets for the same URL. */
const SET_LOCK_SPACE = 0x6362_0006;

/**
 * Makes the watched addresses for this URL match the members, which have different addresses. If an address is watched already,
 * its oldest record stays and gets the member's flags. All other records for this URL are deleted.
 */
export async function replaceWatchedSet(
  tx: Tx,
  watcherId: number,
  webhookUrl: string,
  members: readonly SetMember[],
  now: Date,
): Promise<ReplacedSet> {
  await tx.query(
    sql`select pg_advisory_xact_lock(${SET_LOCK_SPACE}::int, hashtext(${`${watcherId} ${webhookUrl}`}))`,
  );
  const origin = webhookOrigin(webhookUrl);
  const watcher = await holdWatcher(tx, watcherId, [origin]);
  const shards = shardsOf(watcherId, watcher.slices);
  const ofUrl = sql`${isInShards(sql`w.shard_id`, shards)} and w.watcher_id = ${watcherId} and w.webhook_url = ${webhookUrl}`;
  const wanted = sql`unnest(
      ${bytesOf(members.map(({ address }) => address))}::bytea[],
      ${listOf(members.map(({ watchCoin }) => String(watchCoin)))}::boolean[],
      ${listOf(members.map(({ watchToken }) => String(watchToken)))}::boolean[],
      ${listOf(members.map(({ address }) => sliceForAddress(address, watcher.slices)))}::integer[]
    ) as t (address, watch_coin, watch_token, slice)`;
  const deleted = await tx.query<PlaceRow & { id: string }>(sql`
    with ranked as (
      select w.shard_id, w.id, w.address, row_number() over (partition by w.address order by w.created_at, w.id) as rank
      from watched_address w where ${ofUrl}
    )
    delete from watched_address d
    where ${isInShards(sql`d.shard_id`, shards)} and (d.shard_id, d.id) in (
      select r.shard_id, r.id from ranked r left join ${wanted} on t.address = r.address
      where t.address is null or r.rank > 1)
    returning d.id, d.lane_id, d.address`);
  await noteChanges(tx, watcherId, deleted.map(toDeletion));
  const updated = await tx.query(sql`
    update watched_address w set watch_coin = t.watch_coin, watch_token = t.watch_token,
      updated_at = ${updateTime(sql`w.updated_at`, now)}
    from ${wanted}
    where ${ofUrl} and w.address = t.address
      and (w.watch_coin, w.watch_token) is distinct from (t.watch_coin, t.watch_token)
    returning w.id`);
  const slices = [...new Set(members.map(({ address }) => sliceForAddress(address, watcher.slices)))];
  const keys = slices.map((slice) => ({ shardId: shardOf(watcherId, slice), origin }));
  const laneOf = await ensureLanes(tx, watcher, keys);
  const known = await tableOf(tx, 'watched_address', { alias: 'w', where: ofUrl });
  const created = await tx.query<PlaceRow>(sql`
    insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url,
      created_at, updated_at)
    select p.shard_id, encode(set_byte(uuid_send(gen_random_uuid()), 15, p.slice), 'hex')::uuid, ${watcherId}::bigint,
      p.lane_id, t.address, t.watch_coin, t.watch_token, ${webhookUrl}::text, ${now}::timestamptz, ${now}::timestamptz
    from ${wanted} join unnest(
      ${listOf(slices)}::integer[],
      ${listOf(keys.map(({ shardId }) => shardId))}::bigint[],
      ${listOf(keys.map(laneOf))}::bigint[]
    ) as p (slice, shard_id, lane_id) on p.slice = t.slice
    where not exists (select from ${known} w where ${ofUrl} and w.address = t.address)
    returning lane_id, address`);
  await noteChanges(
    tx,
    watcherId,
    created.map((row) => ({ from: undefined, to: toPlace(row) })),
  );
  const unchanged = members.length - created.length - updated.length;
  return {
    counts: { created: created.length, updated: updated.length, deleted: deleted.length, unchanged },
    deletedIds: deleted.map(({ id }) => id),
  };
}
