/**
 * Notifications whose transaction is mined again in another block with the same content: they name the block it is in now, so
 * that a later reorg finds them there.
 */
import type { Transfer } from '../core/block.ts';
import { bytesOf, listOf } from './arrays.ts';
import type { Db } from './db.ts';
import { sql } from './sql.ts';

/** A transfer and the number of its block. */
export type Placed = { transfer: Transfer; block: number };

/** Those that are neither withdrawn nor announced as removed, which the new block revives. */
export async function moveReincluded(tx: Db, placed: readonly Placed[]): Promise<void> {
  await tx.query(sql`
    update notification n set block_number = t.block
    from unnest(
      ${bytesOf(placed.map(({ transfer }) => transfer.txHash))}::bytea[],
      ${listOf(placed.map(({ transfer }) => transfer.kind))}::text[],
      ${bytesOf(placed.map(({ transfer }) => transfer.sender))}::bytea[],
      ${bytesOf(placed.map(({ transfer }) => transfer.receiver))}::bytea[],
      ${listOf(placed.map(({ transfer }) => transfer.amount))}::numeric[],
      ${bytesOf(placed.map(({ transfer }) => transfer.token))}::bytea[],
      ${listOf(placed.map(({ block }) => block))}::bigint[]
    ) as t (tx_hash, kind, sender, receiver, amount, token, block)
    where n.tx_hash = t.tx_hash and n.kind = t.kind and n.sender = t.sender and n.amount = t.amount
      and n.receiver is not distinct from t.receiver and n.token is not distinct from t.token
      and n.block_number <> t.block and n.state <> 'withdrawn' and n.revision % 2 = 0`);
}
