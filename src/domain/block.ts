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

/** By hash at the tip, where "not here yet" must be an error; by number for history. */
export type BlockReference = Hash | number;

export type TransferKind = 'transaction' | 'internal' | 'token';

/** One movement of native coin or of an ERC-20 token inside a transaction (DESIGN §4). */
export type Transfer = {
  kind: TransferKind;
  txHash: Hash;
  /**
   * Position inside the transaction: 0 for its own value, the n-th value-carrying call for internal ones, the log's
   * index within its receipt for tokens. It survives re-inclusion in another block.
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

/** Sender and recipient without duplicates. A contract creation has no recipient. */
export function sidesOf({ sender, receiver }: Transfer): Address[] {
  return receiver === undefined || receiver === sender ? [sender] : [sender, receiver];
}

/** The content of a transfer: transaction, kind, parties, token and amount, without its position. */
export const contentOf = ({ txHash, kind, sender, receiver, token, amount }: Omit<Transfer, 'ordinal'>) =>
  [txHash, kind, sender, receiver, token, amount].join(' ');

/**
 * Numbers each transfer among several equal ones for the same owner (0 is the first). With the content this is a
 * notification's identity (docs/explanation/reorgs.md). Transfers come in the order of the chain.
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
