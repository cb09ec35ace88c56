/**
 * Proof of one block: whether it and its receipts are what its hash commits to (DESIGN §4).
 */
import { Fault } from '../core/fault.ts';
import { list, record } from './parse.ts';
import type { Checks, Verdict } from './proof.ts';
import {
  encodeReceipt,
  encodeTransaction,
  encodeWithdrawal,
  headerHash,
  isEncodable,
  rootOf,
  transactionHash,
} from './roots.ts';

/**
 * Recomputes header hash, transactionsRoot with the transactions' hashes, withdrawalsRoot where withdrawals are listed,
 * and receiptsRoot from the node's JSON. What cannot be read fails. Not proved: `from`, which is not in what is hashed, and traces. Source: yellow paper, section 4.3.
 */
export function proveBlock(rawBlock: unknown, rawReceipts: readonly unknown[]): Checks {
  const block = record(rawBlock, 'block');
  const transactions = list(block.transactions, 'block.transactions').map((one) =>
    record(one, 'transaction'),
  );
  const encodable = transactions.filter(isEncodable);
  const isWhole = encodable.length === transactions.length;
  const otherwise = isWhole ? 'fails' : 'unknown';
  // What cannot be encoded for certain is tried all the same: most unknown types have receipts of the usual form.
  return {
    isEmpty: transactions.length === 0,
    headerHash: verdictOf(() => headerHash(block) === block.hash, 'fails'),
    transactionsRoot: verdictOf(
      () => {
        const encoded = transactions.map(encodeTransaction);
        return (
          rootOf(encoded) === block.transactionsRoot &&
          encoded.every((bytes, index) => transactionHash(bytes) === transactions[index]?.hash)
        );
      },
      isWhole ? 'fails' : verdictBeside(encodable),
    ),
    withdrawalsRoot: verdictOfWithdrawals(block),
    receiptsRoot: verdictOf(() => {
      const receipts = rawReceipts.map((one) => record(one, 'receipt'));
      const byHash = new Map(receipts.map((receipt) => [receipt.transactionHash, receipt]));
      const encoded = transactions.map((one) => encodeReceipt(record(byHash.get(one.hash), 'receipt'), one));
      return rootOf(encoded) === block.receiptsRoot;
    }, otherwise),
  };
}

/** Beside a transaction that only the chain can encode, the others must still be what their hashes say. */
function verdictBeside(others: readonly Record<string, unknown>[]): 'fails' | 'unknown' {
  const areHashed = () => others.every((one) => transactionHash(encodeTransaction(one)) === one.hash);
  return verdictOf(areHashed, 'fails') === 'holds' ? 'unknown' : 'fails';
}

/** OP-stack chains list none, and have the root of something else there. */
function verdictOfWithdrawals({ withdrawals, withdrawalsRoot }: Record<string, unknown>): Verdict {
  if (!Array.isArray(withdrawals) || withdrawals.length === 0) return 'none';
  return verdictOf(() => rootOf(withdrawals.map(encodeWithdrawal)) === withdrawalsRoot, 'fails');
}

function verdictOf(check: () => boolean, otherwise: 'fails' | 'unknown'): Verdict {
  try {
    return check() ? 'holds' : otherwise;
  } catch (error) {
    if (error instanceof Fault) return otherwise;
    throw error;
  }
}
