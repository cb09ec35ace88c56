/**
 * A notification with a wrong block number is reported only once: in the block that has its transaction.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { Fault } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { Difference } from './compare.ts';

/**
 * Looks for the transaction of an unexpected notification in other blocks. Undefined if it is in another block of the range,
 * which is compared too; without repairs if it is in a block outside the range.
 */
export async function relocate(
  difference: Difference,
  { nodes, range }: { nodes: Pick<ChainNodes, 'ask'>; range: { from: number; to: number } },
  signal: AbortSignal,
): Promise<Difference | undefined> {
  const { kind, notification } = difference;
  if (kind !== 'unexpected' || notification === undefined) return difference;
  const number = await findBlockNumber(nodes, notification.txHash, signal);
  if (number === undefined || number === difference.block) return difference;
  if (number >= range.from && number <= range.to) return undefined;
  const { repairs: _, mayCreditTwice: _2, ...rest } = difference;
  return {
    ...rest,
    message: `${rest.message}; its transaction is in block ${number}: compare that block too`,
  };
}

/** The block that has the transaction; undefined if no node has it. */
async function findBlockNumber(
  nodes: Pick<ChainNodes, 'ask'>,
  txHash: Hash,
  signal: AbortSignal,
): Promise<number | undefined> {
  const calls = [{ method: 'eth_getTransactionReceipt', params: [txHash] }];
  try {
    return await nodes.ask(
      calls,
      ([answer]) => {
        const receipt: { blockNumber?: unknown } = Object(answer?.ok === true ? answer.result : undefined);
        return typeof receipt.blockNumber === 'string' ? Number(receipt.blockNumber) : undefined;
      },
      signal,
    );
  } catch (error) {
    if (!(error instanceof Fault) || signal.aborted) throw error;
    return undefined;
  }
}
