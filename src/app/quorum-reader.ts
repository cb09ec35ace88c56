/**
 * Contract reads that a quorum of nodes must agree on, and the block at which they read.
 */
import type { ContractReader } from '../chain/contracts/contracts.ts';
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import { Fault } from '../core/fault.ts';
import { findTipHeader } from '../store/blocks/blocks.ts';
import type { Database } from '../store/db/db.ts';

/** Pruning nodes keep the states of 128 blocks. Half of that leaves time for the requests. */
const BEHIND_BLOCKS_MAX = 64;

/**
 * Contract reads decided by a quorum of nodes at the newest stored block, which they all have. Far behind the head, where
 * nodes may have pruned the state of that block, they read at the head. A single node is asked directly.
 */
export function quorumReader(nodes: ChainNodes & Voters, database: Database): ContractReader {
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
