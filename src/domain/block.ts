/**
 * The central types: block headers and the transfers inside a block.
 */
import type { Address, Hash } from '../core/hex.ts';

export type BlockHeader = {
  number: number;
  hash: Hash;
  parentHash: Hash;
  /** The block's own timestamp, UTC. */
  minedAt: Date;
};

/** A block by number and hash: a head, a tip, a cursor. */
export type BlockId = Pick<BlockHeader, 'number' | 'hash'>;

/** A hash at the tip, because there a node that doesn't have the block yet must return an error. A number in history. */
export type BlockReference = Hash | number;

export type TransferKind = 'transaction' | 'internal' | 'token';

/** One transfer of native coin or of an ERC-20 token inside a transaction. */
export type Transfer = {
  kind: TransferKind;
  txHash: Hash;
  /**
   * Position inside the transaction: 0 for the transaction's value, the number of the value-carrying call for internal
   * transfers, the log's index within its receipt for tokens. It stays the same if another block includes the transaction.
   */
  ordinal: number;
  sender: Address;
  /** Undefined if the transaction creates a contract (spec 2.7). */
  receiver: Address | undefined;
  /** Wei, or raw token units. */
  amount: bigint;
  /** The token contract, for kind `token`. */
  token: Address | undefined;
};

/** Sender and receiver without duplicates. A contract creation has no receiver. */
export function sidesOf({ sender, receiver }: Transfer): Address[] {
  return receiver === undefined || receiver === sender ? [sender] : [sender, receiver];
}

/** The content of a transfer: transaction, kind, parties, token and amount, without its position. */
export const contentOf = ({ txHash, kind, sender, receiver, token, amount }: Omit<Transfer, 'ordinal'>) =>
  [txHash, kind, sender, receiver, token, amount].join(' ');

/**
 * Numbers transfers with equal content for the same owner, starting at 0. Content and number together identify a
 * notification (docs/explanation/reorgs.md). Call the function in the order of the chain.
 */
export function createOccurrences(): (owner: string, transfer: Omit<Transfer, 'ordinal'>) => number {
  const counts = new Map<string, number>();
  return (owner, transfer) => {
    const key = `${owner} ${contentOf(transfer)}`;
    const occurrence = counts.get(key) ?? 0;
    counts.set(key, occurrence + 1);
    return occurrence;
  };
}
