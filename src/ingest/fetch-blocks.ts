/**
 * Fetches blocks in one request, and limits the size of the answers.
 */
import type { Bundle } from '../chain/blocks/bundle.ts';
import type { BundleOptions } from '../chain/nodes/fetch.ts';
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { startAbort } from '../core/abort.ts';
import { Fault } from '../core/fault.ts';
import type { BlockReference } from '../domain/block.ts';

/** The blocks, and how many bytes of JSON they came in. */
type FetchedBlocks = { bundles: Bundle[]; bytes: number };

/** Limits a request for several blocks. Many times the target size of a request, and a part of an ordinary backfill's memory. */
export const REQUEST_BYTES_MAX = 16 * 1024 * 1024;

/**
 * Returns the blocks. Returns 'too large' if the answers for several blocks exceed REQUEST_BYTES_MAX together; then the
 * caller must request them one by one. That doesn't count as an error of the node. A single block has no limit while no other
 * request is under way (`isAlone`).
 * @throws Fault when no node can give the blocks.
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
    // An aborted request doesn't count as an error of the node, and isn't repeated at another node.
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
