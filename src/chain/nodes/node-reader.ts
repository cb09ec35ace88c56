/**
 * Reads the identity, capabilities and headers of a single node.
 */
import { isDeepStrictEqual } from 'node:util';
import { backOffMs } from '../../core/back-off.ts';
import type { Clock } from '../../core/clock.ts';
import { disproof, Fault } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { BlockHeader, BlockReference } from '../../domain/block.ts';
import { quantityOf } from '../blocks/bundle.ts';
import { readProvedHeader } from '../proof/prove-header.ts';
import type { Verifier } from '../proof/verifier.ts';
import { parseHeader } from '../rpc/parse.ts';
import { type ObservedRpc, resultOf } from '../rpc/rpc.ts';
import { attempt, isHopeful, type Node, needsIdentity } from './node.ts';
import { type Capabilities, type ChainIdentity, probe, readIdentity } from './probe.ts';

/** Each read records its success or failure in the node. @throws the node's Fault */
export type NodeReader = {
  /** The connection to use: it waits for a rate-limited node only if no other node can answer. */
  rpcFor(node: Node): ObservedRpc;
  /** The node's capabilities. Probes them, and the node's identity, if they are unknown. */
  prepare(node: Node, rpc: ObservedRpc, signal: AbortSignal): Promise<Capabilities>;
  /**
   * Runs `work` against a node whose identity and capabilities are known. Only a failed exchange counts as an error of
   * the node. An error answer doesn't, because the node may rightly refuse a call.
   */
  read<T>(
    node: Node,
    signal: AbortSignal,
    work: (rpc: ObservedRpc, capabilities: Capabilities) => Promise<T>,
  ): Promise<T>;
  /** Whether a header that hashes to its hash commits to its parent and contents on this chain. */
  isHashBinding(): boolean;
  /** Parses a header, and checks its hash if hashes are binding. */
  parse(nodeName: string, json: unknown): BlockHeader;
  /** The node's newest block. Checks the node's identity if the block may be of another chain. */
  head(node: Node, signal: AbortSignal): Promise<BlockHeader>;
  /** One header. Undefined if the node doesn't know the block. */
  header(node: Node, reference: BlockReference, signal: AbortSignal): Promise<BlockHeader | undefined>;
  /** The block that the node calls finalized. Undefined if it names none, or has never named one and answers with an error. */
  finalized(node: Node, signal: AbortSignal): Promise<BlockHeader | undefined>;
  identity(node: Node, signal: AbortSignal): Promise<ChainIdentity>;
  /** The identity that every node must have. The genesis hash is undefined until `pin`. */
  pinned(): ChainIdentity;
  pin(identity: ChainIdentity): void;
};

type NodeReaderOptions = {
  nodes: readonly Node[];
  chainId: number;
  internalTransfers: 'auto' | 'off' | 'required';
  clock: Clock;
  log: Log;
  verifier?: Verifier;
};

/** After it a node is asked again for what it lacks other than traces, which a gateway may have refused for a moment. */
const LACKING_MS = 3_600_000;
const UNTRACED_MS = { min: 60_000, max: 3_600_000 };
/** Meanwhile blocks lack internal transfers that they could have. */
const LOST_TRACES_MS = { min: 60_000, max: 300_000 };

