/**
 * Finds where the branch that the chain switched to leaves the stored one, and reads its blocks.
 */
import { Fault } from '../core/fault.ts';
import type { BlockHeader, BlockId } from '../domain/block.ts';
import type { QuorumStatus } from '../domain/quorum.ts';
import { findFirst, findKnownHash, findTip } from '../store/blocks/blocks.ts';
import type { Database } from '../store/db/db.ts';
import type { ReadAhead } from './read-ahead.ts';
import type { ReadBlock } from './read-block.ts';

/** Blocks of one switch: more than the deepest reorg of an ordinary chain, and few enough to hold in memory together. */
const SWITCH_BLOCKS_MAX = 64;

/**
 * Walks from a corroborated block by parent hashes to the newest block that is stored, or to the parent of the first one.
 * If it meets neither, the branch replaces all stored blocks. That takes more than one node, unless only one is
 * configured.
 * @throws Fault `inconsistent` when the branch leaves below the final block, or when one of several nodes alone would
 * replace all blocks; and the Faults of `parentOf`.
 */
export async function findAncestor(
  branch: BlockHeader,
  options: {
    database: Database;
    finalizedNumber: number;
    quorum: Pick<QuorumStatus, 'nodes' | 'needed'>;
    parentOf(child: BlockHeader): Promise<BlockHeader>;
  },
): Promise<BlockId> {
  const { database, finalizedNumber, quorum } = options;
  const [first, tip] = [await findFirst(database), await findTip(database)];
  const holding = `holding at ${tip?.number} (${tip?.hash})`;
  for (let child = branch; ; child = await options.parentOf(child)) {
    const number = child.number - 1;
    const isBelowFirst = first === undefined || number < first.number;
    if ((await findKnownHash(database, number)) === child.parentHash)
      return { number, hash: child.parentHash };
    if (number <= finalizedNumber)
      throw new Fault(
        'inconsistent',
        `the nodes name a reorg from below the final block ${finalizedNumber}. The follower is ${holding}`,
      );
    if (!isBelowFirst) continue;
    if (quorum.needed > 1 || quorum.nodes === 1) return { number, hash: child.parentHash };
    throw new Fault(
      'inconsistent',
      `only one of ${quorum.nodes} nodes names a reorg from below the first stored block ${first?.number}. The follower is ${holding} until a second node names it`,
    );
  }
}

/** Reads the blocks above the ancestor up to the head, SWITCH_BLOCKS_MAX at most, each linked to the one before. */
export function createBranchReader(
  readAhead: ReadAhead,
): (ancestor: BlockId, head: BlockId, signal: AbortSignal) => Promise<ReadBlock[]> {
  return async (ancestor, head, signal) => {
    const to = Math.min(head.number, ancestor.number + SWITCH_BLOCKS_MAX);
    const last = { number: to, hash: to === head.number ? head.hash : undefined };
    const blocks: ReadBlock[] = [];
    let tip = ancestor;
    while (tip.number < to) {
      const read = await readAhead.next(tip.number + 1, last, signal);
      for (const block of read) {
        if (block.header.parentHash !== tip.hash) {
          readAhead.drop();
          throw changedAgain(block.header.number);
        }
        blocks.push(block);
        tip = block.header;
      }
    }
    return blocks;
  };
}

/** The Fault for nodes that moved to another branch while this one was read. */
export const changedAgain = (number: number) =>
  new Fault('unavailable', `the chain changed again at block ${number}. The follower asks again`);

/**
 * The blocks before the first that does not follow its predecessor, because a reorg happened while they were fetched. A
 * break is always between two requests, because each request is anchored separately.
 */
export function linkedPrefix(blocks: readonly ReadBlock[]): ReadBlock[] {
  const broken = blocks.findIndex(({ header }, index) => {
    const previous = blocks[index - 1];
    return previous !== undefined && header.parentHash !== previous.header.hash;
  });
  return broken === -1 ? [...blocks] : blocks.slice(0, broken);
}
