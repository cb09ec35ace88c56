/**
 * States of pairs at the end of each block that changed them, and the prices over time that follow from them.
 */
import { type Decimal, decimal, decimalText } from '../../core/decimal.ts';
import type { Reserves } from '../../domain/pair.ts';
import { listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { isCovered } from './pairs.ts';

type PairState = Reserves & {
  pairId: number;
  blockNumber: number;
  minedAt: Date;
  /** Units of the token that gives the USD value, for one unit of the other; undefined without reserves. */
  price: Decimal | undefined;
};

/** The change of a pair by a block. */
export type PairStateChange = PairState & {
  /** By how much the LP supply grew or shrank. */
  supplyChange: bigint;
  /** The product of the reserves after the last mint or burn of the block, if there was one. */
  liquidityK: bigint | undefined;
};

type Row = {
  pair_id: number;
  block_number: number;
  mined_at: Date;
  reserve0: string;
  reserve1: string;
  price: string | null;
};

type ChangeRow = Row & { supply_change: string; liquidity_k: string | null };

const columns = sql`pair_id, block_number, mined_at, reserve0, reserve1, price`;

/** The newest `latestPrice` of a pair, among covered states (see isCovered). For pair 1 it is native coin per reward token (spec 4.2). */
export async function findLatestPairPrice(db: Db, pairId: number): Promise<Decimal | undefined> {
  return (await findLatestPairState(db, pairId))?.price;
}

async function findLatestPairState(db: Db, pairId: number): Promise<PairState | undefined> {
  const [row] = await db.query<Row>(sql`
    select ${columns} from pair_state s where pair_id = ${pairId} and ${isCovered(sql`s`)}
    order by block_number desc limit 1`);
  return row && toState(row);
}

/** The newest covered state of each of these pairs that has one, or its newest one before the block. */
export async function listLatestPairStates(
  db: Db,
  pairIds: readonly number[],
  before?: number,
): Promise<PairState[]> {
  const isBefore = before === undefined ? sql`true` : sql`block_number < ${before}`;
  const rows = await db.query<Row>(sql`
    select s.* from unnest(${listOf(pairIds)}::integer[]) as p (id)
    cross join lateral (
      select ${columns} from pair_state s where pair_id = p.id and ${isBefore} and ${isCovered(sql`s`)}
      order by block_number desc limit 1
    ) s
    order by s.pair_id limit ${pairIds.length}`);
  return rows.map(toState);
}

/** The state of a pair at a time: after the newest stored block up to then, also if the pair was not followed meanwhile. */
export async function findPairStateAt(db: Db, pairId: number, at: Date): Promise<PairState | undefined> {
  const [row] = await db.query<Row>(sql`
    select ${columns} from pair_state where pair_id = ${pairId} and mined_at <= ${at}
    order by mined_at desc, block_number desc limit 1`);
  return row && toState(row);
}

/** The state of a pair after this block. */
export async function findPairStateOfBlock(
  db: Db,
  pairId: number,
  blockNumber: number,
): Promise<PairState | undefined> {
  const [row] = await db.query<Row>(sql`
    select ${columns} from pair_state where pair_id = ${pairId} and block_number <= ${blockNumber}
    order by block_number desc limit 1`);
  return row && toState(row);
}

/**
 * The time-weighted average price of a pair: the same as the difference of two price*CumulativeLast values, without their
 * rounding. Undefined if the state at `from` is unknown or not covered, or if the pair had no reserves at some time. The database adds up,
 * because a fast chain has many.
 */
export async function findAveragePairPrice(
  db: Db,
  pairId: number,
  { from, to }: { from: Date; to: Date },
): Promise<Decimal | undefined> {
  const [row] = await db.query<{ weighted: string | null; is_known: boolean | null }>(sql`
    with state as (
      (select ${from}::timestamptz as begun_at, block_number, price from pair_state s
      where pair_id = ${pairId} and mined_at <= ${from} and ${isCovered(sql`s`)}
      order by mined_at desc, block_number desc limit 1)
      union all
      select mined_at, block_number, price from pair_state
      where pair_id = ${pairId} and mined_at > ${from} and mined_at <= ${to}
    ), span as (
      select begun_at, price,
        lead(begun_at, 1, ${to}::timestamptz) over (order by begun_at, block_number) - begun_at as lasted
      from state
    )
    select sum(price * extract(epoch from lasted) * 1000) as weighted,
      min(begun_at) = ${from} and bool_and(price is not null) as is_known
    from span where lasted > interval '0'`);
  if (row?.is_known !== true || row.weighted === null) return undefined;
  return decimal(row.weighted).div(to.getTime() - from.getTime());
}

/** `hour` is its beginning. */
type HourState = PairState & { hour: Date };

/** The last state of each hour (UTC) with a change, from `from` up to but not including `to`, oldest first. */
export async function listHourStates(
  db: Db,
  pairId: number,
  { from, to, limit }: { from: Date; to: Date; limit: number },
): Promise<HourState[]> {
  const rows = await db.query<Row & { hour: Date }>(sql`
    select distinct on (hour) date_bin('1 hour', mined_at, '1970-01-01T00:00:00Z'::timestamptz) as hour, ${columns}
    from pair_state
    where pair_id = ${pairId} and mined_at >= ${from} and mined_at < ${to}
    order by hour, mined_at desc, block_number desc limit ${limit}`);
  return rows.map((row) => ({ hour: row.hour, ...toState(row) }));
}

/** Stores states, at most one for each pair and block. States that are stored already stay as they are. */
export async function insertPairStates(tx: Tx, states: readonly PairStateChange[]): Promise<void> {
  await tx.query(sql`
    insert into pair_state (pair_id, block_number, mined_at, reserve0, reserve1, price, supply_change, liquidity_k)
    select * from unnest(
      ${listOf(states.map(({ pairId }) => pairId))}::integer[],
      ${listOf(states.map(({ blockNumber }) => blockNumber))}::bigint[],
      ${states.map(({ minedAt }) => minedAt)}::timestamptz[],
      ${listOf(states.map(({ reserve0 }) => reserve0))}::numeric[],
      ${listOf(states.map(({ reserve1 }) => reserve1))}::numeric[],
      ${listOf(states.map(({ price }) => (price === undefined ? 'null' : decimalText(price))))}::numeric[],
      ${listOf(states.map(({ supplyChange }) => supplyChange))}::numeric[],
      ${listOf(states.map(({ liquidityK }) => liquidityK ?? 'null'))}::numeric[]
    )
    on conflict do nothing`);
}

/** Up to `limit` states of these pairs in a range of blocks, in the order of the blocks. */
export async function listPairStatesOf(
  db: Db,
  pairIds: readonly number[],
  { from, to }: { from: number; to: number },
  limit: number,
): Promise<PairStateChange[]> {
  const rows = await db.query<ChangeRow>(sql`
    select ${columns}, supply_change, liquidity_k from pair_state
    where pair_id = any(${listOf(pairIds)}::integer[]) and block_number between ${from} and ${to}
    order by block_number, pair_id limit ${limit}`);
  return rows.map(toChange);
}

/** The states of blocks in this range at whose end the contract of one of these pairs was read. */
export async function listReadStates(
  db: Db,
  pairIds: readonly number[],
  { from, to }: { from: number; to: number },
): Promise<PairStateChange[]> {
  const rows = await db.query<ChangeRow>(sql`
    select ${columns}, supply_change, liquidity_k from pair_state join pair_reading using (pair_id, block_number)
    where pair_id = any(${listOf(pairIds)}::integer[]) and block_number between ${from} and ${to}
    order by block_number, pair_id limit ${pairIds.length * (to - from + 1)}`);
  return rows.map(toChange);
}

/** Deletes the states and contract readings of all blocks above this one. */
export async function deletePairStatesAbove(tx: Tx, blockNumber: number): Promise<void> {
  await tx.query(sql`delete from pair_state where block_number > ${blockNumber}`);
  await tx.query(sql`delete from pair_reading where block_number > ${blockNumber}`);
}

/** Deletes the states of these pairs in a range of blocks. */
export async function deletePairStatesBetween(
  tx: Tx,
  pairIds: readonly number[],
  { from, to }: { from: number; to: number },
): Promise<void> {
  await tx.query(sql`
    delete from pair_state
    where pair_id = any(${listOf(pairIds)}::integer[]) and block_number between ${from} and ${to}`);
}

function toState({ pair_id, block_number, mined_at, reserve0, reserve1, price }: Row): PairState {
  return {
    pairId: pair_id,
    blockNumber: block_number,
    minedAt: mined_at,
    reserve0: BigInt(reserve0),
    reserve1: BigInt(reserve1),
    price: price === null ? undefined : decimal(price),
  };
}

function toChange(row: ChangeRow): PairStateChange {
  return {
    ...toState(row),
    supplyChange: BigInt(row.supply_change),
    liquidityK: row.liquidity_k === null ? undefined : BigInt(row.liquidity_k),
  };
}
