/**
 * Faults that stop the follower for a while. Each message says why, and what the operator can do.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { BlockId } from '../domain/block.ts';

/** Pruning Ethereum nodes keep the states of this many blocks (geth's default). Traces need a block's state. */
const PRUNED_DEPTH_MIN = 128;

const theNodes = (nodeCount: number) => (nodeCount === 1 ? 'the node is' : 'the nodes are');

/**
 * The Fault for an unstored head below the tip. `stored` is the stored hash at its height, undefined below the first block.
 */
export function lowerBranch({
  tip,
  head,
  stored,
  nodeCount,
}: {
  tip: BlockId;
  head: BlockId;
  stored: Hash | undefined;
  nodeCount: number;
}): Fault {
  const who = theNodes(nodeCount);
  return stored === undefined
    ? new Fault(
        'unavailable',
        `${who} at block ${head.number}, below all stored blocks (up to ${tip.number}). Wait until block ${tip.number} is reached, or add a node to chain.rpc that has it`,
      )
    : new Fault(
        'inconsistent',
        `${who} at block ${head.number} (${head.hash}), but the database has ${stored} at this height, and its tip is ${tip.number}. A lower branch is followed once it reaches block ${tip.number}. If the chain was reset, check chain.rpc`,
      );
}

/** Adds advice to the Fault of a start that waits for silent nodes. @throws `error`, or the Fault with advice. */
export function adviseOnSilence(error: unknown): never {
  if (!(error instanceof Fault) || error.code !== 'unavailable') throw error;
  const advice =
    'Following starts as soon as enough nodes answer. Check that the nodes run, and check chain.rpc';
  throw new Fault('unavailable', `${messageOf(error)}. ${advice}`, { cause: error });
}

/** The Fault for a branch that the nodes named a moment ago and name no longer. */
export function unconfirmedBranch(number: number, nodeCount: number): Fault {
  return new Fault(
    'unavailable',
    nodeCount === 1
      ? `the node does not give block ${number} of the branch that it named. The follower asks again. If this lasts, check the node or add others to chain.rpc`
      : `the nodes disagree about block ${number}. The follower asks again. If this lasts, repair or replace the nodes that disagree`,
  );
}

/**
 * Adds advice to the Fault for a block far below the head that no node gives: the nodes may have pruned it, or the head
 * isn't real. Other errors are returned as they are.
 */
export async function explainUnavailable(
  error: unknown,
  {
    nodes,
    from,
    head,
    isFirst,
  }: { nodes: Pick<ChainNodes, 'findHeader'>; from: number; head: BlockId; isFirst: boolean },
  signal: AbortSignal,
): Promise<unknown> {
  if (!(error instanceof Fault) || error.code !== 'unavailable' || signal.aborted) return error;
  if (head.number - from < PRUNED_DEPTH_MIN) return error;
  return (await isHeadReal(nodes, head, signal))
    ? prunedBlock(error, { from, head, isFirst })
    : absurdHead(error, head);
}

/** Whether a node has the block below the head, as every node does of a real head. */
async function isHeadReal(
  nodes: Pick<ChainNodes, 'findHeader'>,
  head: BlockId,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    return (await nodes.findHeader(head.number - 1, signal)) !== undefined;
  } catch (error) {
    if (error instanceof Fault) return false;
    throw error;
  }
}

function prunedBlock(
  cause: Fault,
  { from, head, isFirst }: { from: number; head: BlockId; isFirst: boolean },
): Fault {
  const missing = `no node gives block ${from}, ${head.number - from} below the head: ${messageOf(cause)}`;
  const forTraces = 'for traces, add an archive node or set chain.internalTransfers to off';
  const history = `add a node to chain.rpc that keeps all history (${forTraces})`;
  const later = isFirst ? ', or set a later chain.startBlock' : '';
  return new Fault('unavailable', `${missing}. If the nodes have pruned it, ${history}${later}`, { cause });
}

function absurdHead(cause: Fault, { number, hash }: BlockId): Fault {
  return new Fault(
    'unavailable',
    `the nodes name block ${number} (${hash}) as the head, but no node has the block below it. Following resumes when they name another head (${messageOf(cause)})`,
    { cause },
  );
}
