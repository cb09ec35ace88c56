/**
 * The internal transfers of a block by the word of one node, as a text that is equal where two nodes say the same.
 */
import { createHash } from 'node:crypto';
import { Fault } from '../core/fault.ts';
import type { Address, Hash } from '../core/hex.ts';
import { askAll, parseTraces, quantityOf, traceCall } from './bundle.ts';
import { parseHeader, parseTransactionHashes } from './parse.ts';
import type { Capabilities } from './probe.ts';
import { type Rpc, resultOf } from './rpc.ts';

/** One internal transfer; in the order of execution within its transaction. */
export type InternalTransfer = {
  txHash: Hash;
  sender: Address;
  receiver: Address | undefined;
  amount: bigint;
};

/** Equal for equal transfers in equal order. Transactions without any leave no trace in it. */
export function digestOf(transfers: readonly InternalTransfer[]): string {
  const text = transfers.map(
    ({ txHash, sender, receiver, amount }) => `${txHash} ${sender} ${receiver} ${amount}`,
  );
  return createHash('sha256').update(text.join('\n')).digest('hex');
}

/**
 * What this node says of the block; undefined when it does not have the block (yet). `findNumber` is awaited only where the
 * node traces by number. @throws Fault when it cannot trace the block.
 */
export async function readDigest(
  rpc: Rpc,
  { traces: method, batch }: Capabilities,
  hash: Hash,
  findNumber: () => Promise<number>,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (method === 'none') throw new Fault('unavailable', `${rpc.name} cannot trace`);
  const isByHash = method === 'debug_traceBlockByHash';
  const id = isByHash ? hash : quantityOf(await findNumber());
  const calls = [{ method: 'eth_getBlockByHash', params: [hash, false] }, traceCall(method, id)];
  const [block, traced] = await askAll(rpc, calls, batch, signal);
  const json = resultOf(rpc, 'eth_getBlockByHash', block);
  if (json === null) return undefined;
  if (parseHeader(json).hash !== hash)
    throw new Fault('inconsistent', `${rpc.name} gave another block than ${hash}`);
  const hashes = parseTransactionHashes(json);
  if (hashes.length === 0) return digestOf([]);
  const byTransaction = parseTraces(rpc, { method, hashes, blockHash: hash }, resultOf(rpc, method, traced));
  return digestOf(
    hashes.flatMap((txHash) => {
      const trace = byTransaction.get(txHash);
      if (trace === undefined) throw new Fault('inconsistent', `${rpc.name} gave no trace of ${txHash}`);
      return trace.calls.map((call) => ({ txHash, ...call }));
    }),
  );
}
