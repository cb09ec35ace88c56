/**
 * The reasons why the follower does not continue, as messages that say what to do.
 */
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { BlockId } from '../domain/block.ts';

const theNodes = (nodeCount: number) => (nodeCount === 1 ? 'the node is' : 'the nodes are');

/**
 * The Fault for an unstored head below the tip; `stored` is the stored hash at its height, undefined below the first block.
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
        `${who} at block ${head.number}, below everything that is stored (up to ${tip.number}): wait for block ${tip.number}, or add a node to chain.rpc that has it`,
      )
    : new Fault(
        'inconsistent',
        `${who} at block ${head.number} (${head.hash}), which is ${stored} in the database, whose tip is ${tip.number}: a lower branch is followed once it has reached block ${tip.number}; if the chain was reset, check chain.rpc`,
      );
}

/** Adds advice to the Fault of a start that waits for silent nodes. @throws `error`, or the Fault with advice. */
export function adviseOnSilence(error: unknown): never {
  if (!(error instanceof Fault) || error.code !== 'unavailable') throw error;
  const advice = 'Following starts as soon as enough nodes answer: check that they run, and chain.rpc';
  throw new Fault('unavailable', `${messageOf(error)}. ${advice}`, { cause: error });
}

/** A Fault of a branch that was named a moment ago and no longer is. */
export function unconfirmedBranch(number: number, nodeCount: number): Fault {
  return new Fault(
    'unavailable',
    nodeCount === 1
      ? `the node does not give block ${number} of the branch that it named: asking again. If this lasts, check the node or add others to chain.rpc`
      : `the nodes do not agree about block ${number}: asking again. If this lasts, repair or replace the nodes that disagree`,
  );
}

/** A Fault of a block so old that nodes may have pruned it, with what can be done then. */
export function prunedBlock(
  cause: Fault,
  { from, head, isFirst }: { from: number; head: BlockId; isFirst: boolean },
): Fault {
  const asked = `asked for block ${from}, ${head.number - from} below the head: ${messageOf(cause)}`;
  const history = 'add a node to chain.rpc that keeps all history (an archive node for traces';
  const later = isFirst ? ', or begin later: chain.startBlock' : '';
  const advice = `${history}, or chain.internalTransfers: off)${later}`;
  return new Fault('unavailable', `${asked}; if the nodes have pruned it, ${advice}`, { cause });
}

/** A Fault because of a head that no chain leads to. */
export function absurdHead(cause: Fault, { number, hash }: BlockId): Fault {
  return new Fault(
    'unavailable',
    `the nodes name block ${number} (${hash}) as the head, and none has the block below it: following resumes when they name another head (${messageOf(cause)})`,
    { cause },
  );
}
