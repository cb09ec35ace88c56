/**
 * What must hold before a block is used (DESIGN §4): always that its parts belong together (`checkBlock`);
 * and, as far as the chain honours it, that they are what the block's hash commits to (`proveBlock`, in the
 * prover's threads).
 */
import { disproof } from '../../core/fault.ts';
import type { BlockReference } from '../../domain/block.ts';
import type { ChainBlock, ChainReceipt, ChainTransaction } from '../rpc/parse.ts';

/** A block and its receipts, in any order, as the node's JSON has them. */
export type RawBlock = { block: unknown; receipts: readonly unknown[] };

export const checkNames = ['headerHash', 'transactionsRoot', 'withdrawalsRoot', 'receiptsRoot'] as const;
export type CheckName = (typeof checkNames)[number];

/**
 * `unknown` where a transaction cannot be encoded here: of the chain's own type, or without a signature.
 * `none` where nothing is listed that could be proved.
 */
export type Verdict = 'holds' | 'fails' | 'unknown' | 'none';

/**
 * The transfers whose senders are recovered with the proof of a block: every transfer of the native coin, or
 * none yet, in which case the signatures are kept for those that match a watched address.
 */
export type SenderScope = 'all' | 'matched';

/**
 * The transfers of native coin whose sender can be recovered, by the hash of their transaction: the signed
 * data as consecutive bytes, each up to `ends[index]`. Undefined if all senders were recovered with the
 * block.
 */
export type SenderEvidence = {
  hashes: readonly string[];
  signed: { bytes: Uint8Array<ArrayBuffer>; ends: readonly number[] } | undefined;
};

/** A sender that the node made up: another account signed. */
export type ForgedSender = { hash: string; signer: string };

/** The result of a worker for a block. */
export type BlockProof = Checks & { senders: SenderEvidence; forged: readonly ForgedSender[] };

/**
 * What came out for one block. That the roots of a block without transactions hold says nothing about the
 * chain.
 */
export type Checks = Record<CheckName, Verdict> & { isEmpty: boolean };

/**
 * The receipts of the block in the order of its transactions, when block and receipts belong together and to
 * the block that was asked for. @throws Fault `inconsistent` that names what does not fit.
 */
export function checkBlock(
  asked: BlockReference,
  block: ChainBlock,
  receipts: readonly ChainReceipt[],
): ChainReceipt[] {
  const { header, transactions } = block;
  const name = `block ${header.number} (${header.hash})`;
  const isAsked = typeof asked === 'number' ? header.number === asked : header.hash === asked;
  if (!isAsked) throw disproof(`${name} came for ${asked}`);
  // A transfer is known by its transaction: told twice it would have one place for two.
  if (new Set(transactions.map(({ hash }) => hash)).size !== transactions.length) {
    throw disproof(`${name} has a transaction twice`);
  }
  if (receipts.length !== transactions.length) {
    const counts = `${name} has ${transactions.length} transactions and ${receipts.length} receipts`;
    const own = new Set(transactions.map(({ hash }) => hash));
    const foreign = receipts.find(({ transactionHash }) => !own.has(transactionHash));
    const which = foreign === undefined ? '' : `; transaction ${foreign.transactionHash} is not in the block`;
    throw disproof(`${counts}${which}`);
  }
  const byHash = new Map(receipts.map((receipt) => [receipt.transactionHash, receipt]));
  return transactions.map((transaction) => {
    const receipt = byHash.get(transaction.hash);
    if (receipt === undefined) throw disproof(`${name} has no receipt for ${transaction.hash}`);
    if (receipt.blockHash !== header.hash) {
      throw disproof(`${name}: the receipt of ${transaction.hash} is of block ${receipt.blockHash}`);
    }
    checkParties(name, transaction, receipt);
    return receipt;
  });
}

/**
 * A sender is in nothing that is hashed, so that no root proves it: at least transaction and receipt must
 * agree on it. All stored blocks of all chains do, and on the receiver. A creation has none.
 */
function checkParties(name: string, transaction: ChainTransaction, receipt: ChainReceipt): void {
  const { hash, from, to } = transaction;
  const isTo = receipt.to === undefined || to === undefined || to === 'creation' || receipt.to === to;
  if (isTo && (receipt.from === undefined || receipt.from === from)) return;
  throw disproof(`${name}: ${hash} is ${from} to ${to}, and by its receipt ${receipt.from} to ${receipt.to}`);
}

/** The signed data of this transaction; undefined if its sender was recovered already or can't be recovered. */
export function findSigned({ hashes, signed }: SenderEvidence, hash: string): Uint8Array | undefined {
  const index = hashes.indexOf(hash);
  if (index === -1 || signed === undefined) return undefined;
  return signed.bytes.subarray(signed.ends[index - 1] ?? 0, signed.ends[index]);
}
