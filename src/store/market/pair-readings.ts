/**
 * LP supplies that were read from the contracts of pairs at the end of a block. Together with the events of later blocks they
 * give the current supply.
 */
import { type Decimal, decimal } from '../../core/decimal.ts';
import type { LpSupply, Reserves } from '../../domain/pair.ts';
import { listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { isCovered, isRead } from './pairs.ts';
import { type SwapPeriod, swapValueOf } from './swaps.ts';

export type PairReading = Reserves & LpSupply & { pairId: number };

/** The newest state of a pair with its LP supply; undefined while the contract has not been read. */
export type CurrentPair = Reserves & {
  price: Decimal | undefined;
  minedAt: Date;
  supply: LpSupply | undefined;
};

type NowRow = {
  reserve0: string;
  reserve1: string;
  price: string | null;
  mined_at: Date;
  total_supply: string | null;
  k_last: string | null;
  is_fee_on: boolean | null;
};

/** Whether a state changed the LP token supply: by a mint or burn, or by LP tokens that a fork creates or destroys without one. */
export const changesSupply = (state: Sql): Sql =>
  sql`(${state}.liquidity_k is not null or ${state}.supply_change <> 0)`;

/** The newest covered state of a pair. Its supply is the last reading plus the mints and burns since then. */
export async function findCurrentPair(db: Db, pairId: number): Promise<CurrentPair | undefined> {
  const [row] = await db.query<NowRow>(currentState(sql`${pairId}`));
  return row && toCurrentPair(row);
}

/** `usdValue` is that of its swaps. `isRead`: the data of its last 24 hours is complete, except for the last minutes. */
type ListedPair = { current: CurrentPair | undefined; usdValue: Decimal; isRead: boolean };

/** Each of these pairs, by id. One statement, because a reorg may change the states and swaps of pairs between two. */
export async function listCurrentPairs(
  db: Db,
  pairIds: readonly number[],
  { period, now }: { period: SwapPeriod; now: Date },
): Promise<Map<number, ListedPair>> {
  type Row = { id: number; usd_value: string; is_read: boolean } & (NowRow | { reserve0: null });
  const rows = await db.query<Row>(sql`
    select l.id, n.*, ${swapValueOf(sql`l.id`, period)} as usd_value,
      exists (select from pair f where f.id = l.id and ${isRead(sql`f`, now)}) as is_read
    from unnest(${listOf(pairIds)}::integer[]) as l (id)
    left join lateral (${currentState(sql`l.id`)}) n on true
    order by l.id limit ${pairIds.length}`);
  return new Map(
    rows.map(({ id, usd_value, is_read, ...state }) => [
      id,
      {
        current: state.reserve0 === null ? undefined : toCurrentPair(state),
        ...{ usdValue: decimal(usd_value), isRead: is_read },
      },
    ]),
  );
}

const currentState = (pairId: Sql): Sql => sql`
    select s.reserve0, s.reserve1, s.price, s.mined_at, r.total_supply + coalesce(c.supply_change, 0) as total_supply,
      coalesce(c.liquidity_k, r.k_last) as k_last, r.is_fee_on
    from (
      select * from pair_state n where pair_id = ${pairId} and ${isCovered(sql`n`)} order by block_number desc limit 1
    ) s
    left join lateral (
      select block_number, total_supply, k_last, is_fee_on from pair_reading
      where pair_id = s.pair_id order by block_number desc limit 1
    ) r on true
    left join lateral (
      select sum(supply_change) as supply_change,
        (array_agg(liquidity_k order by block_number desc) filter (where liquidity_k is not null))[1] as liquidity_k
      from pair_state p where pair_id = s.pair_id and block_number > r.block_number and ${changesSupply(sql`p`)}
    ) c on true`;

function toCurrentPair(row: NowRow): CurrentPair {
  const { total_supply, k_last, is_fee_on } = row;
  return {
    reserve0: BigInt(row.reserve0),
    reserve1: BigInt(row.reserve1),
    price: row.price === null ? undefined : decimal(row.price),
    minedAt: row.mined_at,
    supply:
      total_supply === null || k_last === null || is_fee_on === null
        ? undefined
        : { totalSupply: BigInt(total_supply), kLast: BigInt(k_last), isFeeOn: is_fee_on },
  };
}

/**
 * For each pair, whether its contract has been read since its LP token supply last changed (`isCurrent`), and whether its protocol fee
 * was on in the last reading.
 */
export async function listReadings(
  db: Db,
  pairIds: readonly number[],
): Promise<{ pairId: number; isCurrent: boolean; isFeeOn: boolean | undefined }[]> {
  const rows = await db.query<{ id: number; is_current: boolean; is_fee_on: boolean | null }>(sql`
    select p.id, r.is_fee_on, r.block_number is not null and not exists (
      select from pair_state s
      where s.pair_id = p.id and s.block_number > r.block_number and ${changesSupply(sql`s`)}
    ) as is_current
    from unnest(${listOf(pairIds)}::integer[]) as p (id)
    left join lateral (
      select block_number, is_fee_on from pair_reading
      where pair_id = p.id order by block_number desc limit 1
    ) r on true
    order by p.id limit ${pairIds.length}`);
  return rows.map(({ id, is_current, is_fee_on }) => ({
    pairId: id,
    isCurrent: is_current,
    isFeeOn: is_fee_on ?? undefined,
  }));
}

export async function insertReadings(
  tx: Tx,
  readings: readonly PairReading[],
  blockNumber: number,
): Promise<void> {
  await tx.query(sql`
    insert into pair_reading (pair_id, block_number, total_supply, k_last, is_fee_on)
    select t.pair_id, ${blockNumber}::bigint, t.total_supply, t.k_last, t.is_fee_on
    from unnest(
      ${listOf(readings.map(({ pairId }) => pairId))}::integer[],
      ${listOf(readings.map(({ totalSupply }) => totalSupply))}::numeric[],
      ${listOf(readings.map(({ kLast }) => kLast))}::numeric[],
      ${readings.map(({ isFeeOn }) => isFeeOn)}::boolean[]
    ) as t (pair_id, total_supply, k_last, is_fee_on)
    on conflict (pair_id, block_number) do update
      set total_supply = excluded.total_supply, k_last = excluded.k_last, is_fee_on = excluded.is_fee_on`);
}
