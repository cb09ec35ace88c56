/**
 * A notification with a wrong block number is reported only once: in the block that has its transaction.
 */
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import { quantity } from '../chain/rpc/parse.ts';
import { Fault } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import { isRecord } from '../core/json.ts';
import type { Difference } from './compare.ts';

/**
 * Looks for the transaction of an unexpected notification in other blocks. Undefined if it is in another block of the range,
 * which is compared too; without repairs if it is in a block outside the range.
 */
export async function relocate(
  difference: Difference,
  { nodes, range }: { nodes: Pick<Voters, 'agree'>; range: { from: number; to: number } },
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

/**
 * The block in which a quorum of the nodes has the transaction, so that one node can't hide a confirmed difference. Undefined
 * if there is none.
 */
async function findBlockNumber(
  nodes: Pick<Voters, 'agree'>,
  txHash: Hash,
  signal: AbortSignal,
): Promise<number | undefined> {
  const calls = [{ method: 'eth_getTransactionReceipt', params: [txHash] }];
  try {
    return await nodes.agree(
      calls,
      ([answer]) => {
        const receipt: unknown = answer?.ok === true ? answer.result : undefined;
        const block = isRecord(receipt) ? receipt.blockNumber : undefined;
        return block === undefined ? undefined : quantity(block, 'receipt.blockNumber');
      },
      signal,
      String,
    );
  } catch (error) {
    if (!(error instanceof Fault) || signal.aborted) throw error;
    return undefined;
  }
}
