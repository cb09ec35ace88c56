/**
 * Deferred notifications. A watcher can watch the same address thousands of times at no cost, and thousands of watchers can watch a busy
 * one. A block can then produce more rows than its commit should write. The commit stores only which records (watched addresses) of each
 * watcher matched (`deferred_match`, `deferred_records`), and the transfers of each address once for all watchers (`deferred_transfers`).
 * Transactions of bounded size write the notifications, watcher by watcher.
 *
 * Notifications of a watcher for one address keep the order of blocks: while an older match is deferred, later ones are deferred
 * too. A reorg deletes the deferred matches of orphaned blocks, and its commit defers as others do. Notifications that exist already and
 * whose transfers stay on the chain are kept at once (kept-rows.ts), so no removal notice is sent for them.
 */
import { type Address, fromBytes, toBytes } from '../../core/hex.ts';
import type { Transfer } from '../../domain/block.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { isLost } from '../db/lost-shards.ts';
import { inReach, readJson, recordsOf, rowsOf } from '../db/shard-rows.ts';
import { type Sql, sql } from '../db/sql.ts';
import { dropTransfers } from './drop-deferred.ts';
import { addressOf, type Match, type RecordGroup } from './matching.ts';
import type { ReleaseLimits } from './release-held.ts';

export type DeferralLimits = {
  /**
   * Groups of up to this many records for one watcher and address are deferred only behind an older deferred match, and if the watcher has
   * more than `ownRowsMax` rows of such groups: then those with most records, but none of one record.
   */
  recordsMin: number;
  ownRowsMax: number;
  /** Rows of groups of up to `recordsMin` records that one commit writes for all watchers together: those of the smallest groups. */
  allRowsMax: number;
  /** Rows of larger groups that one commit writes, the smallest groups first. */
  rowsAtOnce: number;
  /** Rows of one transaction that writes what was deferred. */
  rowsMax: number;
  /** How held notifications are released (release-held.ts). */
  release?: ReleaseLimits;
};

/**
 * An exchange has one record per address, so its groups stay far below `recordsMin`, and however many transfers a block has, each gives it
 * one row. `ownRowsMax` rows take about half a second, and `allRowsMax` a few seconds. `rowsMax` keeps each transaction that writes deferred notifications short.
 */
export const deferralLimits: DeferralLimits = {
  recordsMin: 16,
  ownRowsMax: 10_000,
  allRowsMax: 50_000,
  rowsAtOnce: 64,
  rowsMax: 250,
};

/**
 * Rows of groups with strict order that the commit of a reorg writes at once. In a deferred group, notifications that the reorg keeps
 * would be sent before those that come before them.
 */
const REORG_ROWS_MAX = 10_000;

/**
 * `whollyDeferred`: the addresses whose records are all in these groups. `shards`: those with records of the matches, on Citus; undefined on
 * one server.
 */
type Deferrable = {
  groups: RecordGroup[];
  whollyDeferred: ReadonlySet<Address>;
  shards: readonly number[] | undefined;
};

/** The groups whose notifications the commit leaves to `writeDeferred`. */
export async function listDeferrable(
  tx: Tx,
  matches: readonly Match[],
  { isReorg, limits }: { isReorg: boolean; limits: DeferralLimits },
): Promise<Deferrable> {
  const counts = new Map<Address, number>();
  for (const match of matches) counts.set(addressOf(match), (counts.get(addressOf(match)) ?? 0) + 1);
  if (counts.size === 0) return { groups: [], whollyDeferred: new Set(), shards: undefined };
  const addresses = bytesOf([...counts.keys()]);
  const matched = sql`unnest(${addresses}::bytea[], ${listOf([...counts.values()])}::bigint[]) as m (address, matches)`;
  const { recordsMin } = limits;
  const { groups, shards } = await groupsOf(tx, addresses);
  const rows = await tx.query<{
    watcher_id: number;
    address: Uint8Array;
    records: number;
    count: number;
    watchers: number;
    is_strict: boolean;
    follows: boolean;
    is_beyond: boolean;
    is_crowded: boolean;
  }>(sql`
    with recursive deferred as (${deferredOf(addresses)}), sized as (
      select watcher_id, address, records, (records * matches)::bigint as count, is_strict, count(*) over (partition by address) as watchers,
        (watcher_id, address) in (select watcher_id, address from deferred) as follows,
        records between 2 and ${recordsMin} and sum(records * matches) filter (where records <= ${recordsMin})
          over (partition by watcher_id order by records, records * matches, address) > ${limits.ownRowsMax} as is_beyond,
        records <= ${recordsMin} and sum(records * matches) filter (where records <= ${recordsMin}) over () > ${limits.allRowsMax}
          as is_crowded
      from ${groups} as of_address join ${matched} using (address)
    )
    select * from sized where records > ${recordsMin} or follows or is_beyond or is_crowded
    order by records, watcher_id, address`);
  const tooMany = beyond(
    rows.filter((row) => row.is_crowded && !row.follows && !row.is_beyond),
    limits.allRowsMax,
  );
  let left = limits.rowsAtOnce;
  let strictLeft = isReorg ? REORG_ROWS_MAX : 0;
  const deferred = rows.flatMap((row) => {
    const group = { watcherId: row.watcher_id, address: fromBytes(row.address), watchers: row.watchers };
    if (row.follows) return [group];
    if (row.is_strict && row.count <= strictLeft) {
      strictLeft -= row.count;
      return [];
    }
    if (row.is_beyond || tooMany.has(row)) return [group];
    if (row.is_crowded) return [];
    left -= row.count;
    return left < 0 ? [group] : [];
  });
  const byAddress = Map.groupBy(deferred, ({ address }) => address);
  const whole = [...byAddress].filter(([, groups]) => groups.length === groups[0]?.watchers);
  return { groups: deferred, whollyDeferred: new Set(whole.map(([address]) => address)), shards };
}

