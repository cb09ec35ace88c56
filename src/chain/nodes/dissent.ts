/**
 * Finds the block at which a node's chain leaves the stored chain.
 */
import { startAbort } from '../../core/abort.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { Log } from '../../core/log.ts';
import type { Electorate } from './anchor.ts';
import type { Node } from './node.ts';

/** The stored blocks that a node's chain is compared with. */
export type StoredChain = {
  /** The first and the newest stored block. */
  from: number;
  to: number;
  hashAt(number: number): Promise<Hash | undefined>;
  /** The nodes have been on another branch for longer than an ordinary reorg lasts. */
  isLeft?: boolean;
};

/** A difference this close to the tip may be an ordinary reorg that one node has not seen yet. */
const REORG_BLOCKS_USUAL = 3;
/** Steps of the binary search, enough for a million blocks. */
const SEARCH_STEPS_MAX = 20;
/** A comparison reads about 20 headers. A node that takes longer is compared again after a pause. */
const COMPARE_MS_MAX = 5_000;
const UNCOMPARED_MS = 30_000;

/** Whether the node is neither being compared nor resting after a comparison that took too long. */
export const isComparable = ({ compareAt }: Node, clock: Clock): boolean =>
  clock.now().getTime() >= compareAt;

/**
 * Records where the node's chain leaves the stored one, or that they agree again. Ignores Faults of the node.
 */
export async function compareNode(
  { clock, log, headerOf }: Pick<Electorate, 'clock' | 'headerOf'> & { log: Log },
  stored: StoredChain,
  node: Node,
  signal: AbortSignal,
): Promise<void> {
  const work = startAbort(signal, COMPARE_MS_MAX);
  const known = node.disagreement;
  let restMs = 0;
  node.compareAt = Number.POSITIVE_INFINITY;
  try {
    const difference = await findDifference(
      stored,
      node,
      async (number) => (await headerOf(node, number, work.signal))?.hash,
    );
    if (difference !== undefined && known === undefined)
      log.warn({ node: node.rpc.name, ...difference }, 'node.disagrees');
    if (difference === undefined && known !== undefined)
      log.info({ node: node.rpc.name, number: known.number }, 'node.agrees');
    if (node.suspectNumber !== undefined && node.suspectNumber <= deepest(stored))
      node.suspectNumber = undefined;
    node.disagreement = difference && { ...difference, since: known?.since ?? clock.now() };
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    if (work.signal.aborted && !signal.aborted) {
      restMs = UNCOMPARED_MS;
      log.warn({ node: node.rpc.name }, 'node.not_compared');
    }
  } finally {
    node.compareAt = clock.now().getTime() + restMs;
    work.release();
  }
}

/**
 * The first stored block that differs on the node. Undefined if the chains agree up to the highest block that is
 * compared: more than three blocks below the tip, and at most the node's head. `hashAt` reads the node's
 * canonical hash, or undefined if it has none.
 */
async function findDifference(
  stored: StoredChain,
  node: Pick<Node, 'vote' | 'disagreement' | 'suspectNumber'>,
  hashAt: (number: number) => Promise<Hash | undefined>,
): Promise<{ number: number; hash: Hash; storedHash: Hash } | undefined> {
  const { from, to, hashAt: storedAt } = stored;
  const differenceAt = async (number: number) => {
    const [storedHash, hash] = [await storedAt(number), await hashAt(number)];
    if (storedHash === undefined || hash === undefined || storedHash === hash) return undefined;
    return { number, hash, storedHash };
  };
  const { vote, disagreement, suspectNumber } = node;
  // After a known difference, comparing that block again is enough.
  if (disagreement !== undefined && disagreement.number <= to && disagreement.number >= from)
    return differenceAt(disagreement.number);
  const height = Math.min(deepest(stored), vote?.head.number ?? to, suspectNumber ?? to);
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

/** The newest stored block that an ordinary reorg doesn't replace. */
const deepest = ({ to, isLeft = false }: StoredChain): number => (isLeft ? to : to - REORG_BLOCKS_USUAL - 1);
