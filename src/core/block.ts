/**
 * What the chain tells and everything else is about: block headers and the transfers inside a block.
 */
import type { Address, Hash } from './hex.ts';

export type BlockHeader = {
  number: number;
  hash: Hash;
  parentHash: Hash;
  /** The block's own timestamp, UTC. */
  minedAt: Date;
};

/** A block by number and hash: a head, a tip, a cursor. */
export type BlockId = Pick<BlockHeader, 'number' | 'hash'>;

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
  /** Undefined when the transaction creates a contract (spec 2.7). */
  receiver: Address | undefined;
  /** Wei, or raw token units. */
  amount: bigint;
  /** The token contract, for kind `token`. */
  token: Address | undefined;
};

/** Sender and receiver, once when they are the same; nobody receives when a contract is made. */
export function sidesOf({ sender, receiver }: Transfer): Address[] {
  return receiver === undefined || receiver === sender ? [sender] : [sender, receiver];
}