/** The largest groups, without which the others have at most `max` rows. */
function beyond<Group extends { count: number }>(groups: readonly Group[], max: number): ReadonlySet<Group> {
  let sum = 0;
  const bySize = groups.toSorted((one, other) => one.count - other.count);
  return new Set(
    bySize.filter(({ count }) => {
      sum += count;
      return sum > max;
    }),
  );
}

/** The watchers that have deferred matches of these addresses: one probe of the index for each of them, however many are deferred. */
function deferredOf(addresses: Buffer): Sql {
  const next = (address: Sql, condition: Sql) => sql`
    cross join lateral (
      select d.watcher_id, d.address from deferred_match d where d.address = ${address}${condition}
      order by d.watcher_id limit 1) as next`;
  return sql`
      select next.* from unnest(${addresses}::bytea[]) as a (address)${next(sql`a.address`, sql``)}
      union all
      select next.* from deferred${next(sql`deferred.address`, sql` and d.watcher_id > deferred.watcher_id`)}`;
}

/** How many records each watcher has with each of these addresses, as a relation. */
async function groupsOf(tx: Tx, addresses: Buffer): Promise<{ groups: Sql } & Pick<Deferrable, 'shards'>> {
  const isMatched = sql`address = any(${addresses}::bytea[])`;
  const counted = (columns: Sql, records: Sql, { strict, from }: { strict: Sql; from: Sql }) =>
    sql`select ${columns}, ${records} as records, bool_or(${strict}) as is_strict from ${from} group by ${columns}`;
  const [ofWatcher, strict] = [sql`watcher_id, address`, sql`strict_order`];
  if (tx.isDistributed !== true)
    return {
      groups: sql`(${counted(ofWatcher, sql`count(*)`, { strict, from: sql`watched_address where ${isMatched}` })})`,
      shards: undefined,
    };
  const inShards = sql`watched_address where ${isMatched}${inReach(tx, sql`shard_id`)}`;
  const json = await readJson(
    tx,
    counted(sql`shard_id, watcher_id, address`, sql`count(*)`, { strict, from: inShards }),
  );
  const found: { shard_id: number }[] = JSON.parse(json);
  const rows = recordsOf(
    json,
    'shard_id bigint, watcher_id bigint, address bytea, records bigint, is_strict boolean',
  );
  const ofShards = { strict: sql`is_strict`, from: sql`${rows} as of_shards` };
  return {
    groups: sql`(${counted(ofWatcher, sql`sum(records)`, ofShards)})`,
    shards: [...new Set(found.map((row) => row.shard_id))],
  };
}

/** The matches that have some notifications written with the block. */
export function withoutDeferred(matches: readonly Match[], { whollyDeferred }: Deferrable): readonly Match[] {
  if (whollyDeferred.size === 0) return matches;
  return matches.filter((match) => !whollyDeferred.has(addressOf(match)));
}

/**
 * Stores which records of these groups matched. `hasEarlier` is an option of `insertNotifications`. On one server it returns CTEs for the
 * statement that inserts the other notifications: both must see the same records, because one can move to another address in between.
 */
