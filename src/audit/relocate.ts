/**
 * A notification with a wrong block number is reported only once: in the block that has its transaction.
 */
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import { quantity } from '../chain/rpc/parse.ts';
import { Fault } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import { isRecord } from '../core/json.ts';
import type { Difference } from './compare.ts';

type Places = {
  nodes: Pick<Voters, 'agree'>;
  range: { from: number; to: number };
  /** The differences of another block of the range; undefined if it can't be compared. */
  compareBlock(number: number): Promise<readonly Difference[] | undefined>;
};

/**
 * Looks for the transaction of an unexpected notification in other blocks. Undefined if it is in another block of the range that
 * reports the notification. The transaction alone doesn't mean that: it may have no such transfer. Without repairs if it is in a
 * block outside the range, or in one that can't be compared.
 */
export async function relocate(
  difference: Difference,
  { nodes, range, compareBlock }: Places,
  signal: AbortSignal,
): Promise<Difference | undefined> {
  const { kind, notification } = difference;
  if (kind !== 'unexpected' || notification === undefined) return difference;
  const number = await findBlockNumber(nodes, notification.txHash, signal);
  if (number === undefined || number === difference.block) return difference;
  if (number >= range.from && number <= range.to) {
    const there = await compareBlock(number);
    if (there?.some((one) => isSame(one, notification)) === true) return undefined;
    if (there !== undefined) return difference;
  }
  const { repairs: _, mayCreditTwice: _2, ...rest } = difference;
  return {
    ...rest,
    message: `${rest.message}; its transaction is in block ${number}: compare that block too`,
  };
}

const isSame = ({ notification }: Difference, other: NonNullable<Difference['notification']>) =>
  notification?.id === other.id && notification?.watchedAddressId === other.watchedAddressId;

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
