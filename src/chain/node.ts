/**
 * One node: its connection, what it can do (found by asking), and how it fares.
 */
import type { BlockHeader } from '../core/block.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { Metrics } from '../core/metrics.ts';
import { type FetchPlan, quantityOf, type TraceMethod } from './bundle.ts';
import { parseHeader, quantity } from './parse.ts';
import { createRpc, isLimited, lacksMethod, type Rpc, resultOf } from './rpc.ts';

/** What a node can do. */
export type Capabilities = FetchPlan & { finalizedTag: boolean };

export type ChainIdentity = { chainId: number; genesisHash: Hash | undefined };

export type Node = {
  readonly rpc: Rpc;
  /** Undefined until the first successful probe and after an error that puts them in doubt. */
  capabilities: Capabilities | undefined;
  head: BlockHeader | undefined;
  failures: number;
  lastError: string | undefined;
  /** Until then it is asked only when no other node is left. */
  retryAt: number;
};

const BACK_OFF_MS_MAX = 30_000;

export function createNode(url: string, metrics: Metrics): Node {
  return {
    rpc: createRpc(url, metrics),
    capabilities: undefined,
    head: undefined,
    failures: 0,
    lastError: undefined,
    retryAt: 0,
  };
}

/** Runs `work` against the node and keeps its record: success clears it, a Fault adds a doubling back-off. */
export async function attempt<T>(node: Node, clock: Clock, work: (node: Node) => Promise<T>): Promise<T> {
  try {
    const result = await work(node);
    node.failures = 0;
    node.lastError = undefined;
    node.retryAt = 0;
    return result;
  } catch (error) {
    if (error instanceof Fault) {
      node.failures += 1;
      node.lastError = messageOf(error);
      node.retryAt = clock.now().getTime() + Math.min(100 * 2 ** node.failures, BACK_OFF_MS_MAX);
      // It may be another node behind the same address now: ask again what it can do.
      if (node.failures >= 3) node.capabilities = undefined;
    }
    throw error;
  }
}

/** Asks the node who it is and what it can do, once; cheap afterwards. @throws Fault. */
export async function ready(
  node: Node,
  expected: ChainIdentity,
  wantTraces: boolean,
  signal: AbortSignal,
): Promise<Capabilities> {
  if (node.capabilities !== undefined) return node.capabilities;
  const { genesisHash } = await readIdentity(node.rpc, expected.chainId, signal);
  if (
    genesisHash !== undefined &&
    expected.genesisHash !== undefined &&
    genesisHash !== expected.genesisHash
  ) {
    throw new Fault(
      'conflict',
      `${node.rpc.name} has another genesis block (${genesisHash}) than ${expected.genesisHash}`,
    );
  }
  const { capabilities, isCertain } = await probe(node.rpc, wantTraces, signal);
  if (isCertain) node.capabilities = capabilities;
  return capabilities;
}

/**
 * Chain id and genesis hash (undefined where the node no longer has block 0).
 * @throws Fault `conflict` when the node is on another chain than the expected one.
 */
export async function readIdentity(
  rpc: Rpc,
  expectedChainId: number,
  signal: AbortSignal,
): Promise<ChainIdentity> {
  const chainId = quantity(await rpc.call('eth_chainId', [], signal), 'eth_chainId');
  if (chainId !== expectedChainId) {
    throw new Fault(
      'conflict',
      `${rpc.name} is on chain ${chainId}, chain.id says ${expectedChainId}: correct one of the two`,
    );
  }
  const [genesis] = await rpc.batch([{ method: 'eth_getBlockByNumber', params: ['0x0', false] }], signal);
  const hasGenesis = genesis?.ok === true && genesis.result !== null;
  return { chainId, genesisHash: hasGenesis ? parseHeader(genesis.result).hash : undefined };
}

/** Not certain while there is only the genesis block, which no node can trace. */
async function probe(
  rpc: Rpc,
  wantTraces: boolean,
  signal: AbortSignal,
): Promise<{ capabilities: Capabilities; isCertain: boolean }> {
  const head = parseHeader(await rpc.call('eth_getBlockByNumber', ['latest', false], signal));
  const [receipts] = await rpc.batch([{ method: 'eth_getBlockReceipts', params: [head.hash] }], signal);
  const [finalized] = await rpc.batch(
    [{ method: 'eth_getBlockByNumber', params: ['finalized', false] }],
    signal,
  );
  const capabilities: Capabilities = {
    batch: await canBatch(rpc, signal),
    blockReceipts: receipts?.ok === true || !lacksMethod(receipts),
    finalizedTag: finalized?.ok === true && finalized.result !== null,
    traces: wantTraces ? await findTraceMethod(rpc, head, signal) : 'none',
  };
  return { capabilities, isCertain: head.number > 0 || !wantTraces || capabilities.traces !== 'none' };
}

async function canBatch(rpc: Rpc, signal: AbortSignal): Promise<boolean> {
  const call = { method: 'eth_chainId', params: [] };
  try {
    const answers = await rpc.batch([call, call], signal);
    return answers.length === 2 && answers.every((answer) => answer.ok);
  } catch (error) {
    if (error instanceof Fault && !signal.aborted) return false;
    throw error;
  }
}

async function findTraceMethod(
  rpc: Rpc,
  head: BlockHeader,
  signal: AbortSignal,
): Promise<TraceMethod | 'none'> {
  const tracer = { tracer: 'callTracer' };
  const candidates: [TraceMethod, unknown[]][] = [
    ['debug_traceBlockByHash', [head.hash, tracer]],
    ['debug_traceBlockByNumber', [quantityOf(head.number), tracer]],
    ['trace_block', [quantityOf(head.number)]],
  ];
  for (const [method, params] of candidates) {
    const [answer] = await rpc.batch([{ method, params }], signal);
    if (answer?.ok === true && Array.isArray(answer.result)) return method;
    // Taken for a node that cannot trace, it would hide every internal transfer from now on.
    if (isLimited(answer)) resultOf(rpc, method, answer);
  }
  return 'none';
}

/** The newest block that the node calls final; undefined where it has no such tag. */
export async function readFinalized(node: Node, signal: AbortSignal): Promise<number | undefined> {
  if (node.capabilities?.finalizedTag !== true) return undefined;
  const [answer] = await node.rpc.batch(
    [{ method: 'eth_getBlockByNumber', params: ['finalized', false] }],
    signal,
  );
  const json = resultOf(node.rpc, 'eth_getBlockByNumber', answer);
  return json === null ? undefined : parseHeader(json).number;
}
