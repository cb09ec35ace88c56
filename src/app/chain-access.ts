/**
 * The configured nodes and the verifier of their blocks, for the service and `chainbell verify`.
 */
import { type ChainNodes, createNodes, httpUrls, type NodesOptions } from '../chain/nodes/nodes.ts';
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import { createVerifier, type Verifier } from '../chain/proof/verifier.ts';
import type { Config } from '../config/schema.ts';
import { quorumOf } from '../domain/quorum.ts';
import type { ChainRow } from '../store/blocks/blocks.ts';
import { readsContracts } from './price-feeds.ts';

export type ChainAccess = { nodes: ChainNodes & Voters; verifier: Verifier; close(): Promise<void> };

/**
 * `known` is the stored chain: checks that it was observed to honor are enforced from the start, and its types accepted. If its blocks had
 * traces, nodes that have not answered yet may be those that can trace.
 */
export function openChain(
  { chain }: Config,
  known: ChainRow | undefined,
  options: Pick<NodesOptions, 'urls' | 'clock' | 'log' | 'metrics' | 'onHead'>,
): ChainAccess {
  const verifier = createVerifier({
    mode: chain.verify,
    chainId: chain.id,
    nodeCount: httpUrls(chain.rpc).length,
    quorum: quorumOf(httpUrls(chain.rpc).length, chain.quorum),
    enforced: known?.enforcedChecks ?? [],
    observedTypes: known?.unprovedTypes ?? [],
    unprovedTypes: chain.unprovedTypes,
    log: options.log,
  });
  const { id: chainId, internalTransfers, quorum } = chain;
  const hasTraced = known?.hasTraces === true && internalTransfers !== 'off';
  const nodes = createNodes({ ...options, chainId, internalTransfers, hasTraced, quorum, verifier });
  return {
    nodes,
    verifier,
    async close() {
      await nodes.close();
      await verifier.close();
    },
  };
}

/** The nodes that a process with these roles uses. Only a follower needs WebSockets, for new heads. */
export function nodeUrls(config: Config, active: ReadonlySet<string>): readonly string[] {
  const { rpc } = config.chain;
  if (active.has('follower')) return rpc;
  const asksNodes =
    (active.has('prices') && readsContracts(config)) || (active.has('api') && config.supply !== undefined);
  return asksNodes ? httpUrls(rpc) : [];
}
