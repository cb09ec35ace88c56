/**
 * Parts of stories about nodes that can trace.
 */
import type { ListedBlock } from '../../src/chain/blocks/internal-transfers.ts';
import { parseHeader } from '../../src/chain/rpc/parse.ts';
import { blocks, complete } from './nodes.ts';
import { type Methods, makeHash, makeNodeBlock, RpcError } from './scripted-node.ts';

export const TRACE = 'debug_traceBlockByHash';

/** A node whose traces have no calls below the transactions' own. */
export const omitting = (): Methods => ({
  ...complete(),
  [TRACE]: ([hash]) => {
    const traces = blocks.find(({ block }) => block.hash === hash)?.traces;
    if (!Array.isArray(traces)) throw new RpcError(-32_000, 'block not found');
    return traces.map((trace) => ({ ...trace, result: { ...trace.result, calls: [] } }));
  },
});

/** A block as it is after its proof. */
export const listed = (number: number): ListedBlock => {
  const { block } = makeNodeBlock(number);
  return {
    ...parseHeader(block),
    transactionHashes: [1, 2].map((position) => makeHash(0, number, position)),
  };
};
