/**
 * Notes changes of watched addresses where something depends on them: the address filter, while there is one, and the counts for
 * limits, while records are counted. Every transaction that changes watched addresses calls it after the change. No trigger does,
 * because Citus allows none on distributed tables.
 */
import { type Address, fromBytes } from '../../core/hex.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { isLost, lostFault } from '../db/lost-shards.ts';
import { frequent, type Sql, sql } from '../db/sql.ts';

type Place = { laneId: number; address: Address };
/** A record before and after the change; undefined if there was none before, or is none after. */
type RecordChange = { from: Place | undefined; to: Place | undefined };

/**
 * Notes changes that this transaction has made to records of the watcher. The filter is announced and counting starts under a lock
 * that waits for open changes, so a statement after the change sees both. A transaction with an older snapshot might not, so it
 * always notes its addresses. `wanted`: a row with the columns `alsoWanted`.
 */
export async function noteChanges(
  tx: Tx,
  watcherId: number,
  changes: readonly RecordChange[],
  wanted?: Partial<Wanted>,
): Promise<void> {
  const deltas = new Map<number, number>();
  const add = (place: Place | undefined, delta: number) => {
    if (place !== undefined) deltas.set(place.laneId, (deltas.get(place.laneId) ?? 0) + delta);
  };
  for (const { from, to } of changes) {
    add(from, -1);
    add(to, 1);
  }
  const moved = changes.filter(({ from, to }) => from?.address !== to?.address);
  const added = new Set(moved.flatMap(({ to }) => to?.address ?? []));
  await note(
    tx,
    watcherId,
    { deltas, added, removedCount: moved.filter(({ from }) => from !== undefined).length },
    wanted,
  );
}

/** The same for deletions of any number: how many of each lane. */
export async function noteDeletions(
  tx: Tx,
  watcherId: number,
  counts: ReadonlyMap<number, number>,
): Promise<void> {
  const deltas = new Map([...counts].map(([laneId, count]) => [laneId, -count]));
  const removedCount = counts.values().reduce((sum, count) => sum + count, 0);
  await note(tx, watcherId, { deltas, added: new Set(), removedCount });
}

/** `deltas` of the number of records of each lane, and how many records have an address no longer. */
type Changes = { deltas: ReadonlyMap<number, number>; added: ReadonlySet<Address>; removedCount: number };

async function note(tx: Tx, watcherId: number, changes: Changes, known?: Partial<Wanted>): Promise<void> {
  if (changes.deltas.size === 0) return;
  const wanted = isKnown(known) ? known : await readWanted(tx, [...changes.deltas.keys()]);
  if (wanted.is_counted) await countRecords(tx, watcherId, changes.deltas);
  if (wanted.is_filtered) await noteAddresses(tx, changes);
}

/** What must be noted. */
export type Wanted = { is_filtered: boolean; is_counted: boolean };

const wantedColumns = sql`exists (select from address_filter) or current_setting('transaction_isolation') <> 'read committed' as is_filtered,
      (select is_counted from record_counting) as is_counted`;

/**
 * Further columns that the changing statement itself returns, which saves a round trip. It takes its snapshot after it has the lock of
 * the table, so it sees what a statement after it would. Without them, on Citus, `noteChanges` reads them.
 */
export const alsoWanted = (tx: Tx): Sql => (tx.isDistributed === true ? sql`` : sql`, ${wantedColumns}`);

const isKnown = (wanted: Partial<Wanted> | undefined): wanted is Wanted => wanted?.is_filtered !== undefined;

/** @throws Fault `unavailable` if one of the records is in a lost shard. */
async function readWanted(tx: Tx, laneIds: readonly number[]): Promise<Wanted> {
  const lost =
    tx.isDistributed === true
      ? sql`exists (select from lane l where l.id = any(${listOf(laneIds)}::bigint[]) and ${isLost(sql`l.shard_id`)})`
      : sql`false`;
  const [wanted] = await tx.query<Wanted & { is_lost: boolean }>(
    frequent(sql`select ${wantedColumns}, ${lost} as is_lost`),
  );
  if (wanted?.is_lost === true) throw lostFault();
  return wanted ?? { is_filtered: true, is_counted: true };
}

export type PlaceRow = { lane_id: number; address: Uint8Array };

export const toPlace = ({ lane_id: laneId, address }: PlaceRow): Place => ({
  laneId,
  address: fromBytes(address),
});
export const toDeletion = (row: PlaceRow): RecordChange => ({ from: toPlace(row), to: undefined });

async function noteAddresses(tx: Tx, { added, removedCount }: Changes): Promise<void> {
  if (added.size > 0)
    await tx.query(sql`
      insert into address_change (xid, address)
      select pg_current_xact_id(), address from unnest(${bytesOf([...added])}::bytea[]) as added (address)`);
  if (removedCount > 0)
    await tx.query(sql`
      insert into address_change (xid, removed_count) values (pg_current_xact_id(), ${removedCount})`);
}

/** Locks the watcher's count first, as readers of the count do. */
async function countRecords(tx: Tx, watcherId: number, deltas: ReadonlyMap<number, number>): Promise<void> {
  await tx.query(sql`
    insert into watcher_usage as u (watcher_id, records, origins) values (${watcherId}, 0, 0)
    on conflict (watcher_id) do update set records = u.records`);
  const [counted] = await tx.query<{ unused: string[] | null }>(sql`
    with deltas as (
      select l.origin, sum(d.delta)::bigint as delta
      from unnest(${listOf([...deltas.keys()])}::bigint[], ${listOf([...deltas.values()])}::bigint[]) as d (lane_id, delta)
      join lane l on l.id = d.lane_id group by l.origin having sum(d.delta) <> 0
    ), counted as (
      insert into origin_usage as u (watcher_id, origin, records)
      select ${watcherId}::bigint, origin, delta from deltas order by origin
      on conflict (watcher_id, origin) do update set records = u.records + excluded.records
      returning origin, records
    ), sums as (
      select coalesce(sum(delta), 0) as records, coalesce(sum((c.records > 0)::int - (c.records - delta > 0)::int), 0) as origins
      from deltas join counted c using (origin)
    )
    update watcher_usage u set records = u.records + s.records, origins = u.origins + s.origins
    from sums s where u.watcher_id = ${watcherId}
    returning (select array_agg(origin) from counted where records = 0) as unused`);
  const unused = counted?.unused ?? [];
  if (unused.length > 0)
    await tx.query(sql`
      delete from origin_usage where watcher_id = ${watcherId} and origin = any(${unused}::text[]) and records = 0`);
}
