/**
 * Finding out where a node's chain leaves the stored one.
 */
import type { Hash } from '../core/hex.ts';
import type { Node } from './node.ts';

/** What is stored, as far as a node's chain is compared with it. */
export type StoredChain = {
  /** The first and the newest stored block. */
  from: number;
  to: number;
  hashAt(number: number): Promise<Hash | undefined>;
};

/** A difference this close to the tip may be an ordinary reorg that one node has not seen yet. */
const REORG_BLOCKS_USUAL = 3;
/** Steps of the search: enough for a million blocks. */
const SEARCH_STEPS_MAX = 20;

/**
 * The first stored block that the node has otherwise, when it differs more than three blocks below the tip, or at its
 * own head where that is lower; else undefined. `hashAt` is the node's canonical hash, undefined where it has none.
 */
export async function findDifference(
  { from, to, hashAt: storedAt }: StoredChain,
  node: Pick<Node, 'voice' | 'disagreement'>,
  hashAt: (number: number) => Promise<Hash | undefined>,
): Promise<{ number: number; hash: Hash; storedHash: Hash } | undefined> {
  const differenceAt = async (number: number) => {
    const [storedHash, hash] = [await storedAt(number), await hashAt(number)];
    if (storedHash === undefined || hash === undefined || storedHash === hash) return undefined;
    return { number, hash, storedHash };
  };
  const { voice, disagreement } = node;
  // Where it differed before, the same block tells whether it still does.
  if (disagreement !== undefined && disagreement.number <= to && disagreement.number >= from)
    return differenceAt(disagreement.number);
  const height = Math.min(to - REORG_BLOCKS_USUAL - 1, voice?.head.number ?? to);
  if (height < from) return undefined;
  let first = await differenceAt(height);
  if (first === undefined) return undefined;
  let low = from;
  for (let step = 0; step < SEARCH_STEPS_MAX && low < first.number; step += 1) {
    const middle = Math.floor((low + first.number) / 2);
    const difference = await differenceAt(middle);
    if (difference === undefined) low = middle + 1;
    else first = difference;
  }
  return first;
}
