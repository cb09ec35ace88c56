/**
 * The last 24 hours of pairs that are new here: blocks from the first followed one downwards, each proved and linked to the
 * one above, beside the follower. Newest first, so that what is missing is always the beginning of the window.
 */
import type { Bundle } from '../../chain/blocks/bundle.ts';
import type { ChainNodes } from '../../chain/nodes/nodes.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { Step } from '../../core/loop.ts';
import type { ValuedPair } from '../../domain/pair.ts';
import { lockCommits } from '../../store/blocks/blocks.ts';
import type { Database } from '../../store/db/db.ts';
import { deletePairStatesBetween } from '../../store/market/market.ts';
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

/** Blocks of one step, and how long it may take before the next ones are smaller. */
const STEP_BLOCKS_MAX = 30;
const STEP_MS_TARGET = 500;
/** How often progress is logged. */
const LINE_MS = 10_000;

/**
 * Reads one batch of blocks of the past; where it is, is stored with what was found. The step throws a Fault when no node
 * can give them, or they do not lead to what is stored: then the chain has forked, and the follower finds out.
 */
export function createPairBackfill({ database, nodes, clock, log, pairs }: PairBackfillOptions): Step {
  const ids = pairs.map(({ id }) => id);
  let stepBlocks = 1;
  let toldAt = clock.now().getTime();

  return async (signal) => {
    if (ids.length === 0) return 'idle';
    const work = await findBackfill(database, ids);
    if (work === undefined) return 'idle';
    const startedAt = clock.now().getTime();
    const lowest = Math.max(work.lowest, work.number - stepBlocks + 1);
    const numbers = Array.from({ length: work.number - lowest + 1 }, (_, index) => lowest + index);
    const wanted = stepBlocks;
    // After a Fault one block only, which any node may have; and after too many bytes.
    stepBlocks = 1;
    const fetched = await fetchBlocks(nodes, numbers, signal, { parts: 'without traces' });
    if (fetched === 'too large') return 'worked';
    const { bundles } = fetched;
    requireLinked(bundles, work);
    await store(bundles, work);
    const tookMs = clock.now().getTime() - startedAt;
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
    const isOurs = await database.transaction(async (tx) => {
      await lockCommits(tx);
      const next = isDone ? undefined : { number: number - 1, hash: parentHash };
      if (!(await advanceBackfill(tx, work, next))) return false;
      // What is there of an earlier time, or of a branch that died before anybody followed it, is replaced.
      await deleteSwapsBetween(tx, work.pairIds, { from: number, to: work.number });
      await deletePairStatesBetween(tx, work.pairIds, { from: number, to: work.number });
      await writePairEvents(tx, members, blocks);
      return true;
    });
    if (isOurs) tell(work.pairIds, number, minedAt, isDone);
  }

  function tell(pairIds: readonly number[], block: number, minedAt: Date, isDone: boolean): void {
    const nowMs = clock.now().getTime();
    if (!isDone && nowMs - toldAt < LINE_MS) return;
    toldAt = nowMs;
    const hours = Number(((nowMs - minedAt.getTime()) / 3_600_000).toFixed(1));
    log.info({ pairs: pairIds, block, hours }, isDone ? 'pairs.backfill_done' : 'pairs.backfill_progress');
  }
}

function requireLinked(bundles: readonly Bundle[], { number, hash }: PairBackfill): void {
  let wanted = hash;
  for (const { header } of bundles.toReversed()) {
    if (header.hash !== wanted)
      throw new Fault(
        'unavailable',
        `block ${header.number} is ${header.hash}, and not ${wanted} below the followed block ${number + 1}`,
      );
    wanted = header.parentHash;
  }
}
