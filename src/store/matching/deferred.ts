/**
 * Deferred notifications. Thousands of records of one watcher may watch the same address without any transaction fee, so
 * one transfer can mean more rows than a block's commit should wait for. The commit then stores which records
 * matched (`deferred_match`), and transactions of bounded size write the notifications, watcher by watcher.
 *
 * For each watcher and address the order of blocks is kept: while something of them is deferred, what follows is too. A
 * reorg drops what is deferred of the blocks that it undoes, and writes at once what may meet older notifications.
 */
import { type Address, fromBytes } from '../../core/hex.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import type { Match, RecordGroup } from './matching.ts';

export type DeferralLimits = {
  /** Of one watcher and address, so many records are never deferred, unless what came before them is. */
  recordsMin: number;
  /** Rows of larger groups that one commit writes, the smallest groups first. */
  rowsAtOnce: number;
  /** Rows of one transaction that writes what was deferred. */
  rowsMax: number;
};

/** Groups of an exchange, one record for each address, are far below. The others make each transaction only a little longer. */
export const deferralLimits: DeferralLimits = { recordsMin: 16, rowsAtOnce: 64, rowsMax: 250 };

/** `wholly`: the addresses of which no record is in another group. */
type Deferrable = { groups: RecordGroup[]; wholly: ReadonlySet<Address> };

/** The groups whose notifications the commit should leave to `writeDeferred`. */
export async function listDeferrable(
  tx: Tx,
  matches: readonly Match[],
  { isReorg, limits }: { isReorg: boolean; limits: DeferralLimits },
): Promise<Deferrable> {
  const counts = new Map<Address, number>();
  for (const match of matches) counts.set(addressOf(match), (counts.get(addressOf(match)) ?? 0) + 1);
  if (counts.size === 0) return { groups: [], wholly: new Set() };
  const addresses = bytesOf([...counts.keys()]);
  const rows = await tx.query<{
    watcher_id: number;
    address: Uint8Array;
    records: number;
    watchers: number;
    follows: boolean;
  }>(sql`
    with deferred as materialized (
      select distinct watcher_id, address from deferred_match where address = any(${addresses}::bytea[])
    )
    select watcher_id, address, records, watchers,
      (watcher_id, address) in (select watcher_id, address from deferred) as follows
    from (
      select watcher_id, address, count(*) as records, count(*) over (partition by address) as watchers
      from watched_address
      where address = any(${addresses}::bytea[]) group by watcher_id, address) as g
    where records > ${limits.recordsMin} or (watcher_id, address) in (select watcher_id, address from deferred)
    order by records, watcher_id, address`);
  let left = limits.rowsAtOnce;
  const deferred = rows.flatMap(({ watcher_id: watcherId, address: bytes, records, watchers, follows }) => {
    const group = { watcherId, address: fromBytes(bytes), watchers };
    if (follows) return [group];
    if (isReorg) return [];
    left -= records * (counts.get(group.address) ?? 0);
    return left < 0 ? [group] : [];
  });
  const groupsOf = Map.groupBy(deferred, ({ address }) => address);
  const wholly = [...groupsOf].filter(([, groups]) => groups.length === groups[0]?.watchers);
  return { groups: deferred, wholly: new Set(wholly.map(([address]) => address)) };
}

/** The matches of which some notifications are written with the block. */
export function withoutDeferred(matches: readonly Match[], { wholly }: Deferrable): readonly Match[] {
  return wholly.size === 0 ? matches : matches.filter((match) => !wholly.has(addressOf(match)));
}

