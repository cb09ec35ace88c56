/**
 * The newest final block: reorgs from below it are not followed.
 */
import type { Finalized } from '../chain/nodes/agreement.ts';
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Clock } from '../core/clock.ts';
import type { Metrics } from '../core/metrics.ts';
import type { BlockId } from '../domain/block.ts';
import { findChain, findKnownHash, raiseFinalized } from '../store/blocks/blocks.ts';
import type { Database } from '../store/db/db.ts';

type FinalityOptions = {
  database: Database;
  nodes: Pick<ChainNodes, 'finalized' | 'corroborated'>;
  clock: Clock;
  metrics: Pick<Metrics, 'chainBlockNumber'>;
  /** Blocks this deep below the tip are final as long as no quorum of the nodes has named a `finalized` block. */
  finalityDepth: number;
};

type Finality = {
  /** Continues with the stored number. */
  resume(finalizedNumber: number): void;
  number(): number;
  /** The newest block that is final while this is the head, stored or not. */
  below(head: number): number;
  /**
   * Asks the nodes again if the last answer is older than 10 seconds or than the last 16 blocks, and waits for slow ones: without an answer, a reorg can't be followed.
   * @throws Fault of the nodes
   */
  refresh(tip: BlockId, signal: AbortSignal): Promise<void>;
  /** The same, but nodes that can't answer are asked once in 10 seconds, because blocks would wait for them each time. */
  keepUp(tip: BlockId, signal: AbortSignal): Promise<void>;
};

/** How often the nodes are asked for the final block. */
const REFRESH_MS = 10_000;
/** After so many blocks, such as those of a backfill, the last answer may be too old for a reorg. */
const REFRESH_BLOCKS = 16;
/** As long as a request to a node may take. */
const SLOW_NODES_MS = 30_000;

export function createFinality({
  database,
  nodes,
  clock,
  metrics,
  finalityDepth,
}: FinalityOptions): Finality {
  let [askedMs, refreshedMs] = [Number.NEGATIVE_INFINITY, Number.NEGATIVE_INFINITY];
  /** The tip when the nodes answered last. */
  let refreshedNumber = 0;
  let finalizedNumber = 0;
  /** What the nodes named last. */
  let namedNumber = Number.POSITIVE_INFINITY;
  /** Whether a quorum has named a final block since the start. */
  let hasTag = false;

  /**
   * The newest block that is final by what the nodes name, or 0. A block that they tag must be stored; `finalityDepth` below the
   * tip is a safe substitute for one that is newer than the tip. If the nodes have no tag, the depth decides. It doesn't if the
   * tag is only missing at the moment, and finalizes nothing above the tag of a node that has one.
   */
  async function findFinal(named: Finalized | undefined, tip: BlockId, signal: AbortSignal): Promise<number> {
    const deep = { number: tip.number - finalityDepth, hash: undefined };
    if (named === undefined || named.byFew === true)
      return hasTag ? 0 : Math.min(deep.number, named?.number ?? deep.number);
    hasTag = true;
    const { number, hash } = named.number > tip.number ? deep : named;
    const known = await findKnownHash(database, number);
    const isStored =
      known !== undefined && known === (hash ?? (await nodes.corroborated(number, signal))?.hash);
    return isStored ? number : 0;
  }

  /** The final block never moves back, even if a node's tag does. */
  async function refresh(tip: BlockId, signal: AbortSignal, patienceMs?: number): Promise<void> {
    const nowMs = clock.steadyMs();
    if (nowMs - refreshedMs < REFRESH_MS && tip.number - refreshedNumber < REFRESH_BLOCKS) return;
    askedMs = nowMs;
    const named = await nodes.finalized(signal, patienceMs);
    namedNumber = named?.number ?? namedNumber;
    const found = await findFinal(named, tip, signal);
    // Another process may have found a newer one while this process stood by.
    const stored = (await findChain(database))?.finalizedNumber ?? 0;
    finalizedNumber = Math.max(finalizedNumber, stored, found);
    if (finalizedNumber > stored) await raiseFinalized(database, finalizedNumber);
    [refreshedMs, refreshedNumber] = [nowMs, tip.number];
    metrics.chainBlockNumber.set({ stage: 'finalized' }, finalizedNumber);
  }

  return {
    resume(number) {
      finalizedNumber = number;
    },
    number: () => finalizedNumber,
    below: (head) => Math.min(head - finalityDepth, namedNumber),
    refresh: (tip, signal) => refresh(tip, signal, SLOW_NODES_MS),
    async keepUp(tip, signal) {
      if (clock.steadyMs() - askedMs >= REFRESH_MS) await refresh(tip, signal);
    },
  };
}
