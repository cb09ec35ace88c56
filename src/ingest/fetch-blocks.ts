/**
 * Blocks in one request whose answers are bounded, however large the blocks turn out to be.
 */
import type { Bundle } from '../chain/blocks/bundle.ts';
import type { BundleOptions } from '../chain/nodes/fetch.ts';
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { startAbort } from '../core/abort.ts';
import { Fault } from '../core/fault.ts';
import type { BlockReference } from '../domain/block.ts';

/** The blocks, and how many bytes of JSON they came in. */
type FetchedBlocks = { bundles: Bundle[]; bytes: number };

/** Of several blocks: many times what a request is meant to bring, and a share of the memory of an ordinary backfill. */
export const REQUEST_BYTES_MAX = 16 * 1024 * 1024;

/**
 * The blocks, or 'too large': several whose answers exceed REQUEST_BYTES_MAX together are broken off there, which is no
 * failure of the node, and are to be asked for one by one. One block is as large as it is, where nothing else is asked for
 * beside it.
 * @throws Fault when no node can give them.
 */
export async function fetchBlocks(
  nodes: Pick<ChainNodes, 'bundles'>,
  references: readonly BlockReference[],
  signal: AbortSignal,
  { isAlone = true, ...options }: Omit<BundleOptions, 'onBytes'> & { isAlone?: boolean } = {},
): Promise<FetchedBlocks | 'too large'> {
  const work = startAbort(signal);
  let bytes = 0;
  const isBounded = references.length > 1 || !isAlone;
  const isTooLarge = () => isBounded && bytes > REQUEST_BYTES_MAX;
  const onBytes = (more: number) => {
    bytes += more;
    // An aborted request doesn't count as an error of the node, and no other node is asked.
    if (isTooLarge()) work.abort();
  };
  try {
    const bundles = await nodes.bundles(references, work.signal, { ...options, onBytes });
    return { bundles, bytes };
  } catch (error) {
    if (error instanceof Fault && isTooLarge() && !signal.aborted) return 'too large';
    throw error;
  } finally {
    work.release();
  }
}
