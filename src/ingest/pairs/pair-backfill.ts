/**
 * Backfills the last 24 hours of new pairs while the follower runs. It reads blocks downwards from the first followed one,
 * each proved and linked to the one above. The newest blocks come first, so that only the beginning of the window is missing.
 */
import type { Bundle } from '../../chain/blocks/bundle.ts';
import type { ChainNodes } from '../../chain/nodes/nodes.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { Step } from '../../core/loop.ts';
import type { ValuedPair } from '../../domain/pair.ts';
import { lockCommits } from '../../store/blocks/commit-lock.ts';
import type { Database, Tx } from '../../store/db/db.ts';
import { deletePairStatesBetween, insertPairStates, listReadStates } from '../../store/market/pair-states.ts';
import { advanceBackfill, findBackfill, type PairBackfill } from '../../store/market/pairs.ts';
import { deleteSwapsBetween } from '../../store/market/swaps.ts';
import { fetchBlocks } from '../fetch-blocks.ts';
import { writePairEvents } from './market.ts';
import { createPairReader } from './pair-events.ts';

type PairBackfillOptions = {
  database: Database;
  nodes: Pick<ChainNodes, 'bundles'>;
  clock: Clock;
  log: Log;
  pairs: readonly ValuedPair[];
};

/** Blocks of one step. A step that takes longer than the target makes the next ones smaller. */
const STEP_BLOCKS_MAX = 30;
const STEP_MS_TARGET = 500;
/** How often progress is logged. */
const LINE_MS = 10_000;

/**
 * A step that reads one batch of old blocks, and stores the position with the data. It throws a Fault when no node can give
 * the blocks, or when they do not link to the stored ones. The latter is a reorg, which the follower handles.
 */
export function createPairBackfill({ database, nodes, clock, log, pairs }: PairBackfillOptions): Step {
  const ids = pairs.map(({ id }) => id);
  let stepBlocks = 1;
  let loggedMs = clock.steadyMs();

  return async (signal) => {
    if (ids.length === 0) return 'idle';
    const work = await findBackfill(database, ids);
    if (work === undefined) return 'idle';
    const startedMs = clock.steadyMs();
    const lowest = Math.max(work.lowest, work.number - stepBlocks + 1);
    const numbers = Array.from({ length: work.number - lowest + 1 }, (_, index) => lowest + index);
    const wanted = stepBlocks;
    // After a Fault or too many bytes, read a single block, because nodes may have that one and lack others.
    stepBlocks = 1;
    const fetched = await fetchBlocks(nodes, numbers, signal, { parts: 'without traces' });
    if (fetched === 'too large') return 'worked';
    const { bundles } = fetched;
    requireLinked(bundles, work);
    await store(bundles, work);
    const tookMs = clock.steadyMs() - startedMs;
    const fitting = Math.floor(wanted * Math.min(2, STEP_MS_TARGET / Math.max(1, tookMs)));
    stepBlocks = Math.max(1, Math.min(fitting, STEP_BLOCKS_MAX));
    return 'worked';
  };

  async function store(bundles: readonly Bundle[], work: PairBackfill): Promise<void> {
    const [lowest] = bundles;
    if (lowest === undefined) return;
    const { number, parentHash, minedAt } = lowest.header;
    const isDone = minedAt <= work.until || number <= 1;
    const members = pairs.filter(({ id }) => work.pairIds.includes(id));
    const read = createPairReader(members);
    const blocks = bundles
      .filter(({ header }) => header.minedAt > work.until)
      .map((bundle) => ({ header: bundle.header, pairEvents: read(bundle) }));
    const isStored = await database.transaction(async (tx) => {
      await lockCommits(tx);
      const next = isDone ? undefined : { number: number - 1, hash: parentHash };
      if (!(await advanceBackfill(tx, work, next))) return false;
      await replaceRows(tx, members, blocks);
      return true;
    });
    if (isStored) logProgress(work.pairIds, number, minedAt, isDone);
  }

  function logProgress(pairIds: readonly number[], block: number, minedAt: Date, isDone: boolean): void {
    const nowMs = clock.steadyMs();
    if (!isDone && nowMs - loggedMs < LINE_MS) return;
    loggedMs = nowMs;
    const hours = Number(((clock.now().getTime() - minedAt.getTime()) / 3_600_000).toFixed(1));
    log.info({ pairs: pairIds, block, hours }, isDone ? 'pairs.backfill_done' : 'pairs.backfill_progress');
  }
}

/**
 * Replaces the rows of these blocks, which may be of an earlier backfill, or of a branch that was orphaned before the pair was
 * followed. Keeps the states that were read from contracts, because no event may lead to them.
 */
async function replaceRows(
  tx: Tx,
  pairs: readonly ValuedPair[],
  blocks: Parameters<typeof writePairEvents>[2],
): Promise<void> {
  const [from, to] = [blocks[0]?.header.number, blocks.at(-1)?.header.number];
  if (from === undefined || to === undefined) return;
  const ids = pairs.map(({ id }) => id);
  const read = await listReadStates(tx, ids, { from, to });
  await deleteSwapsBetween(tx, ids, { from, to });
  await deletePairStatesBetween(tx, ids, { from, to });
  await writePairEvents(tx, pairs, blocks);
  if (read.length > 0) await insertPairStates(tx, read);
}

function requireLinked(bundles: readonly Bundle[], { number, hash }: PairBackfill): void {
  let wanted = hash;
  for (const { header } of bundles.toReversed()) {
    if (header.hash !== wanted)
      throw new Fault(
        'unavailable',
        `block ${header.number} is ${header.hash}, but the followed block ${number + 1} descends from ${wanted}`,
      );
    wanted = header.parentHash;
  }
}
