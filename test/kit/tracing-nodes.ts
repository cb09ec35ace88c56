/**
 * Parts of stories about nodes that can trace.
 */
import assert from 'node:assert/strict';
import type { ListedBlock } from '../../src/chain/blocks/internal-transfers.ts';
import { parseHeader } from '../../src/chain/rpc/parse.ts';
import { GAP_MS_MAX } from '../../src/domain/silence.ts';
import { blocks, complete, type NodesStage, nodeAt } from './nodes.ts';
import { type Methods, makeHash, makeNodeBlock, RpcError, type ScriptedNode } from './scripted-node.ts';

const { signal } = new AbortController();
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

/** The node fails to trace until the returned function is called. */
export function failTraces({ methods }: ScriptedNode): () => void {
  const trace = methods[TRACE];
  methods[TRACE] = () => {
    throw new RpcError(-32_000, 'timeout');
  };
  return () => {
    if (trace !== undefined) methods[TRACE] = trace;
  };
}

/** Lets the second node fail once all nodes are known to trace. */
export async function failSecond({ nodes, scripted }: NodesStage): Promise<() => void> {
  await nodes.head(signal);
  return failTraces(nodeAt(scripted, 1));
}

/** What the tracing nodes decide about a block without internal transfers. */
export async function decideEmpty({ nodes }: NodesStage): Promise<boolean> {
  await nodes.head(signal);
  return nodes.areConfirmed(listed(7), [], signal);
}

export const undecided = { code: 'unavailable' };

/** The second of two tracing nodes fails until the first one is followed alone, and then until the returned function is called. */
export async function silenceSecond(stage: NodesStage): Promise<() => void> {
  const repair = await failSecond(stage);
  for (let misses = 1; misses < 3; misses += 1) {
    await assert.rejects(decideEmpty(stage), undecided);
    stage.clock.advance(GAP_MS_MAX);
  }
  assert.equal(await decideEmpty(stage), true);
  return repair;
}
