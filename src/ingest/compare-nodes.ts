/**
 * Compares the nodes with the stored blocks, so that a node of another chain is found before it is asked for blocks.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { LASTING_MS } from '../chain/nodes/progress.ts';
import type { Clock } from '../core/clock.ts';
import { findBlockHash, findFirst, findTip } from '../store/blocks/blocks.ts';
import type { Database } from '../store/db/db.ts';

type NodeComparisonOptions = { database: Database; nodes: Pick<ChainNodes, 'compareWith'>; clock: Clock };

/** How often nodes that vote against the quorum are compared with the stored blocks. */
const COMPARE_MS = 1_000;

/**
 * Compares at most once a second: nodes that vote against the quorum, or all nodes while the follower holds. `heldSinceMs`
 * is the time since when it holds, by the steady clock.
 */
export function createNodeComparison({
  database,
  nodes,
  clock,
}: NodeComparisonOptions): (heldSinceMs: number | undefined, signal: AbortSignal) => Promise<void> {
  let comparedMs = Number.NEGATIVE_INFINITY;
  return async (heldSinceMs, signal) => {
    const nowMs = clock.steadyMs();
    if (nowMs - comparedMs < COMPARE_MS) return;
    comparedMs = nowMs;
    const readStored = async () => {
      const [first, tip] = [await findFirst(database), await findTip(database)];
      const hashAt = (number: number) => findBlockHash(database, number);
      const isLeft = heldSinceMs !== undefined && clock.steadyMs() - heldSinceMs >= LASTING_MS;
      return first && tip && { from: first.number, to: tip.number, hashAt, isLeft };
    };
    await nodes.compareWith(readStored, signal, heldSinceMs === undefined ? 'doubtful' : 'all');
  };
}
