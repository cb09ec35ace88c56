/**
 * Back-fill: from the start of the process until the transfers of all blocks are in the database.
 */
import type { BenchChain } from './chain.ts';
import { type Contestant, startRun, waitForBlock } from './contestant.ts';

export type BackfillRun = {
  seconds: number;
  /** From the first rows that were seen; start-up is not in it. */
  secondsFromFirstRows: number;
  transfersPerSecond: number;
  cpuSeconds: number;
  peakMiB: number;
  transfers: number;
  rows: number;
  lost: number;
  extra: number;
};

const POLL_MS = 20;
const USAGE_MS = 250;
const RUN_MS_MAX = 300_000;

/** Runs the contestant over the newest `blocks` blocks. @throws Error when it ends or does not get there in time. */
export async function backfill(
  contestant: Contestant,
  { chain, blocks }: { chain: BenchChain; blocks: number },
): Promise<BackfillRun> {
  const head = chain.head();
  await using run = await startRun(contestant, { chain, startBlock: head - blocks + 1 });
  let firstRowsAt: number | undefined;
  const sampler = setInterval(() => run.usage(), USAGE_MS);
  try {
    await waitForBlock(run, head, {
      pollMs: POLL_MS,
      timeoutMs: RUN_MS_MAX,
      look: () => (firstRowsAt ??= performance.now()),
    });
  } finally {
    clearInterval(sampler);
  }
  const doneAt = performance.now();
  const usage = run.usage();
  const found = await run.checkRows();
  const seconds = (doneAt - run.startedAt) / 1000;
  return {
    seconds: round(seconds),
    secondsFromFirstRows: round((doneAt - (firstRowsAt ?? doneAt)) / 1000),
    transfersPerSecond: Math.round(found.transfers / seconds),
    cpuSeconds: round(usage.cpuSeconds),
    peakMiB: usage.peakMiB,
    ...found,
  };
}

function round(value: number): number {
  return Number(value.toFixed(2));
}
