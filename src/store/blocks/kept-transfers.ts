/**
 * The transfers that are in both branches of a reorg (matching/kept-rows.ts).
 */
import { fromBytes } from '../../core/hex.ts';
import type { Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import { type Match, type MatchedBlock, matchesOf, withoutRepeats } from '../matching/matching.ts';

/**
 * The transfers of these blocks, once for each side, of whose transactions there are notifications `n` that match the condition. Leaves
 * out `matches`.
 */
export async function listKept(
  tx: Tx,
  { blocks, matches }: { blocks: readonly MatchedBlock[]; matches: readonly Match[] },
  isOrphaned: Sql,
): Promise<Match[]> {
  const rows = await tx.query<{ tx_hash: Uint8Array }>(
    sql`select distinct n.tx_hash from notification_status n where ${isOrphaned}`,
  );
  const hashes = new Set(rows.map((row) => fromBytes(row.tx_hash)));
  const transfers = withoutRepeats(blocks).filter(({ transfer }) => hashes.has(transfer.txHash));
  const sides = new Set(matches.map(({ transfer, side }) => `${side} ${placeOf(transfer)}`));
  return matchesOf(transfers, () => true).filter(
    ({ transfer, side }) => !sides.has(`${side} ${placeOf(transfer)}`),
  );
}

const placeOf = ({ txHash, kind, ordinal }: Match['transfer']) => `${txHash} ${kind} ${ordinal}`;
