/**
 * Reports how far the follower is behind the head, and how long the backfill will take.
 */
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { createProgressRate, type ProgressRate } from '../core/progress-rate.ts';

export type BackfillProgress = {
  /** The newest block that is stored. */
  block: number;
  head: number;
  /** The stored share, 0 to 1, of the blocks between the start of the backfill and the current head. */
  share: number;
  blocksPerSecond: number;
  transfersPerSecond: number;
  /** Undefined while the rate is 0. */
  secondsLeft: number | undefined;
};

/** Shows progress. */
export type BackfillDisplay = {
  show(progress: BackfillProgress): void;
  /** Called when the head is reached. */
  end(): void;
};

export type Backfill = {
  /**
   * Call after each commit with its newest block, the head, and the numbers of committed blocks and transfers. Returns
   * whether the commit is part of a backfill.
   */
  advance(commit: { block: number; head: number; blocks: number; transfers: number }): boolean;
};

/** A follower that is fewer blocks behind has just missed a few heads. */
const BEHIND_BLOCKS_MIN = 20;

type Run = { from: number; startedMs: number; blocks: ProgressRate; transfers: ProgressRate; count: number };

export function createBackfill(options: { clock: Clock; log: Log; display: BackfillDisplay }): Backfill {
  const { clock, log, display } = options;
  let run: Run | undefined;

  return {
    advance({ block, head, blocks, transfers }) {
      if (run === undefined) {
        if (head - block < BEHIND_BLOCKS_MIN) return false;
        const startedMs = clock.steadyMs();
        run = {
          from: block,
          startedMs,
          blocks: createProgressRate(clock),
          transfers: createProgressRate(clock),
          count: 0,
        };
        log.info({ block, head }, 'backfill.started');
        return true;
      }
      run.blocks.add(blocks);
      run.transfers.add(transfers);
      run.count += transfers;
      if (block < head) {
        display.show(progressOf(run, block, head));
        return true;
      }
      display.end();
      const seconds = (clock.steadyMs() - run.startedMs) / 1000;
      log.info({ blocks: block - run.from, transfers: run.count, seconds, head }, 'backfill.done');
      run = undefined;
      return true;
    },
  };
}

function progressOf(run: Run, block: number, head: number): BackfillProgress {
  const blocksPerSecond = run.blocks.perSecond();
  return {
    block,
    head,
    share: (block - run.from) / (head - run.from),
    blocksPerSecond,
    transfersPerSecond: run.transfers.perSecond(),
    secondsLeft: blocksPerSecond === 0 ? undefined : (head - block) / blocksPerSecond,
  };
}

/** How often progress is logged. */
const LINE_MS = 10_000;

/** Logs progress every 10 seconds. */
export function logDisplay(clock: Clock, log: Log): BackfillDisplay {
  let shownMs = clock.steadyMs();
  return {
    show(progress) {
      const nowMs = clock.steadyMs();
      if (nowMs - shownMs < LINE_MS) return;
      shownMs = nowMs;
      const { block, head, share, blocksPerSecond, transfersPerSecond, secondsLeft } = progress;
      const fields = { block, head, percent: Number((share * 100).toFixed(1)) };
      const rates = {
        blocksPerSecond: Math.round(blocksPerSecond),
        transfersPerSecond: Math.round(transfersPerSecond),
      };
      const left = secondsLeft === undefined ? {} : { secondsLeft: Math.round(secondsLeft) };
      log.info({ ...fields, ...rates, ...left }, 'backfill.progress');
    },
    end() {},
  };
}