/** Stores which records of these groups matched; `isMet` as `insertNotifications` says it. */
export async function deferMatches(
  tx: Tx,
  groups: readonly RecordGroup[],
  { matches, isMet, limits }: { matches: readonly Match[]; isMet: boolean; limits: DeferralLimits },
): Promise<void> {
  if (groups.length === 0) return;
  const wanted = new Set(groups.map(({ address }) => address));
  const ofGroups = matches.filter((match) => wanted.has(addressOf(match)));
  const parts = [...Map.groupBy(ofGroups, (match) => `${addressOf(match)} ${match.block}`).values()];
  const largest = Math.max(...parts.map(({ length }) => length));
  const recordsMax = Math.max(1, Math.floor(limits.rowsMax / largest));
  await tx.query(sql`
    insert into deferred_match (watcher_id, block_number, address, record_ids, matches, is_met)
    select g.watcher_id, m.block, g.address, g.ids, m.matches::jsonb, ${isMet}
    from (
      select watcher_id, address, part, ids[part * ${recordsMax}::integer + 1 : (part + 1) * ${recordsMax}::integer] as ids
      from (
        select watcher_id, address, array_agg(id order by created_at) as ids from watched_address
        where address = any(${bytesOf([...wanted])}::bytea[]) and (watcher_id, address) in (
          select * from unnest(
            ${listOf(groups.map(({ watcherId }) => watcherId))}::bigint[],
            ${bytesOf(groups.map(({ address }) => address))}::bytea[]))
        group by watcher_id, address
      ) as w
      cross join lateral generate_series(0, (cardinality(ids) - 1) / ${recordsMax}::integer) as part
    ) as g
    join unnest(
      ${bytesOf(parts.map(([match]) => match && addressOf(match)))}::bytea[],
      ${listOf(parts.map(([match]) => match?.block ?? 0))}::bigint[],
      ${parts.map((part) => JSON.stringify(part, amountAsText))}::text[]
    ) as m (address, block, matches) on m.address = g.address
    order by m.block, g.watcher_id, g.address, g.part`);
}

/** Forgets what is deferred of the blocks that a reorg undoes. */
export async function dropDeferred(tx: Tx, ancestorNumber: number): Promise<void> {
  await tx.query(sql`delete from deferred_match where block_number > ${ancestorNumber}`);
}

/** The oldest block of which something is deferred. */
export async function findFirstDeferred(db: Db): Promise<number | undefined> {
  const [row] = await db.query<{ block_number: number }>(
    sql`select block_number from deferred_match order by block_number limit 1`,
  );
  return row?.block_number;
}

/** One entry: matches of an address in one block, and which records of a watcher they are for. */
type Deferred = { block: number; recordIds: string[]; matches: Match[]; isMet: boolean };

/** The oldest entry of each watcher. */
export async function listDeferred(tx: Tx): Promise<Map<number, number>> {
  const rows = await tx.query<{ watcher_id: number; id: number }>(
    sql`select watcher_id, min(id) as id from deferred_match group by watcher_id order by watcher_id`,
  );
  return new Map(rows.map(({ watcher_id, id }) => [watcher_id, id]));
}

/** Takes one entry out, to be written in the same transaction. */
export async function takeDeferred(tx: Tx, id: number): Promise<Deferred> {
  const [row] = await tx.query<{
    block_number: number;
    record_ids: string[];
    matches: (Omit<Match, 'transfer'> & {
      transfer: Omit<Match['transfer'], 'amount'> & { amount: string };
    })[];
    is_met: boolean;
  }>(sql`delete from deferred_match where id = ${id} returning block_number, record_ids, matches, is_met`);
  if (row === undefined) throw new Error(`deferred match ${id} is missing`);
  const matches = row.matches.map(
    ({ transfer: { receiver, token, ...transfer }, ...match }): Match => ({
      ...match,
      transfer: { ...transfer, receiver, token, amount: BigInt(transfer.amount) },
    }),
  );
  return { block: row.block_number, recordIds: row.record_ids, matches, isMet: row.is_met };
}

const addressOf = ({ side, transfer }: Match): Address =>
  side === 'receiver' && transfer.receiver !== undefined ? transfer.receiver : transfer.sender;

const amountAsText = (_key: string, value: unknown) => (typeof value === 'bigint' ? value.toString() : value);
