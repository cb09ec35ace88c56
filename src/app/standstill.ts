/**
 * Notices that the chain stands still: the nodes answer, and name no new block for much longer than usual. Either the chain has
 * stopped, or all nodes are stuck at the same block.
 */
import type { Clock } from '../core/clock.ts';
import { measurePace, PACE_BLOCKS } from '../store/blocks/block-time.ts';
import type { findTipTimes } from '../store/blocks/blocks.ts';
import type { Db } from '../store/db/db.ts';
import type { Trouble } from './deployment-status.ts';
import { createLastRead } from './last-read.ts';

type Tip = Awaited<ReturnType<typeof findTipTimes>>;

type Standstill = {
  /** `head`: the newest block that the nodes name now; undefined while too few of them answer. */
  find(tip: Tip, head: number | undefined): Promise<Trouble | undefined>;
};

/** Shorter pauses are normal on any chain. */
export const STILL_MS_MIN = 60_000;
/** Block times without a block after which the chain stands still: on Ethereum, four minutes. */
const STILL_BLOCK_TIMES = 20;
/** A chain that paused for that long more often makes blocks on demand, as a local chain or a rollup with few users does. */
const PAUSES_MAX = 2;
/** With less history and fewer blocks, the pace of the chain is unknown: blocks on demand may have come evenly for minutes. */
const HISTORY_MS_MIN = 3_600_000;

export function createStandstill(
  database: Db,
  { clock, onBug }: { clock: Clock; onBug(error: unknown): void },
): Standstill {
  let tipNumber = -1;
  /** When this process first saw the newest block. A step of the clock must not make it older. */
  let seen: { number: number; ms: number } | undefined;
  let known: { tipNumber: number; pace: Awaited<ReturnType<typeof measurePace>> } | undefined;
  const limits = { pauseMsMin: STILL_MS_MIN, pauseBlockTimes: STILL_BLOCK_TIMES };
  const readPace = createLastRead(
    clock,
    async () => ({ tipNumber, pace: await measurePace(database, limits) }),
    onBug,
  );

  /** The pace of the chain up to its newest block, which is measured once, because it may stay the newest for days. */
  async function paceUpTo(number: number) {
    tipNumber = number;
    if (known?.tipNumber !== number) known = await readPace();
    return known?.tipNumber === number ? known.pace : undefined;
  }

  return {
    async find(tip, head) {
      if (tip === undefined || head === undefined) return undefined;
      if (seen?.number !== tip.number) seen = { number: tip.number, ms: clock.steadyMs() };
      if (head > tip.number) return undefined;
      // A block that was stored late, for example after an outage of this deployment, gets the same time for a successor.
      const sinceMs = clock.now().getTime() - Math.max(tip.minedAt.getTime(), tip.storedAt.getTime());
      const quietMs = Math.min(sinceMs, clock.steadyMs() - seen.ms);
      if (quietMs < STILL_MS_MIN) return undefined;
      const pace = await paceUpTo(tip.number);
      if (pace === undefined || pace.pauses > PAUSES_MAX) return undefined;
      if (pace.historyMs < HISTORY_MS_MIN && pace.blocks < PACE_BLOCKS) return undefined;
      if (quietMs < STILL_BLOCK_TIMES * pace.blockMs) return undefined;
      return {
        state: 'degraded',
        message: `the chain stands still: the nodes answer, but name no block above ${tip.number}, and usually there ${rateOf(pace.blockMs)}. Compare with a block explorer: if the chain goes on, these nodes are stuck, so repair them or add others to chain.rpc; if not, following goes on with its next block`,
        since: tip.minedAt,
      };
    },
  };
}

/** Headers have whole seconds. */
const rateOf = (blockMs: number) =>
  blockMs < 1_000 ? 'are several a second' : `is one every ${blockMs / 1_000} s`;
