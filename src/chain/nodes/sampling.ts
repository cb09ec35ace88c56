/**
 * Recent blocks of one node, from which the calibration observes the checks that the chain honors.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { BlockReference } from '../../domain/block.ts';
import { fetchBundles } from '../blocks/bundle.ts';
import type { Sampling } from '../proof/verifier.ts';
import { parseHeader } from '../rpc/parse.ts';
import type { LearningRpc } from '../rpc/rpc.ts';
import type { Node } from './node.ts';
import type { Capabilities } from './probe.ts';

type Prepare = (node: Node, rpc: LearningRpc, signal: AbortSignal) => Promise<Capabilities>;

/** Recent blocks from which the checks of a chain are observed. */
const SAMPLE_BLOCKS_MAX = 20;
/** Of those at once: their answers are in memory together. */
const SAMPLE_REQUESTS_MAX = 4;
/** After this no more are requested, so that a slow node delays the start only this long. */
const SAMPLE_MS_MAX = 5_000;

/**
 * The node's newest blocks, as many as it gives, and the number of the first one requested. Leaves out the
 * genesis block, which is built differently.
 */
export function sampleOf(
  { clock, prepare }: { clock: Clock; prepare: Prepare },
  node: Node,
  references: readonly BlockReference[],
  signal: AbortSignal,
): Sampling {
  return async (verify) => {
    const plan: Capabilities = { ...(await prepare(node, node.rpc.patient, signal)), traces: 'none' };
    const head = parseHeader(await node.rpc.call('eth_getBlockByNumber', ['latest', false], signal));
    const from = Math.max(1, head.number - SAMPLE_BLOCKS_MAX + 1);
    const newest = Array.from({ length: head.number - from + 1 }, (_, index) => from + index);
    const [asked] = references;
    const isOlder = typeof asked === 'number' && asked > 0 && asked < from;
    const wanted = [...(isOlder ? [asked] : []), ...newest].values();
    const endsAt = clock.now().getTime() + SAMPLE_MS_MAX;
    // One by one: a node that lacks or spoils one of them can still show the others.
    const fetchEach = async () => {
      for (const number of wanted) {
        if (clock.now().getTime() > endsAt) return;
        try {
          await fetchBundles(node.rpc, [number], plan, signal, verify);
        } catch (error) {
          if (!(error instanceof Fault)) throw error;
        }
      }
    };
    await Promise.all(Array.from({ length: SAMPLE_REQUESTS_MAX }, fetchEach));
  };
}
