/**
 * The internal transfers of a block as one node reports them, as a text that is equal if two nodes report the
 * same.
 */
import { createHash } from 'node:crypto';
import { Fault } from '../../core/fault.ts';
import type { Address, Hash } from '../../core/hex.ts';
import type { BlockId } from '../../domain/block.ts';
import { type Rpc, type RpcAnswer, resultOf } from '../rpc/rpc.ts';
import { parseTraces, type TraceMethod } from './bundle.ts';

/** One internal transfer; in the order of execution within its transaction. */
export type InternalTransfer = {
  txHash: Hash;
  sender: Address;
  receiver: Address | undefined;
  amount: bigint;
};

/** A block with the transactions that it was proved to have, so that no voter can name others. */
export type ListedBlock = BlockId & { transactionHashes: readonly Hash[] };

/** Equal for equal transfers in equal order. Transactions without any leave no trace in it. */
export function digestOf(transfers: readonly InternalTransfer[]): string {
  const text = transfers.map(
    ({ txHash, sender, receiver, amount }) => `${txHash} ${sender} ${receiver} ${amount}`,
  );
  return createHash('sha256').update(text.join('\n')).digest('hex');
}

/**
 * The digest of the node's answer, or the reason why the answer isn't about this block: the node doesn't have
 * it yet (`unavailable`), or traced other transactions (`inconsistent`), as one does by number that is on
 * another branch.
 * @throws Fault when the node has the block and can't trace it.
 */
export async function readDigest(
  rpc: Rpc,
  method: TraceMethod,
  answer: RpcAnswer | undefined,
  { number, hash, transactionHashes: hashes }: ListedBlock,
  signal: AbortSignal,
): Promise<{ digest: string } | { fault: Fault }> {
  if (answer?.ok !== true || answer.result === null) {
    const block = await rpc.call('eth_getBlockByHash', [hash, false], signal);
    if (block === null) return { fault: new Fault('unavailable', `${rpc.name} does not have block ${hash}`) };
  }
  const json = resultOf(rpc, method, answer);
  try {
    const byTransaction = parseTraces(rpc, { method, hashes, blockHash: hash }, json);
    const transfers = hashes.flatMap((txHash) => {
      const trace = byTransaction.get(txHash);
      if (trace !== undefined) return trace.calls.map((call) => ({ txHash, ...call }));
      const what = `traces of other transactions than those of block ${number} (${hash}): ${txHash} is missing`;
      throw new Fault('inconsistent', `${rpc.name} gave ${what}`);
    });
    return { digest: digestOf(transfers) };
  } catch (error) {
    if (error instanceof Fault && error.code === 'inconsistent') return { fault: error };
    throw error;
  }
}