export async function deferMatches(
  tx: Tx,
  groups: readonly RecordGroup[],
  { matches, hasEarlier, limits }: { matches: readonly Match[]; hasEarlier: boolean; limits: DeferralLimits },
): Promise<Sql | undefined> {
  if (groups.length === 0) return undefined;
  const wanted = new Set(groups.map(({ address }) => address));
  const ofGroups = matches.filter((match) => wanted.has(addressOf(match)));
  const ofAddresses = Map.groupBy(ofGroups, (match) => `${addressOf(match)} ${match.block}`);
  const parts = [...ofAddresses.values()].flatMap((own) => inParts(own, hasEarlier, limits));
  const records = await rowsOf(
    tx,
    sql`
        select watcher_id, address, array_agg(id) as ids from watched_address
        where address = any(${bytesOf([...wanted])}::bytea[]) and (watcher_id, address) in (
          select * from unnest(
            ${listOf(groups.map(({ watcherId }) => watcherId))}::bigint[],
            ${bytesOf(groups.map(({ address }) => address))}::bytea[]))${inReach(tx, sql`shard_id`)}
        group by watcher_id, address`,
    'watcher_id bigint, address bytea, ids uuid[]',
  );
  const storing = sql`
    part as materialized (
      select * from unnest(
        ${bytesOf(parts.map(([match]) => match && addressOf(match)))}::bytea[],
        ${listOf(parts.map(([match]) => match?.block ?? 0))}::bigint[],
        ${parts.map((part) => JSON.stringify(part, amountAsText))}::text[],
        ${listOf(parts.map((part) => part.length))}::integer[]
      ) with ordinality as p (address, block, matches, match_count, position)
    ), found as materialized (
      select watcher_id, address, ids, cardinality(ids) as records from ${records} as r
    ), transfer_set as materialized (
      select nextval('deferred_id_seq') as id, address, block, count from (
        select address, block, sum(match_count) as count from part group by address, block order by min(position)) as s
      where exists (select from found f where f.address = s.address)
    ), deferred as materialized (
      select nextval('deferred_id_seq') as id, watcher_id, address, records, block, set_id, count from (
        select f.watcher_id, f.address, f.records, s.block, s.id as set_id, s.count from found f join transfer_set s using (address)
        order by s.block, f.watcher_id, f.address) as d
    ), transfers_stored as (
      insert into deferred_transfers (set_id, part, block_number, matches, match_count)
      select s.id, row_number() over (partition by s.id order by p.position) - 1, p.block, p.matches::jsonb, p.match_count
      from part p join transfer_set s using (address, block)
    ), records_stored as (
      insert into deferred_records (group_id, part, watcher_id, block_number, record_ids)
      select d.id, part, d.watcher_id, d.block, f.ids[part * ${RECORDS_MAX} + 1 : (part + 1) * ${RECORDS_MAX}]
      from deferred d join found f using (watcher_id, address)
      cross join lateral generate_series(0, (d.records - 1) / ${RECORDS_MAX}) as part
    ), matches_stored as (
      insert into deferred_match (id, watcher_id, block_number, address, set_id, records, records_left, notifications_left, has_earlier)
      select id, watcher_id, block, address, set_id, records, records, records * count, ${hasEarlier} from deferred
    )`;
  if (tx.isDistributed !== true) return storing;
  await tx.query(sql`with ${storing} select`);
  return undefined;
}

/** Records in a row of `deferred_records`. Several transactions write the notifications of one row. */
const RECORDS_MAX = 10_000;
/** Matches in a row of `deferred_transfers`: few, because a transaction writes the notifications of all of them for some of the records. */
const MATCHES_MAX = 16;

/**
 * Matches of one address in one block, in parts. Those of a transaction with earlier notifications
 * stay together as far as `rowsMax` allows, because they decide what a notification replaces.
 */
function inParts(
  matches: readonly Match[],
  hasEarlier: boolean,
  { rowsMax }: Pick<DeferralLimits, 'rowsMax'>,
): Match[][] {
  const parts: Match[][] = [];
  for (const match of matches) {
    const part = parts.at(-1);
    const isSame = hasEarlier && part?.at(-1)?.transfer.txHash === match.transfer.txHash;
    if (part !== undefined && part.length < (isSame ? Math.max(rowsMax, MATCHES_MAX) : MATCHES_MAX))
      part.push(match);
    else parts.push([match]);
  }
  return parts;
}

