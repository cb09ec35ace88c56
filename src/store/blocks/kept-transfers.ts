/**
 * The transfers that are in both branches of a reorg (matching/kept-rows.ts).
 */
import { fromBytes } from '../../core/hex.ts';
import { contentOf, type Transfer, type TransferKind } from '../../domain/block.ts';
import type { Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';
import {
  type Match,
  type MatchedBlock,
  type MatchedTransfer,
  matchesOf,
  placeOf,
  withoutRepeats,
} from '../matching/matching.ts';

/** What `listKept` finds. */
type Kept = {
  /** The transfers that stay, once each. */
  kept: Match[];
  /** Transfers of their transactions and of the same kinds, which must be proved before it is known that no other one stays. */
  related: MatchedTransfer[];
};

/** The transfers of these blocks that notifications `n` that match the condition are for. */
export async function listKept(tx: Tx, blocks: readonly MatchedBlock[], isOrphaned: Sql): Promise<Kept> {
  const rows = await tx.query<ContentRow>(sql`
    select distinct n.tx_hash, n.kind, n.sender, n.receiver, n.token, n.amount, n.occurrence
    from notification_status n where ${isOrphaned}`);
  const contents = new Set(rows.map(toKey));
  const kinds = new Set(rows.map((row) => `${fromBytes(row.tx_hash)} ${row.kind}`));
  const related = withoutRepeats(blocks).filter(({ transfer: { txHash, kind } }) =>
    kinds.has(`${txHash} ${kind}`),
  );
  const found = matchesOf(related, () => true).filter(({ transfer, occurrence }) =>
    contents.has(keyOf(transfer, occurrence)),
  );
  return { kept: [...new Map(found.map((match) => [placeOf(match.transfer), match])).values()], related };
}

type ContentRow = {
  tx_hash: Uint8Array;
  kind: TransferKind;
  sender: Uint8Array;
  receiver: Uint8Array | null;
  token: Uint8Array | null;
  amount: string;
  occurrence: number;
};

const keyOf = (transfer: Omit<Transfer, 'ordinal'>, occurrence: number) =>
  `${contentOf(transfer)} ${occurrence}`;

const toKey = ({ tx_hash, receiver, token, occurrence, ...row }: ContentRow): string =>
  keyOf(
    {
      ...{
        txHash: fromBytes(tx_hash),
        kind: row.kind,
        sender: fromBytes(row.sender),
        amount: BigInt(row.amount),
      },
      receiver: receiver === null ? undefined : fromBytes(receiver),
      token: token === null ? undefined : fromBytes(token),
    },
    occurrence,
  );
