/**
 * The last good reading of the supply, so that a start while no node answers has one.
 */
import { type Address, fromBytes, toBytes } from '../../core/hex.ts';
import type { BlockId } from '../../domain/block.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Database, Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

/** Balances in wei, each with the time at which it was so. */
type StoredSupply = {
  at: Date;
  block: BlockId;
  nodeName: string;
  method: 'multicall3' | 'eth_getBalance';
  balances: ReadonlyMap<Address, { wei: bigint; at: Date }>;
};

/** Stores what is newer than what is there, of the reading and of each balance. */
export function saveSupply(
  database: Database,
  { at, block, nodeName, method, balances }: StoredSupply,
): Promise<void> {
  return database.transaction(async (tx) => {
    // One row, first: other writers wait here.
    await tx.query(sql`
      insert into supply_reading as r (read_at, block_number, block_hash, node_name, method)
      values (${at}, ${block.number}, ${toBytes(block.hash)}, ${nodeName}, ${method})
      on conflict (only_row) do update set read_at = excluded.read_at, block_number = excluded.block_number,
        block_hash = excluded.block_hash, node_name = excluded.node_name, method = excluded.method
      where r.read_at < excluded.read_at`);
    const each = [...balances];
    await tx.query(sql`
      insert into supply_balance as b (address, wei, read_at)
      select * from unnest(
        ${bytesOf(each.map(([address]) => address))}::bytea[],
        ${listOf(each.map(([, { wei }]) => wei))}::numeric[],
        ${each.map(([, balance]) => balance.at)}::timestamptz[]
      )
      on conflict (address) do update set wei = excluded.wei, read_at = excluded.read_at
      where b.read_at < excluded.read_at`);
  });
}

/** The stored reading with those of these addresses' balances that are known; undefined before the first one. */
export async function findSupply(db: Db, addresses: readonly Address[]): Promise<StoredSupply | undefined> {
  const [row] = await db.query<{
    read_at: Date;
    block_number: number;
    block_hash: Uint8Array;
    node_name: string;
    method: StoredSupply['method'];
  }>(sql`select read_at, block_number, block_hash, node_name, method from supply_reading`);
  if (row === undefined) return undefined;
  const balances = await db.query<{ address: Uint8Array; wei: string; read_at: Date }>(sql`
    select address, wei, read_at from supply_balance
    where address = any(${bytesOf(addresses)}::bytea[]) order by address limit ${addresses.length}`);
  return {
    at: row.read_at,
    block: { number: row.block_number, hash: fromBytes(row.block_hash) },
    nodeName: row.node_name,
    method: row.method,
    balances: new Map(
      balances.map(({ address, wei, read_at }) => [fromBytes(address), { wei: BigInt(wei), at: read_at }]),
    ),
  };
}
