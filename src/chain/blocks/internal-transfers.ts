/**
 * Digests of a block's internal transfers. The digests of two nodes are equal if both report the same transfers.
 */
import { createHash } from 'node:crypto';
import { Fault } from '../../core/fault.ts';
import type { Address, Hash } from '../../core/hex.ts';
import type { BlockId } from '../../domain/block.ts';
import { type Rpc, type RpcAnswer, resultOf } from '../rpc/rpc.ts';
import { parseTraces, type TraceMethod } from './bundle.ts';

/** One internal transfer. Lists have the transfers of a transaction in the order of execution. */
export type InternalTransfer = {
  txHash: Hash;
  sender: Address;
  receiver: Address | undefined;
  amount: bigint;
};

/** A block with the transactions that it was proved to have, so that a node can't vote with other transactions. */
export type ListedBlock = BlockId & { transactionHashes: readonly Hash[] };

/** A digest that is equal for equal transfers in equal order. Transactions without transfers don't change it. */
export function digestOf(transfers: readonly InternalTransfer[]): string {
  const text = transfers.map(
    ({ txHash, sender, receiver, amount }) => `${txHash} ${sender} ${receiver} ${amount}`,
  );
  return createHash('sha256').update(text.join('\n')).digest('hex');
}

/**
 * Computes the digest of the node's answer, or returns the reason why the answer isn't about this block. Either
 * the node doesn't have the block yet (`unavailable`), or it traced other transactions (`inconsistent`). The
 * latter happens if the node is on another branch and traces by number.
 * @throws Fault if the node has the block and can't trace it.
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
