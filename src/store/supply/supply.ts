/**
 * The last good reading of the supply, which the service uses if it starts while no node answers.
 */
import { type Address, fromBytes, toBytes } from '../../core/hex.ts';
import type { BlockId } from '../../domain/block.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Database, Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

/** A reading of the supply. Each balance has its own time. */
type StoredSupply = {
  at: Date;
  block: BlockId;
  nodeName: string;
  method: 'multicall3' | 'eth_getBalance';
  balances: ReadonlyMap<Address, { wei: bigint; at: Date }>;
};

/** A reading is stored right after it was made, so a stored time this much later is from before the clock was set back. */
const AHEAD_MS_MAX = 120_000;

/** Stores the reading and each balance if they are newer than the stored ones, or if those are in the future. */
export function saveSupply(
  database: Database,
  { at, block, nodeName, method, balances }: StoredSupply,
): Promise<void> {
  const future = new Date(at.getTime() + AHEAD_MS_MAX);
  return database.transaction(async (tx) => {
    // This single row comes first, so that other writers wait here.
    await tx.query(sql`
      insert into supply_reading as r (read_at, block_number, block_hash, node_name, method)
      values (${at}, ${block.number}, ${toBytes(block.hash)}, ${nodeName}, ${method})
      on conflict (only_row) do update set read_at = excluded.read_at, block_number = excluded.block_number,
        block_hash = excluded.block_hash, node_name = excluded.node_name, method = excluded.method
      where r.read_at < excluded.read_at or r.read_at > ${future}`);
    const each = [...balances];
    await tx.query(sql`
      insert into supply_balance as b (address, wei, read_at)
      select * from unnest(
        ${bytesOf(each.map(([address]) => address))}::bytea[],
        ${listOf(each.map(([, { wei }]) => wei))}::numeric[],
        ${each.map(([, balance]) => balance.at)}::timestamptz[]
      )
      on conflict (address) do update set wei = excluded.wei, read_at = excluded.read_at
      where b.read_at < excluded.read_at or b.read_at > ${future}`);
  });
}

/** The stored reading with the known balances of these addresses; undefined before the first reading. */
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
