/**
 * What must hold before a block is used (DESIGN §4). Today: identity, links and counts, so `proved` is false.
 * The recomputation of header hash, transactionsRoot and receiptsRoot goes here, in front of these checks.
 */
import { Fault } from '../core/fault.ts';
import type { BlockReference } from './bundle.ts';
import type { ChainBlock, ChainReceipt } from './parse.ts';

/**
 * The receipts of the block in the order of its transactions, when block and receipts belong together and to the
 * block that was asked for. @throws Fault `inconsistent` that names what does not fit.
 */
export function checkBlock(
  asked: BlockReference,
  block: ChainBlock,
  receipts: readonly ChainReceipt[],
): ChainReceipt[] {
  const { header, transactions } = block;
  const name = `block ${header.number} (${header.hash})`;
  const isAsked = typeof asked === 'number' ? header.number === asked : header.hash === asked;
  if (!isAsked) throw new Fault('inconsistent', `${name} came for ${asked}`);
  // A transfer is known by its transaction: told twice it would have one place for two.
  if (new Set(transactions.map(({ hash }) => hash)).size !== transactions.length) {
    throw new Fault('inconsistent', `${name} has a transaction twice`);
  }
  if (receipts.length !== transactions.length) {
    throw new Fault(
      'inconsistent',
      `${name} has ${transactions.length} transactions and ${receipts.length} receipts`,
    );
  }
  const byHash = new Map(receipts.map((receipt) => [receipt.transactionHash, receipt]));
  return transactions.map((transaction) => {
    const receipt = byHash.get(transaction.hash);
    if (receipt === undefined)
      throw new Fault('inconsistent', `${name} has no receipt for ${transaction.hash}`);
    if (receipt.blockHash !== header.hash) {
      throw new Fault(
        'inconsistent',
        `${name}: the receipt of ${transaction.hash} is of block ${receipt.blockHash}`,
      );
    }
    return receipt;
  });
}
