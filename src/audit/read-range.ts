/**
 * Reads the blocks of a range from the nodes, and waits for a block that no node gives at first.
 */
import { Fault } from '../core/fault.ts';
import { createReadAhead } from '../ingest/read-ahead.ts';
import type { ReadBlock } from '../ingest/read-block.ts';

/** Waits before a block that no node gave is requested again. */
const RETRY_MS = [1_000, 2_000, 4_000];

/**
 * A function that returns the blocks from a number on, up to `to`; or the Fault if no node gives the first of them. It
 * waits only for the first block of a gap. @throws Fault `conflict`, and every Fault after the signal is aborted.
 */
export function createRangeReader(
  { to, ...options }: { to: number } & Omit<Parameters<typeof createReadAhead>[0], 'scrutinyOf'>,
  signal: AbortSignal,
): (from: number) => Promise<ReadBlock[] | Fault> {
  const readAhead = createReadAhead({ ...options, scrutinyOf: () => 'full' });
  let isWorthWaiting = true;

  return async (from) => {
    for (let attempt = 0; ; attempt += 1) {
      try {
        const blocks = await readAhead.next(from, { number: to, hash: undefined }, signal);
        isWorthWaiting = true;
        return blocks;
      } catch (error) {
        if (!(error instanceof Fault) || error.code === 'conflict' || signal.aborted) throw error;
        // The first Fault may concern any block of a batch. The next request is for this block only.
        if (attempt === 0) continue;
        const waitMs = isWorthWaiting ? RETRY_MS[attempt - 1] : undefined;
        if (waitMs === undefined) {
          isWorthWaiting = false;
          return error;
        }
        await options.clock.wait(waitMs, signal);
      }
    }
  };
}
