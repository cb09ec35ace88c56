/**
 * Samples recent blocks of one node, so the calibration can observe which checks the chain honors.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { BlockReference } from '../../domain/block.ts';
import { fetchBundles } from '../blocks/bundle.ts';
import type { Sampling } from '../proof/verifier.ts';
import { parseHeader } from '../rpc/parse.ts';
import type { ObservedRpc } from '../rpc/rpc.ts';
import type { BundleOptions } from './fetch.ts';
import type { Node } from './node.ts';
import type { Capabilities } from './probe.ts';

type Prepare = (node: Node, rpc: ObservedRpc, signal: AbortSignal) => Promise<Capabilities>;

/** Recent blocks from which the checks of a chain are observed. */
const SAMPLE_BLOCKS_MAX = 20;
/** Blocks requested at the same time. Few, because their answers are in memory together. */
const SAMPLE_REQUESTS_MAX = 4;
/** After this time no more blocks are requested, so a slow node doesn't delay the start for long. */
const SAMPLE_MS_MAX = 5_000;

/**
 * Samples the node's newest blocks, as many as it gives, and the first block of `references` if that is older.
 * Leaves out the genesis block, which is built differently.
 */
export function sampleOf(
  {
    clock,
    prepare,
    needsSenders,
  }: { clock: Clock; prepare: Prepare; needsSenders: BundleOptions['needsSenders'] },
  node: Node,
  references: readonly BlockReference[],
  signal: AbortSignal,
): Sampling {
  const read: Sampling['read'] = async (verify) => {
    const plan: Capabilities = { ...(await prepare(node, node.rpc.patient, signal)), traces: 'none' };
    const head = parseHeader(await node.rpc.call('eth_getBlockByNumber', ['latest', false], signal));
    const from = Math.max(1, head.number - SAMPLE_BLOCKS_MAX + 1);
    const newest = Array.from({ length: head.number - from + 1 }, (_, index) => from + index);
    const [asked] = references;
    const isOlder = typeof asked === 'number' && asked > 0 && asked < from;
    const wanted = [...(isOlder ? [asked] : []), ...newest].values();
    const endsAt = clock.now().getTime() + SAMPLE_MS_MAX;
    // One block in each request, because a node that lacks or spoils one block can still show the others.
    const fetchEach = async () => {
      for (const number of wanted) {
        if (clock.now().getTime() > endsAt) return;
        try {
          await fetchBundles(node.rpc, [number], plan, signal, (bundle, raw) =>
            verify(bundle.header, raw, 'matched', needsSenders?.(bundle)),
          );
        } catch (error) {
          if (!(error instanceof Fault)) throw error;
        }
      }
    };
    await Promise.all(Array.from({ length: SAMPLE_REQUESTS_MAX }, fetchEach));
  };
  return { node, read };
}
