/**
 * Fetches blocks from the first ready node that can provide them. Other nodes confirm the data that no proof
 * covers.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { BlockReference } from '../../domain/block.ts';
import type { Bundle } from '../blocks/bundle.ts';
import type { Verifier } from '../proof/verifier.ts';
import type { createAnchors } from './anchor.ts';
import { type BundleOptions, createFetch, HEDGED_BLOCKS_MAX } from './fetch.ts';
import type { createFirstNode } from './first-node.ts';
import { attempt, byReadiness, canTrace, isOverdue, type Node } from './node.ts';
import type { NodeReader } from './node-reader.ts';
import { sampleOf } from './sampling.ts';
import { createTraceGap } from './trace-gap.ts';
import type { createVoting } from './unhashed-data.ts';

type BlockFetcherOptions = {
  nodes: readonly Node[];
  internalTransfers: 'auto' | 'off' | 'required';
  hasTraced?: boolean;
  clock: Clock;
  log: Log;
  verifier?: Verifier;
  reader: Pick<NodeReader, 'prepare' | 'rpcFor'>;
  firstNode: ReturnType<typeof createFirstNode>;
  confirmed: ReturnType<typeof createVoting>['confirmed'];
};

type FetchBundles = (
  references: readonly BlockReference[],
  signal: AbortSignal,
  options?: BundleOptions,
) => Promise<Bundle[]>;

type Anchor = ReturnType<typeof createAnchors>['anchor'];

type BlockFetcher = {
  /** The same blocks from one node, without traces. @throws Fault */
  fetchPlain(node: Node, references: readonly BlockReference[], signal: AbortSignal): Promise<Bundle[]>;
  /** @throws Fault if no node can provide the blocks */
  bundles: FetchBundles;
  /** Like `bundles`, but a quorum must name the last block. */
  anchoredBy(anchor: Anchor): FetchBundles;
  /** Set while blocks come without traces although earlier ones had them. */
  untraced: ReturnType<typeof createTraceGap>['problem'];
};

export function createBlockFetcher(options: BlockFetcherOptions): BlockFetcher {
  const { nodes, clock, verifier, reader, firstNode, confirmed } = options;
  const fetch = createFetch({ ...options, prepare: reader.prepare, blockNodes });
  const traceGap = createTraceGap(options);

  /** A node that hasn't answered since the start may be the one that traced earlier blocks. */
  const mayTrace = (node: Node) =>
    canTrace(node) || (options.hasTraced === true && node.traceMethod === undefined);

  /**
   * The nodes to ask for whole blocks. If some node can trace, or may, this leaves out nodes that can't, because their
   * blocks would lack internal transfers.
   */
  function blockNodes(): readonly Node[] {
    return nodes.some(mayTrace) ? nodes.filter(({ traceMethod }) => traceMethod !== 'none') : nodes;
  }

  /** Says why blocks wait although other nodes answer. */
  function explainWait(error: unknown): unknown {
    if (!(error instanceof Fault) || error.code !== 'unavailable') return error;
    const awaited = blockNodes();
    const others = nodes.filter((node) => !awaited.includes(node));
    if (others.length === 0 || awaited.some(canTrace)) return error;
    const [blind, silent] = [others, awaited].map((some) => some.map(({ rpc }) => rpc.name).join(', '));
    const why = `${blind} cannot trace, and ${silent}, which may, did not answer since the start. Earlier blocks had traces, so these wait: repair that node or remove it from chain.rpc`;
    return new Fault('unavailable', `${messageOf(error)}. ${why}`, { cause: error });
  }

  /** Samples the nodes that are known to answer, or all nodes if there are none. */
  async function calibrate(
    references: readonly BlockReference[],
    { needsSenders }: BundleOptions,
    signal: AbortSignal,
  ): Promise<void> {
    const now = clock.now().getTime();
    const ordered = byReadiness(nodes, now);
    const known = ordered.filter((node) => node.capabilities !== undefined && !isOverdue(node, now));
    const samplings = (known.length > 0 ? known : ordered).map((node) =>
      sampleOf({ clock, prepare: reader.prepare, needsSenders }, node, references, signal),
    );
    await verifier?.calibrate(samplings);
  }

  function anchoredBy(anchor: Anchor): FetchBundles {
    return async (references, signal, bundleOptions = {}) => {
      const { parts } = bundleOptions;
      await calibrate(references, bundleOptions, signal);
      const isUrgent = parts === undefined && references.length <= HEDGED_BLOCKS_MAX;
      const candidates = parts === undefined ? blockNodes() : nodes;
      const bundles = await firstNode(
        signal,
        (node, rpc, abort) =>
          confirmed(node, { references, ...bundleOptions }, abort, () =>
            anchor(node, references, abort, () => fetch(node, rpc, references, abort, bundleOptions)),
          ),
        { hedgeBy: isUrgent ? 'bundleTimes' : undefined, candidates },
      ).catch((error: unknown) => {
        throw parts === undefined ? explainWait(error) : error;
      });
      if (parts === undefined) traceGap.note(bundles);
      return bundles;
    };
  }

  return {
    fetchPlain: (node, references, signal) =>
      attempt(node, clock, signal, () =>
        fetch(node, reader.rpcFor(node), references, signal, { parts: 'without traces' }),
      ),
    bundles: anchoredBy((_node, _references, _signal, fetchBundles) => fetchBundles()),
    anchoredBy,
    untraced: traceGap.problem,
  };
}
