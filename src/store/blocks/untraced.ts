/**
 * Reorgs to blocks that came without traces, because no node can trace at the moment.
 */
import { fromBytes, type Hash } from '../../core/hex.ts';
import type { Transfer } from '../../domain/block.ts';
import type { Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import type { MatchedBlock } from '../matching/matching.ts';

/**
 * Adds to blocks without traces the internal transfers that notifications `n` that match the condition are for, if their transactions have
 * succeeded again. Otherwise a transfer in both branches would be withdrawn because nothing shows it.
 */
export async function withKnownCalls<Block extends MatchedBlock>(
  tx: Tx,
  blocks: readonly Block[],
  isOrphaned: Sql,
): Promise<readonly Block[]> {
  if (blocks.every(({ untraced = [] }) => untraced.length === 0)) return blocks;
  const rows = await tx.query<CallRow>(sql`
    select distinct n.tx_hash, n.ordinal, n.sender, n.receiver, n.amount from notification_status n
    where n.kind = 'internal' and ${isOrphaned} order by n.tx_hash, n.ordinal`);
  const calls = Map.groupBy(rows.map(toTransfer), ({ txHash }) => txHash);
  return blocks.map((block) => ({ ...block, transfers: inOrder(block, calls) }));
}

type CallRow = {
  tx_hash: Uint8Array;
  ordinal: number;
  sender: Uint8Array;
  receiver: Uint8Array | null;
  amount: string;
};

const toTransfer = (row: CallRow): Transfer => ({
  kind: 'internal',
  ...{ txHash: fromBytes(row.tx_hash), ordinal: row.ordinal, amount: BigInt(row.amount) },
  sender: fromBytes(row.sender),
  receiver: row.receiver === null ? undefined : fromBytes(row.receiver),
  token: undefined,
});

/** As `extractTransfers` orders them: by transaction, and in it the native one, the internal ones and the tokens. */
function inOrder(
  { transfers, untraced = [] }: MatchedBlock,
  calls: ReadonlyMap<Hash, readonly Transfer[]>,
): Transfer[] {
  const ordered: Transfer[] = [];
  const present = new Set(transfers.map(({ txHash }) => txHash));
  let next = 0;
  const takeWhile = (isTaken: (transfer: Transfer) => boolean) => {
    for (let one = transfers[next]; one !== undefined && isTaken(one); one = transfers[next]) {
      ordered.push(one);
      next += 1;
    }
  };
  for (const hash of untraced) {
    const isOwn = ({ txHash }: Transfer) => txHash === hash;
    if (present.has(hash)) takeWhile((one) => !isOwn(one));
    takeWhile((one) => isOwn(one) && one.kind === 'transaction');
    for (const call of calls.get(hash) ?? []) ordered.push(call);
    takeWhile(isOwn);
  }
  takeWhile(() => true);
  return ordered;
}