export function createNodeReader(options: NodeReaderOptions): NodeReader {
  const { nodes, clock, verifier } = options;
  let pinned: ChainIdentity = { chainId: options.chainId, genesisHash: undefined };

  const rpcFor = (node: Node) =>
    nodes.some((other) => other !== node && isHopeful(other)) ? node.rpc : node.rpc.patient;
  const isHashBinding = () => verifier?.status().checks.headerHash === 'enforced';
  const parse = (name: string, json: unknown) =>
    isHashBinding() ? readProvedHeader(name, json) : parseHeader(json);

  const prepare = createPrepare(options, () => pinned);
  const read = <T>(
    node: Node,
    signal: AbortSignal,
    work: (rpc: ObservedRpc, capabilities: Capabilities) => Promise<T>,
  ): Promise<T> =>
    attempt(node, clock, signal, async () => {
      const rpc = rpcFor(node);
      return work(rpc, await prepare(node, rpc, signal));
    });

  return {
    ...{ rpcFor, prepare, read, isHashBinding, parse },
    head: (node, signal) =>
      read(node, signal, async (rpc) => {
        const startedAt = clock.now().getTime();
        const head = parse(rpc.name, await rpc.call('eth_getBlockByNumber', ['latest', false], signal));
        node.headTimes.add(clock.now().getTime() - startedAt);
        if (needsIdentity(node, head, clock)) await readIdentity(rpc, pinned, signal);
        return head;
      }),
    header: (node, reference, signal) =>
      read(node, signal, async (rpc) => {
        const method = typeof reference === 'number' ? 'eth_getBlockByNumber' : 'eth_getBlockByHash';
        const id = typeof reference === 'number' ? quantityOf(reference) : reference;
        const json = await rpc.call(method, [id, false], signal);
        if (json === null) return undefined;
        const header = parse(rpc.name, json);
        if (header.hash === reference || header.number === reference) return header;
        throw disproof(
          `${rpc.name} returned block ${header.number} (${header.hash}) for the request of ${reference}`,
        );
      }),
    finalized: (node, signal) =>
      read(node, signal, async (rpc, capabilities) => {
        const call = { method: 'eth_getBlockByNumber', params: ['finalized', false] };
        const [answer] = await rpc.batch([call], signal);
        // The probe may have met a node that knew no final block yet, so each request decides.
        if (answer?.ok !== true && !capabilities.finalizedTag) return undefined;
        const json = resultOf(rpc, call.method, answer);
        if (json === null) return undefined;
        capabilities.finalizedTag = true;
        return parse(rpc.name, json);
      }),
    identity: (node, signal) =>
      attempt(node, clock, signal, () => readIdentity(rpcFor(node), pinned, signal)),
    pinned: () => pinned,
    pin(identity) {
      pinned = identity;
    },
  };
}

/**
 * A node whose traces failed, or that lost its trace method, is probed again after a minute, and after twice as long each time that it still
 * can't trace. One that lacks something else is probed every hour. Its capabilities serve meanwhile, and after a probe that failed.
 */
function createPrepare(
  { clock, log, internalTransfers }: Pick<NodeReaderOptions, 'clock' | 'log' | 'internalTransfers'>,
  pinned: () => ChainIdentity,
): NodeReader['prepare'] {
  /** `traced`: the method with which the node could trace. It may do so again, whatever it says now. */
  const failures = new Map<Node, { count: number; error: string; traced: Capabilities['traces'] }>();

  async function probeNode(node: Node, rpc: ObservedRpc, signal: AbortSignal): Promise<Capabilities> {
    const unfit = internalTransfers === 'off' ? undefined : node.unfitTraces;
    const { isCertain, untraced, ...found } = await probe(rpc, { expected: pinned(), unfit }, signal);
    // An error doesn't say that a node which could trace before no longer can.
    const { traceMethod: known = 'none' } = node;
    const traces = untraced?.lacking.has(known) === false ? known : found.capabilities.traces;
    const capabilities = { ...found.capabilities, traces };
    const hasChanged = !isDeepStrictEqual(capabilities, node.capabilities);
    if (isCertain) node.capabilities = capabilities;
    node.traceMethod = traces;
    const last = failures.get(node);
    const traced = known === 'none' ? (last?.traced ?? 'none') : known;
    const hasLost = isCertain && traces === 'none' && traced !== 'none';
    const error = untraced?.error ?? (hasLost ? `it no longer has ${traced}` : undefined);
    const fields = { node: node.rpc.name, ...capabilities };
    if (error === undefined || !isCertain) {
      failures.delete(node);
      const hasAll = capabilities.batch && capabilities.blockReceipts && capabilities.finalizedTag;
      node.probeAt = hasAll ? Number.POSITIVE_INFINITY : clock.now().getTime() + LACKING_MS;
      if (hasChanged) log.info(fields, 'node.probed');
      return capabilities;
    }
    const count = last === undefined ? 0 : last.count + 1;
    failures.set(node, { count, error, traced });
    node.probeAt = clock.now().getTime() + backOffMs(hasLost ? LOST_TRACES_MS : UNTRACED_MS, count);
    if (last?.error !== error) log.warn({ ...fields, traceError: error }, 'node.probed');
    return capabilities;
  }

  return async (node, rpc, signal) => {
    const { capabilities } = node;
    if (capabilities === undefined) return probeNode(node, rpc, signal);
    const nowMs = clock.now().getTime();
    if (nowMs < node.probeAt) return capabilities;
    // Others that ask meanwhile don't probe it too.
    node.probeAt = nowMs + UNTRACED_MS.min;
    return probeNode(node, rpc, signal).catch((error: unknown) => {
      if (!(error instanceof Fault) || error.code !== 'unavailable') throw error;
      return capabilities;
    });
  };
}
