/**
 * Balances that points rules accumulate over time, as of the last change of each, and their former values, which a reorg may
 * restore.
 */
import { type Address, fromBytes, type Hash } from '../../core/hex.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';

/** A user's balance under one rule, as of its last change. */
export type Position = {
  rule: string;
  user: Address;
  /** In smallest units. It is negative if the user spends a balance from before the first followed block. */
  balance: bigint;
  /** The first day that is not closed (days since 1970-01-01, UTC), and its balance times seconds until `touchedAt`. */
  day: number;
  balanceSeconds: bigint;
  touchedAt: Date;
  /** The last change of the balance: its transaction, and the log and movement within it as one number. */
  txHash: Hash;
  touch: number;
};

export type PositionKey = Pick<Position, 'rule' | 'user'>;

/** A position before a block; undefined if there was none. */
export type PositionBefore = PositionKey & { blockNumber: number; position: Position | undefined };

type Row = {
  rule: string;
  user_address: Uint8Array;
  balance: string;
  day: number;
  balance_seconds: string;
  touched_at: Date;
  tx_hash: Uint8Array;
  touch: number;
};

const columns = sql`rule, user_address, balance::text as balance, day, balance_seconds::text as balance_seconds, touched_at,
  tx_hash, touch`;

/** The stored positions for these keys. */
export async function listPositions(db: Db, keys: readonly PositionKey[]): Promise<Position[]> {
  if (keys.length === 0) return [];
  const rows = await db.query<Row>(sql`
    select ${columns} from accrual
    where (rule, user_address) in (
      select * from unnest(${keys.map(({ rule }) => rule)}::text[], ${bytesOf(keys.map(({ user }) => user))}::bytea[]))
    order by rule, user_address limit ${keys.length}`);
  return rows.map(toPosition);
}

/** Positions of these rules that have a day before `today` to close, oldest day first. */
export async function listOpenPositions(
  tx: Tx,
  { rules, today, limit }: { rules: readonly string[]; today: number; limit: number },
): Promise<Position[]> {
  const rows = await tx.query<Row>(sql`
    select ${columns} from accrual
    where day < ${today} and (balance > 0 or balance_seconds > 0) and rule = any (${rules}::text[])
    order by day, rule, user_address limit ${limit}`);
  return rows.map(toPosition);
}

/** Stores the new positions, and the former ones from before blocks that a reorg may orphan. */
export async function savePositions(
  tx: Tx,
  positions: readonly Position[],
  before: readonly PositionBefore[],
): Promise<void> {
  if (before.length > 0) {
    const each = before.map(({ position }) => position);
    // If a block changes a position several times, the value before its first change is kept.
    await tx.query(sql`
      insert into accrual_before (block_number, rule, user_address, balance, day, balance_seconds, touched_at, tx_hash, touch)
      select * from unnest(
        ${listOf(before.map(({ blockNumber }) => blockNumber))}::bigint[],
        ${before.map(({ rule }) => rule)}::text[],
        ${bytesOf(before.map(({ user }) => user))}::bytea[],
        ${valuesOf(each)}
      ) on conflict do nothing`);
  }
  if (positions.length === 0) return;
  await tx.query(sql`
    insert into accrual (rule, user_address, balance, day, balance_seconds, touched_at, tx_hash, touch)
    select * from unnest(
      ${positions.map(({ rule }) => rule)}::text[],
      ${bytesOf(positions.map(({ user }) => user))}::bytea[],
      ${valuesOf(positions)}
    )
    on conflict (rule, user_address) do update set balance = excluded.balance, day = excluded.day,
      balance_seconds = excluded.balance_seconds, touched_at = excluded.touched_at, tx_hash = excluded.tx_hash,
      touch = excluded.touch`);
}

/** Restores the positions from before the first block above the ancestor. */
export async function revertAccruals(tx: Tx, ancestorNumber: number): Promise<void> {
  await tx.query(sql`
    with orphaned as (
      delete from accrual_before where block_number > ${ancestorNumber} returning *
    ), first as (
      select distinct on (rule, user_address) * from orphaned order by rule, user_address, block_number
    ), deleted as (
      delete from accrual a using first f
      where (a.rule, a.user_address) = (f.rule, f.user_address) and f.balance is null
    )
    update accrual a set balance = f.balance, day = f.day, balance_seconds = f.balance_seconds,
      touched_at = f.touched_at, tx_hash = f.tx_hash, touch = f.touch
    from first f
    where (a.rule, a.user_address) = (f.rule, f.user_address) and f.balance is not null`);
}

/** Deletes up to `limit` former positions from before final blocks. */
export async function pruneFinalAccruals(tx: Tx, limit: number): Promise<void> {
  await tx.query(sql`
    delete from accrual_before where ctid in (
      select b.ctid from accrual_before b, chain c
      where b.block_number <= c.finalized_number order by b.block_number limit ${limit})`);
}

function valuesOf(positions: readonly (Position | undefined)[]) {
  const numbers = (of: (position: Position) => number | bigint) =>
    listOf(positions.map((position) => (position === undefined ? 'null' : of(position))));
  return sql`
    ${numbers(({ balance }) => balance)}::numeric[],
    ${numbers(({ day }) => day)}::integer[],
    ${numbers(({ balanceSeconds }) => balanceSeconds)}::numeric[],
    ${positions.map((position) => position?.touchedAt ?? null)}::timestamptz[],
    ${bytesOf(positions.map((position) => position?.txHash))}::bytea[],
    ${numbers(({ touch }) => touch)}::integer[]`;
}

function toPosition(row: Row): Position {
  const { rule, day, touch } = row;
  return {
    rule,
    user: fromBytes(row.user_address),
    balance: BigInt(row.balance),
    day,
    balanceSeconds: BigInt(row.balance_seconds),
    touchedAt: row.touched_at,
    txHash: fromBytes(row.tx_hash),
    touch,
  };
}
