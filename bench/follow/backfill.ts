/**
 * Measures a backfill: from the start of the process until the transfers of all blocks are in the database.
 */
import { cpuSecondsOf } from '../program.ts';
import type { BenchChain } from './chain.ts';
import { type Contestant, reachesBlock, startRun } from './contestant.ts';
import type { Figures } from './results.ts';

const POLL_MS = 20;
const USAGE_MS = 250;
/** The slowest contestant takes less than half of this time. */
const RUN_MS_MAX = { start: 60_000, perBlock: 120 };

/** Runs the contestant over the newest `blocks` blocks. @throws Error when it ends or does not finish in time. */
export async function backfill(
  contestant: Contestant,
  { chain, blocks }: { chain: BenchChain; blocks: number },
): Promise<Figures> {
  const head = chain.head();
  const nodeCpuSeconds = cpuSecondsOf(chain.pid);
  await using run = await startRun(contestant, { chain, startBlock: head - blocks + 1, heads: 'polled' });
  let firstRowsAt: number | undefined;
  const sampler = setInterval(() => run.usage(), USAGE_MS);
  try {
    const timeoutMs = RUN_MS_MAX.start + RUN_MS_MAX.perBlock * blocks;
    const onRows = () => (firstRowsAt ??= performance.now());
    if (!(await reachesBlock(run, head, { pollMs: POLL_MS, timeoutMs, onRows }))) {
      throw new Error(`at block ${await run.newestBlock()} of ${head} after ${timeoutMs / 1000} s`);
    }
  } finally {
    clearInterval(sampler);
  }
  const doneAt = performance.now();
  const usage = run.usage();
  const found = { ...(await run.checkRows()), ...(await run.checkFurther()) };
  const seconds = (doneAt - run.startedAt) / 1000;
  return {
    seconds: round(seconds),
    // Excludes the start of the process.
    secondsFromFirstRows: round((doneAt - (firstRowsAt ?? doneAt)) / 1000),
    transfersPerSecond: Math.round(found.transfers / seconds),
    cpuSeconds: round(usage.cpuSeconds),
    nodeCpuSeconds: round(cpuSecondsOf(chain.pid) - nodeCpuSeconds),
    peakMiB: usage.peakMiB,
    ...found,
  };
}

function round(value: number): number {
  return Number(value.toFixed(2));
}
