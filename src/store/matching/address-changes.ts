/**
 * What the database knows of the address filter: its mark, and the changes of watched addresses that it may not have yet, as
 * `noteChanges` notes them. docs/explanation/address-filter.md says why no address can be missed.
 */
import type { Database, Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';

/** The filter has every watched address that is visible in `snapshot`. */
export type FilterMark = { id: string; snapshot: string };

/** Addresses one after the other, 20 bytes each. */
type PackedAddresses = Uint8Array;

/**
 * `behind`: there are more changes than asked for, and the mark stays. `lost`: the database doesn't have this mark, because
 * another filter began, or because it lost a part of its history.
 */
export type Moved =
  | { outcome: 'moved'; mark: FilterMark; addresses: PackedAddresses; removedCount: number }
  | { outcome: 'behind' | 'lost' };

/** Announcing a filter waits for open changes of records, and later changes wait behind it. So it gives up soon. */
const LOCK_MS_MAX = 2_000;

/**
 * Announces a filter, from which moment on changes are noted, and ends all others. @throws Fault `unavailable` if open changes
 * of records last too long.
 */
export async function announceFilter(database: Database, id: string): Promise<FilterMark> {
  return database.transaction(async (tx) => {
    await tx.query(sql`select set_config('lock_timeout', ${String(LOCK_MS_MAX)}, true)`);
    // The lock waits for open transactions that have changed records. Later ones see that changes are noted.
    await tx.query(sql`lock table watched_address in share mode`);
    const [row] = await tx.query<{ snapshot: string }>(sql`
      insert into address_filter (id, snapshot, writer) values (${id}, pg_current_snapshot(), pg_current_xact_id())
      returning snapshot::text`);
    await tx.query(sql`delete from address_filter where id <> ${id}`);
    // A restored dump may bring changes with numbers that this server has yet to give out. No mark would ever include them.
    await tx.query(sql`delete from address_change where xid >= pg_snapshot_xmax(pg_current_snapshot())`);
    if (row === undefined) throw new Error('the filter was not announced');
    return { id, snapshot: row.snapshot };
  });
}

/** Ends all filters, so that changes cost nothing extra. */
export async function endFilters(db: Db): Promise<void> {
  await db.query(sql`delete from address_filter`);
}

/**
 * The changes that are not visible in the mark's snapshot, and the next mark, of one moment. If the transaction commits, the
 * next mark replaces this one. A transaction of blocks calls it under the commit lock, so that it sees every change that was
 * committed before.
 */
export async function moveMark(tx: Tx, { id, snapshot }: FilterMark, changesMax: number): Promise<Moved> {
  const [row] = await tx.query<MovedRow>(sql`
    with noted as materialized (
      select address, removed_count from address_change
      where xid >= pg_snapshot_xmin(${snapshot}::pg_snapshot) and not pg_visible_in_snapshot(xid, ${snapshot}::pg_snapshot)
      limit ${changesMax + 1}
    ), counted as materialized (
      select count(*) <= ${changesMax} as is_complete, string_agg(address, ''::bytea) as addresses,
        coalesce(sum(removed_count), 0)::integer as removed_count
      from noted
    ), moved as (
      update address_filter set snapshot = pg_current_snapshot(), writer = pg_current_xact_id()
      where id = ${id} and snapshot::text = ${snapshot} and xmin = writer::xid and (select is_complete from counted)
      returning snapshot::text
    )
    select is_complete, addresses, removed_count, (select snapshot from moved) as snapshot from counted`);
  if (row?.is_complete === false) return { outcome: 'behind' };
  if (row === undefined || row.snapshot === null) return { outcome: 'lost' };
  return {
    outcome: 'moved',
    mark: { id, snapshot: row.snapshot },
    addresses: row.addresses ?? new Uint8Array(),
    removedCount: row.removed_count,
  };
}

type MovedRow = {
  is_complete: boolean;
  addresses: Uint8Array | null;
  removed_count: number;
  snapshot: string | null;
};

/** Whether a change is not visible in the mark's snapshot. */
export async function hasChanges(db: Db, { snapshot }: FilterMark): Promise<boolean> {
  const rows = await db.query(sql`
    select from address_change
    where xid >= pg_snapshot_xmin(${snapshot}::pg_snapshot) and not pg_visible_in_snapshot(xid, ${snapshot}::pg_snapshot)
    limit 1`);
  return rows.length > 0;
}

/**
 * Deletes up to `limit` changes that every filter has, and returns their number. Each filter's mark is read here, not passed,
 * because only a stored mark is sure to be of a committed transaction.
 */
export async function pruneChanges(db: Db, limit: number): Promise<number> {
  const [row] = await db.query<{ count: number }>(sql`
    with pruned as (
      delete from address_change where ctid = any(array(
        select c.ctid from address_change c
        where not exists (select from address_filter f where not pg_visible_in_snapshot(c.xid, f.snapshot))
        order by c.xid limit ${limit}))
      returning xid)
    select count(*) as count from pruned`);
  return row?.count ?? 0;
}

/**
 * The next page of watched addresses in their order, after the given one. Each page sees the database as it is then. Undefined if the
 * database doesn't have this filter.
 */
export async function readAddressPage(
  db: Db,
  { id }: FilterMark,
  { after, limit }: { after: Uint8Array; limit: number },
): Promise<PackedAddresses | undefined> {
  const page = sql`
      select string_agg(address, ''::bytea order by address) as addresses from (
        select address from watched_address where address > ${after}::bytea order by address limit ${limit}) as w`;
  if (db.isDistributed === true) {
    const [read] = await db.query<{ addresses: Uint8Array | null }>(page);
    // If the filter is there afterwards, it was there when the page was read.
    const found = await db.query(sql`select from address_filter where id = ${id}`);
    return found.length === 0 ? undefined : (read?.addresses ?? new Uint8Array());
  }
  const [row] = await db.query<{ addresses: Uint8Array | null }>(sql`
    select page.addresses from address_filter f cross join lateral (${page}) as page
    where f.id = ${id}`);
  return row && (row.addresses ?? new Uint8Array());
}

/** The number of watched addresses, counted no further than `max`. */
export async function countRecords(db: Db, max?: number): Promise<number> {
  const [row] = await db.query<{ count: number }>(sql`
    select count(w.id) as count from (select id from watched_address limit ${max}) as w`);
  return row?.count ?? 0;
}
