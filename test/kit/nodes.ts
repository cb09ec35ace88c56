/**
 * Scripted nodes and the part of the program that sends requests to them, on a test clock.
 */
import assert from 'node:assert/strict';
import { type ChainNodes, createNodes, type NodesOptions } from '../../src/chain/nodes/nodes.ts';
import type { Voters } from '../../src/chain/nodes/unhashed-data.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createTestClock, type TestClock } from './clock.ts';
import {
  chainMethods,
  type Methods,
  makeNodeBlock,
  type ScriptedNode,
  startScriptedNode,
  traceMethod,
} from './scripted-node.ts';

export type NodesStage = {
  scripted: ScriptedNode[];
  nodes: ChainNodes & Voters;
  clock: TestClock;
  metrics: ReturnType<typeof createMetrics>;
};

/** Blocks 0 to 9. */
export const blocks = Array.from({ length: 10 }, (_, number) => makeNodeBlock(number));

/** A node on chain 1 that supports every method. */
export const complete = (): Methods => ({
  ...chainMethods(1, blocks),
  debug_traceBlockByHash: traceMethod(blocks),
});

/** Runs a test with nodes that have these methods, in this order of preference, as the follower sees them. */
export async function withNodes(
  methods: readonly Methods[],
  work: (stage: NodesStage) => Promise<void>,
  options: Partial<NodesOptions> = {},
): Promise<void> {
  const scripted = await Promise.all(methods.map((one) => startScriptedNode(one)));
  const clock = createTestClock();
  const metrics = createMetrics('test');
  const nodes = createNodes({
    urls: scripted.map(({ url }) => url),
    chainId: 1,
    internalTransfers: 'auto',
    clock,
    log: silentLog(),
    metrics,
    onHead() {},
    ...options,
  });
  try {
    await work({ scripted, nodes, clock, metrics });
  } finally {
    await nodes.close();
    await Promise.all(scripted.map((node) => node.close()));
  }
}

/** The n-th node, which must exist. */
export function nodeAt(scripted: readonly ScriptedNode[], index: number): ScriptedNode {
  const node = scripted[index];
  assert.ok(node !== undefined);
  return node;
}

/** The number of calls of a method. */
export function countOf(node: ScriptedNode, method: string): number {
  return node.calls.filter((call) => call.method === method).length;
}
