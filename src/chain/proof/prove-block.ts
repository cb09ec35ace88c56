/**
 * Proves one block: checks that the block and its receipts are what its hash commits to
 * (docs/explanation/proof.md).
 */
import { Fault } from '../../core/fault.ts';
import { list, record } from '../rpc/parse.ts';
import type { CheckResult, Checks } from './block-checks.ts';
import {
  encodeReceipt,
  encodeTransaction,
  encodeWithdrawal,
  headerHash,
  isDeposit,
  rootOf,
  transactionHash,
  unencodableType,
} from './roots.ts';

/**
 * Called with each transaction whose encoding has the transaction's hash. The hash shows that the signature is
 * the one that was mined.
 */
export type OnHashed = (transaction: Record<string, unknown>, encoded: Buffer) => void;

/**
 * Recomputes from the node's JSON: the header hash, transactionsRoot with the transactions' hashes, the hashes alone if
 * a transaction can't be encoded, withdrawalsRoot if withdrawals are listed, and receiptsRoot. A check fails if its JSON can't be read. No hash
 * covers `from` (see block-senders.ts) and traces, so this function doesn't prove them.
 * Source: yellow paper, section 4.3.
 */
export function proveBlock(
  rawBlock: unknown,
  rawReceipts: readonly unknown[],
  onHashed: OnHashed = () => {},
): Checks {
  const block = record(rawBlock, 'block');
  const transactions = list(block.transactions, 'block.transactions').map((one) =>
    record(one, 'transaction'),
  );
  const types = transactions.map(unencodableType);
  const unencodableTypes = [...new Set(types.filter((type) => type !== undefined))].sort();
  const isWhole = unencodableTypes.length === 0;
  const otherwise = isWhole ? 'fails' : 'unknown';
  // Transactions that may not be encodable are tried too, because most unknown types have receipts of the usual form.
  const encoded = transactions.map(tryEncode);
  const isHashed = transactions.map(({ hash }, index) => {
    const bytes = encoded[index];
    return bytes !== undefined && transactionHash(bytes) === hash;
  });
  const deposits = transactions.map(isDeposit);
  const isSigned = (index: number) => types[index] === undefined && deposits[index] !== true;
  for (const [index, transaction] of transactions.entries()) {
    const bytes = encoded[index];
    if (bytes !== undefined && isHashed[index] === true && isSigned(index)) onHashed(transaction, bytes);
  }
  const areOthersHashed = types.every((type, index) => type !== undefined || isHashed[index] === true);
  return {
    ...{ isEmpty: transactions.length === 0, unencodableTypes },
    headerHash: resultOf(() => headerHash(block) === block.hash, 'fails'),
    transactionsRoot: rootResult(),
    transactionHashes: hashesResult(),
    withdrawalsRoot: withdrawalsResult(block),
    receiptsRoot: resultOf(() => {
      const receipts = rawReceipts.map((one) => record(one, 'receipt'));
      const byHash = new Map(receipts.map((receipt) => [receipt.transactionHash, receipt]));
      const encoded = transactions.map((one) => encodeReceipt(record(byHash.get(one.hash), 'receipt'), one));
      return rootOf(encoded) === block.receiptsRoot;
    }, otherwise),
  };

  /**
   * Only blocks whose transactions root can't be computed need this check, because the root covers the hashes. A chain may have
   * deposits of another form, which have other hashes.
   */
  function hashesResult(): CheckResult {
    const isRootKnown = isWhole && deposits.every((is, index) => !is || isHashed[index] === true);
    const signed = transactions.flatMap((_, index) => (isSigned(index) ? [isHashed[index] === true] : []));
    if (isRootKnown || signed.length === 0) return 'none';
    return signed.every(Boolean) ? 'holds' : 'fails';
  }

  function rootResult(): CheckResult {
    const whole = encoded.filter((bytes) => bytes !== undefined);
    const isComplete = whole.length === transactions.length && isHashed.every(Boolean);
    if (isComplete && rootOf(whole) === block.transactionsRoot) return 'holds';
    // If only the chain can encode a transaction, all others must still have their hashes.
    return !isWhole && areOthersHashed ? 'unknown' : 'fails';
  }
}

/** Undefined if the JSON is not a transaction of a known type. */
function tryEncode(transaction: Record<string, unknown>): Buffer | undefined {
  try {
    return encodeTransaction(transaction);
  } catch (error) {
    if (error instanceof Fault) return undefined;
    throw error;
  }
}

/** OP-stack chains list no withdrawals, and their withdrawalsRoot is the root of something else. */
function withdrawalsResult({ withdrawals, withdrawalsRoot }: Record<string, unknown>): CheckResult {
  if (!Array.isArray(withdrawals) || withdrawals.length === 0) return 'none';
  return resultOf(() => rootOf(withdrawals.map(encodeWithdrawal)) === withdrawalsRoot, 'fails');
}

function resultOf(check: () => boolean, otherwise: 'fails' | 'unknown'): CheckResult {
  try {
    return check() ? 'holds' : otherwise;
  } catch (error) {
    if (error instanceof Fault) return otherwise;
    throw error;
  }
}
