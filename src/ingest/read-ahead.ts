/**
 * Blocks fetched, proved and read before the follower asks for them, so that node, proof and database work at the same
 * time. How much at once adapts to time and to what the blocks hold.
 */
import type { BlockReference, Bundle } from '../chain/bundle.ts';
import type { ChainNodes } from '../chain/nodes.ts';
import { startAbort, type WorkAbort } from '../core/abort.ts';
import type { BlockHeader, Transfer } from '../core/block.ts';
import type { Clock } from '../core/clock.ts';
import { extractTransfers } from './extract.ts';

/** A block as it is committed. */
export type ReadBlock = { header: BlockHeader; proved: boolean; transfers: Transfer[] };

export type ReadAhead = {
  /**
   * The blocks from this height on, in order: at least one, none above the head. Those after them are begun.
   * @throws Fault of the nodes; the next call then asks for one block only, which any node may have.
   */
  next(from: number, head: BlockHeader, signal: AbortSignal): Promise<ReadBlock[]>;
  /** Forgets all that was begun: after a fork. */
  drop(): void;
};

/** Blocks of one request and one commit: bounds the work that is lost at a crash. */
const BATCH_BLOCKS_MAX = 100;
/** Requests on their way at once; more only queue at the node, and cost memory. */
const BATCHES_MAX = 4;
/** A request that takes longer than this makes the next ones smaller. */
const BATCH_MS_TARGET = 500;
/**
 * Transactions, receipts and logs of one request, about 0.7 KiB of JSON each: four times this is in memory at most,
 * and several times as large once it is parsed.
 */
const BATCH_ITEMS_TARGET = 3_000;

export type ReadAheadOptions = { nodes: Pick<ChainNodes, 'bundles'>; clock: Clock };

type Batch = { from: number; to: number; blocks: Promise<ReadBlock[]> };

/** Batches that follow one another, of which the first is handed out next. */
export function createReadAhead({ nodes, clock }: ReadAheadOptions): ReadAhead {
  let batches: Batch[] = [];
  let batchBlocks = 1;
  let abort: WorkAbort | undefined;

  function drop(): void {
    abort?.abort();
    abort?.release();
    abort = undefined;
    batches = [];
  }

  /** Begins what may be begun; until a request has shown how long it takes, one only. */
  function fill(from: number, head: BlockHeader, signal: AbortSignal): void {
    const parallel = batchBlocks === 1 ? 1 : BATCHES_MAX;
    for (;;) {
      const next = (batches.at(-1)?.to ?? from - 1) + 1;
      if (batches.length >= parallel || next > head.number) return;
      abort ??= startAbort(signal);
      const to = Math.min(next + batchBlocks - 1, head.number);
      const blocks = read(referencesOf(next, to, head), abort.signal);
      // Whoever takes the batch hears of its Fault; one that is dropped has nobody to tell.
      blocks.catch(() => {});
      batches.push({ from: next, to, blocks });
    }
  }

  async function read(references: readonly BlockReference[], signal: AbortSignal): Promise<ReadBlock[]> {
    const startedAt = clock.now().getTime();
    const bundles = await nodes.bundles(references, signal);
    adapt(clock.now().getTime() - startedAt, bundles);
    return bundles.map((bundle) => ({
      header: bundle.header,
      proved: bundle.proved,
      transfers: extractTransfers(bundle),
    }));
  }

  /** At most twice as many blocks as this time, and as many as meet both targets. */
  function adapt(tookMs: number, bundles: readonly Bundle[]): void {
    const room = Math.min(BATCH_MS_TARGET / Math.max(1, tookMs), BATCH_ITEMS_TARGET / itemsOf(bundles), 2);
    batchBlocks = Math.max(1, Math.min(Math.floor(bundles.length * room), BATCH_BLOCKS_MAX));
  }

  return {
    drop,
    async next(from, head, signal) {
      if (batches[0]?.from !== from) drop();
      fill(from, head, signal);
      const [batch] = batches;
      if (batch === undefined) return [];
      try {
        const blocks = await batch.blocks;
        batches.shift();
        fill(batch.to + 1, head, signal);
        return blocks;
      } catch (error) {
        drop();
        batchBlocks = 1;
        throw error;
      }
    },
  };
}

/** The head by its hash, so that "not here yet" is an error; history by number. */
function referencesOf(from: number, to: number, head: BlockHeader): BlockReference[] {
  return Array.from({ length: to - from + 1 }, (_, index) =>
    from + index === head.number ? head.hash : from + index,
  );
}

function itemsOf(bundles: readonly Bundle[]): number {
  let items = bundles.length;
  for (const { transactions } of bundles) {
    for (const { logs } of transactions) items += 2 + logs.length;
  }
  return items;
}