/** The oldest block with deferred matches. */
export async function findFirstDeferred(db: Db): Promise<number | undefined> {
  const [row] = await db.query<{ block_number: number }>(
    sql`select block_number from deferred_match order by block_number limit 1`,
  );
  return row?.block_number;
}

/** Whether matches of the group in this block are deferred. */
export async function isDeferred(
  db: Db,
  { watcherId, address }: RecordGroup,
  blockNumber: number,
): Promise<boolean> {
  const rows = await db.query(sql`
    select from deferred_match
    where block_number = ${blockNumber} and watcher_id = ${watcherId} and address = ${toBytes(address)} limit 1`);
  return rows.length > 0;
}

/** Transfers of an address in one block, and records of one watcher that they are for. */
type Deferred = { recordIds: string[]; matches: Match[]; hasEarlier: boolean };

/** The id of each watcher's oldest deferred match, by watcher: one probe of the index for each of them, however many are deferred. On Citus, without watchers that have lost shards. */
export async function listDeferred(tx: Tx): Promise<Map<number, number>> {
  const isReached =
    tx.reach === undefined
      ? sql``
      : sql`where not exists (select from lane l where l.watcher_id = d.watcher_id and ${isLost(sql`l.shard_id`)})`;
  const rows = await tx.query<{ watcher_id: number; id: number }>(
    sql`
      with recursive head as (
        (select watcher_id, id from deferred_match order by watcher_id, id limit 1)
        union all
        select next.* from head cross join lateral (
          select watcher_id, id from deferred_match where watcher_id > head.watcher_id order by watcher_id, id limit 1) as next
      )
      select watcher_id, id from head d ${isReached} order by watcher_id`,
  );
  return new Map(rows.map(({ watcher_id, id }) => [watcher_id, id]));
}

/**
 * Takes some of a deferred match: of its next part of the transfers, so many records that they make about `rowsMax` rows. Deletes it with
 * the last ones. The same transaction must write their notifications. Undefined if there is no such match.
 */
export async function takeDeferred(
  tx: Tx,
  id: number,
  { rowsMax }: Pick<DeferralLimits, 'rowsMax'>,
): Promise<Deferred | undefined> {
  const [row] = await tx.query<{
    set_id: number;
    record_ids: string[];
    is_last: boolean;
    matches: (Omit<Match, 'transfer'> & { transfer: StoredTransfer })[];
    has_earlier: boolean;
  }>(sql`
    select d.set_id, record_ids[greatest(1, last - most + 1) : last] as record_ids,
      notifications_left <= least(last, most) * t.match_count as is_last, matches, has_earlier
    from deferred_match d
    join deferred_transfers t on t.set_id = d.set_id and t.part = d.part
    cross join lateral (
      select (records_left - 1) / ${RECORDS_MAX} as part, (records_left - 1) % ${RECORDS_MAX} + 1 as last,
        greatest(1, ${rowsMax} / t.match_count) as most) as turn
    join deferred_records r on r.group_id = d.id and r.part = turn.part
    where d.id = ${id}`);
  if (row === undefined) return undefined;
  if (row.is_last) {
    await tx.query(sql`delete from deferred_match where id = ${id}`);
    await tx.query(sql`
      with gone as (delete from deferred_records where group_id = ${id})
      ${dropTransfers([row.set_id])}`);
  } else {
    const taken = row.record_ids.length;
    const isPartTaken = sql`records_left <= ${taken}`;
    await tx.query(
      sql`update deferred_match set records_left = case when ${isPartTaken} then records else records_left - ${taken} end, part = part + case when ${isPartTaken} then 1 else 0 end, notifications_left = notifications_left - ${taken * row.matches.length} where id = ${id}`,
    );
  }
  const matches = row.matches.map(
    ({ transfer, ...match }): Match => ({ ...match, transfer: toTransfer(transfer) }),
  );
  return { recordIds: row.record_ids, matches, hasEarlier: row.has_earlier };
}

/** A transfer in a column of type jsonb, written with `amountAsText`. */
export type StoredTransfer = Omit<Transfer, 'amount'> & { amount: string };

export const toTransfer = ({ receiver, token, ...transfer }: StoredTransfer): Transfer => ({
  ...{ ...transfer, receiver, token },
  amount: BigInt(transfer.amount),
});

/** For `JSON.stringify`, which refuses a bigint. */
export const amountAsText = (_key: string, value: unknown) =>
  typeof value === 'bigint' ? value.toString() : value;
