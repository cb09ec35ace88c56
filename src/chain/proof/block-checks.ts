/**
 * The checks that a block must pass before Chainbell uses it (docs/explanation/proof.md). `checkBlock` always checks that the
 * block's parts belong together. `proveBlock`, in the prover's threads, checks that they are what the block's hash commits to,
 * as far as the chain honors that.
 */
import { disproof } from '../../core/fault.ts';
import type { BlockReference } from '../../domain/block.ts';
import type { ChainBlock, ChainReceipt, ChainTransaction } from '../rpc/parse.ts';

/** `chain.verify` */
export type ProofMode = 'auto' | 'strict' | 'off';

/** A block and its receipts as the node's JSON. The receipts may be in any order. */
export type RawBlock = { block: unknown; receipts: readonly unknown[] };

export const checkNames = [
  'headerHash',
  'transactionsRoot',
  'transactionHashes',
  'withdrawalsRoot',
  'receiptsRoot',
] as const;
export type CheckName = (typeof checkNames)[number];

/**
 * `unknown` if Chainbell can't encode a transaction (`unencodableType`), and everything else in the check holds.
 * `none` if the block lists nothing to prove.
 */
export type CheckResult = 'holds' | 'fails' | 'unknown' | 'none';

/**
 * The native transfers whose senders are recovered together with the proof of a block. `all` means every one.
 * `matched` keeps the signed data instead, so that the senders of transfers that match a watched address can
 * be recovered later.
 */
export type SenderScope = 'all' | 'matched';

/**
 * The transactions whose sender can be recovered, by hash: native transfers, and others whose senders were needed. `signed` has the signed
 * data of all of them as consecutive bytes, in the order of `hashes`. The data of one ends before its entry in `ends`.
 * `signed` is undefined if all senders were recovered with the block.
 */
export type SenderEvidence = {
  hashes: readonly string[];
  signed: { bytes: Uint8Array<ArrayBuffer>; ends: readonly number[] } | undefined;
};

/** A transaction whose sender the node made up, and the account that signed it. */
export type ForgedSender = { hash: string; signer: string };

/** A worker's result for one block. */
export type BlockProof = Checks & { senders: SenderEvidence; forged: readonly ForgedSender[] };

/**
 * The results for one block. `isEmpty` says that it has no transactions. Its roots are constants then, so they
 * prove nothing about the chain if they hold. `unencodableTypes` are the types of its transactions that Chainbell
 * can't encode, sorted, each once.
 */
export type Checks = Record<CheckName, CheckResult> & {
  isEmpty: boolean;
  unencodableTypes: readonly string[];
  /** Set if the chain made up the signature of a native transfer or of a needed sender. Then `unencodableTypes` has `unsigned`, although all roots hold. */
  hasMadeUpSignature?: true;
};

/**
 * Checks that block and receipts belong together and are those of the requested block.
 * @returns the receipts in the order of the transactions.
 * @throws Fault `inconsistent` that names the mismatch.
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
  // A transfer is identified by its transaction, so a repeated transaction would give two transfers one identity.
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
 * Checks that transaction and receipt name the same sender and receiver. No hash covers the sender, so no root
 * proves it. In all stored blocks of all chains they agree. A contract creation has no receiver.
 */
function checkParties(name: string, transaction: ChainTransaction, receipt: ChainReceipt): void {
  const { hash, from, to } = transaction;
  const isTo = receipt.to === undefined || to === undefined || to === 'creation' || receipt.to === to;
  if (isTo && (receipt.from === undefined || receipt.from === from)) return;
  throw disproof(`${name}: ${hash} is ${from} to ${to}, and by its receipt ${receipt.from} to ${receipt.to}`);
}

/** The evidence of a block, by the hash of a transaction. */
export type SenderIndex = {
  has(hash: string): boolean;
  /** The signed data of this transaction. Undefined if its sender was recovered already or can't be recovered. */
  findSigned(hash: string): Uint8Array | undefined;
};

/** For many look-ups: a block may have tens of thousands of native transfers. */
export function indexSenders({ hashes, signed }: SenderEvidence): SenderIndex {
  const indexOf = new Map(hashes.map((hash, index) => [hash, index]));
  return {
    has: (hash) => indexOf.has(hash),
    findSigned(hash) {
      const index = indexOf.get(hash);
      if (index === undefined || signed === undefined) return undefined;
      return signed.bytes.subarray(signed.ends[index - 1] ?? 0, signed.ends[index]);
    },
  };
}
