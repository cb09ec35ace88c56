/**
 * Fetches blocks from one node with the methods that it supports, and proves each of them.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { Log } from '../../core/log.ts';
import type { BlockReference } from '../../domain/block.ts';
import { type Bundle, fetchBundles } from '../blocks/bundle.ts';
import { UnfitTracesFault } from '../blocks/traces.ts';
import type { RawBlock } from '../proof/block-checks.ts';
import type { Lie } from '../proof/false-answer.ts';
import type { Verifier } from '../proof/verifier.ts';
import type { OnBytes } from '../rpc/answer-text.ts';
import { type ObservedRpc, RefusedFault } from '../rpc/rpc.ts';
import { hasLostMethod, type Node, noteBundleTime } from './node.ts';
import type { Capabilities } from './probe.ts';

/**
 * - `parts` leaves out traces if the caller doesn't need them.
 * - `scrutiny` checks all data that no hash covers, even if it matches no watched address: it recovers all
 *   senders, and other nodes confirm the internal transfers.
 * - `needsSenders` names the transactions whose senders are always recovered, also without a value.
 * - `onBytes` counts the bytes of the answers of every node.
 * - `onLie` is called for each node that such a check exposes, even if another node then gives the blocks.
 * - `onUnconfirmed` is called with a block that such a check could not confirm, and why.
 */
export type BundleOptions = {
  parts?: 'without traces';
  scrutiny?: 'full';
  needsSenders?: ((bundle: Bundle) => readonly Hash[]) | undefined;
  onBytes?: OnBytes;
  onLie?: (lie: Lie) => void;
  onUnconfirmed?: (block: number, fault: Fault) => void;
};

/** The most blocks in an urgent request, such as those of following near the head. */
export const HEDGED_BLOCKS_MAX = 3;

type FetchOptions = {
  nodes: readonly Node[];
  internalTransfers: 'auto' | 'off' | 'required';
  clock: Clock;
  log: Log;
  /** Proves each block. Without it, blocks are not proved. */
  verifier?: Verifier;
  prepare(node: Node, rpc: ObservedRpc, signal: AbortSignal): Promise<Capabilities>;
  /** The nodes that are asked for whole blocks. */
  blockNodes(): readonly Node[];
};

/** @throws Fault if the node can't give the blocks */
type Fetch = (
  node: Node,
  rpc: ObservedRpc,
  references: readonly BlockReference[],
  signal: AbortSignal,
  options: BundleOptions,
) => Promise<Bundle[]>;

export function createFetch({
  nodes,
  internalTransfers,
  clock,
  log,
  verifier,
  prepare,
  blockNodes,
}: FetchOptions): Fetch {
  const nowMs = () => clock.now().getTime();
  return async (node, rpc, references, signal, { parts, scrutiny, needsSenders, onBytes }) => {
    const scope = scrutiny === 'full' ? 'all' : 'matched';
    const verify =
      verifier &&
      ((bundle: Bundle, raw: RawBlock) => verifier.verify(bundle.header, raw, scope, needsSenders?.(bundle)));
    const counted = onBytes === undefined ? rpc : rpc.counted(onBytes);
    const planNow = async (): Promise<Capabilities> => {
      const known = await prepare(node, rpc, signal);
      if (parts !== undefined) return { ...known, traces: 'none' };
      if (internalTransfers === 'required' && known.traces === 'none')
        throw new Fault('unavailable', `${rpc.name} cannot trace, and chain.internalTransfers is required`);
      return known;
    };
    const plan = await planNow();
    const isAble = () => parts !== undefined || blockNodes().includes(node);
    if (!isAble()) throw new Fault('unavailable', `${node.rpc.name} cannot trace, which another node can`);
    const startedAt = nowMs();
    try {
      const bundles = await fetchBundles(counted, references, plan, signal, verify);
      if (parts === undefined && references.length <= HEDGED_BLOCKS_MAX)
        noteBundleTime(nodes, node, nowMs() - startedAt, nowMs());
      return bundles;
    } catch (error) {
      if (!(error instanceof Fault) || signal.aborted) throw error;
      if (error instanceof UnfitTracesFault) node.unfitTraces.add(plan.traces);
      else if (!hasLostMethod(node) && !(error instanceof RefusedFault)) throw error;
      log.warn({ node: node.rpc.name, error: messageOf(error) }, 'node.lost_method');
      node.capabilities = undefined;
      const next = await planNow();
      if (!isAble()) throw error;
      return fetchBundles(counted, references, next, signal, verify);
    }
  };
}
