/**
 * Contracts read by the word of several nodes: through which question, and at which block.
 */
import type { ContractReader } from './chain/contracts.ts';
import type { ChainNodes } from './chain/nodes.ts';
import type { Voters } from './chain/voting.ts';
import { Fault } from './core/fault.ts';
import { findTipHeader } from './store/blocks.ts';
import type { Database } from './store/db.ts';

/** Nodes that prune keep the states of 128 blocks; half of that leaves time to ask. */
const BEHIND_BLOCKS_MAX = 64;

/**
 * Nodes whose answers about contracts are decided by a quorum, at the newest stored block, which they all have. Far behind the
 * head, where that block is neither news nor in everybody's memory, at the head. A single node is asked as it is.
 */
export function agreeingReader(nodes: ChainNodes & Voters, database: Database): ContractReader {
  if (nodes.agreement().quorum === 1) return nodes;
  return {
    ask: nodes.agree,
    agreed: {
      async findBlock(signal) {
        const [tip, head] = await Promise.all([findTipHeader(database), nodes.head(signal)]);
        if (tip !== undefined && head.number - tip.number <= BEHIND_BLOCKS_MAX) return tip;
        const header = await nodes.findHeader(head.hash, signal);
        if (header !== undefined) return header;
        throw new Fault('unavailable', `the nodes do not have their head ${head.number} (${head.hash})`);
      },
    },
  };
}
