/**
 * Measures following at the head: from just before a block with one token transfer is mined until its row is visible.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { percentile } from '../stage.ts';
import { type BenchChain, startBenchChain } from './chain.ts';
import { type Contestant, type Run, reachesBlock, startRun } from './contestant.ts';
import type { Figures } from './results.ts';

/** More blocks than Ponder leaves to its live part at the start. */
const HISTORY_BLOCKS = 50;
const WARM_UP_BLOCKS = 20;
const POLL_MS = 2;
/** Pause between a visible row and the next block, so that no contestant is measured during its cleanup. */
const PAUSE_MS = 50;
const START_MS_MAX = 60_000;
const CATCH_UP_BLOCKS_MAX = 30;
const CATCH_UP_MS = 2_000;
const ROW_MS_MAX = 10_000;

/**
 * Mines `blocks` blocks on a separate chain, one at a time. @throws Error when the contestant ends or a row does not
 * arrive in time.
 */
export async function followLive(contestant: Contestant, blocks: number): Promise<Figures> {
  await using chain = await startBenchChain(HISTORY_BLOCKS);
  await using run = await startRun(contestant, { chain, startBlock: 1, heads: 'WebSocket' });
  if (!(await reachesBlock(run, 1, { pollMs: POLL_MS, timeoutMs: START_MS_MAX }))) {
    throw new Error(`no rows in ${START_MS_MAX / 1000} s`);
  }
  await catchUp(run, chain);
  const times: number[] = [];
  for (let index = 0; index < WARM_UP_BLOCKS + blocks; index += 1) {
    await delay(PAUSE_MS);
    const { block, minedAt } = await chain.mineTransfer();
    if (!(await reachesBlock(run, block, { pollMs: POLL_MS, timeoutMs: ROW_MS_MAX }))) {
      throw new Error(`block ${index + 1} was not seen in ${ROW_MS_MAX / 1000} s`);
    }
    if (index >= WARM_UP_BLOCKS) times.push(performance.now() - minedAt);
  }
  const sorted = times.sort((one, other) => one - other);
  return {
    p50Ms: percentile(sorted, 0.5),
    p90Ms: percentile(sorted, 0.9),
    p99Ms: percentile(sorted, 0.99),
    maxMs: percentile(sorted, 1),
    ...(await run.checkRows()),
  };
}

/** Mines until a new block is stored, because a contestant misses blocks before its socket is open. */
async function catchUp(run: Run, chain: BenchChain): Promise<void> {
  for (let tries = 0; tries < CATCH_UP_BLOCKS_MAX; tries += 1) {
    const { block } = await chain.mineTransfer();
    if (await reachesBlock(run, block, { pollMs: POLL_MS, timeoutMs: CATCH_UP_MS })) return;
  }
  throw new Error(`none of ${CATCH_UP_BLOCKS_MAX} new blocks was seen`);
}
