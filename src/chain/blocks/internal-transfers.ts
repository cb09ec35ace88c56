/**
 * Digests of a block's internal transfers. The digests of two nodes are equal if both report the same transfers.
 */
import { createHash } from 'node:crypto';
import { Fault, orFault } from '../../core/fault.ts';
import type { Address, Hash } from '../../core/hex.ts';
import type { BlockId } from '../../domain/block.ts';
import { parseBlock } from '../rpc/parse.ts';
import { type Rpc, type RpcAnswer, resultOf } from '../rpc/rpc.ts';
import { parseTraces, type TraceMethod, unsignedIn } from './bundle.ts';

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
  block: ListedBlock,
  signal: AbortSignal,
): Promise<{ digest: string } | { fault: Fault }> {
  const { hash } = block;
  if (answer?.ok !== true || answer.result === null) {
    const header = await rpc.call('eth_getBlockByHash', [hash, false], signal);
    if (header === null)
      return { fault: new Fault('unavailable', `${rpc.name} does not have block ${hash}`) };
  }
  const read = (unsigned: ReadonlySet<Hash>) =>
    digestIn(rpc, method, resultOf(rpc, method, answer), { ...block, unsigned });
  const digest = read(new Set());
  if (typeof digest === 'string') return { digest };
  // A node that calls a transaction unsigned hides no more than it could with an empty trace.
  const json = await rpc.call('eth_getBlockByHash', [hash, true], signal);
  const unsigned = orFault(() => (json === null ? new Set<Hash>() : unsignedIn(parseBlock(json), json)));
  if (unsigned instanceof Fault || unsigned.size === 0) return { fault: digest };
  const again = read(unsigned);
  return typeof again === 'string' ? { digest: again } : { fault: again };
}

/** The digest, or the reason why the traces aren't those of the block. @throws Fault if a transaction couldn't be traced */
function digestIn(
  rpc: Rpc,
  method: TraceMethod,
  json: unknown,
  { number, hash, transactionHashes: hashes, unsigned }: ListedBlock & { unsigned: ReadonlySet<Hash> },
): string | Fault {
  try {
    const byTransaction = parseTraces(rpc, { method, hashes, unsigned, blockHash: hash }, json);
    const transfers = hashes.flatMap((txHash) => {
      const trace = byTransaction.get(txHash);
      if (trace !== undefined) return trace.calls.map((call) => ({ txHash, ...call }));
      if (unsigned.has(txHash)) return [];
      const what = `traces of other transactions than those of block ${number} (${hash}): ${txHash} is missing`;
      throw new Fault('inconsistent', `${rpc.name} gave ${what}`);
    });
    return digestOf(transfers);
  } catch (error) {
    if (error instanceof Fault && error.code === 'inconsistent') return error;
    throw error;
  }
}
