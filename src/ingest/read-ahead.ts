/**
 * Blocks fetched, proved and read before the follower asks for them, so that node, proof and database work at the same
 * time. Requests are small, because what a request brings is garbage as soon as its transfers are read; commits are
 * large, because each costs the database the same dozen statements.
 */
import type { BlockReference, Bundle } from '../chain/bundle.ts';
import type { ChainNodes } from '../chain/nodes.ts';
import { startAbort, type WorkAbort } from '../core/abort.ts';
import type { BlockHeader, Transfer } from '../core/block.ts';
import type { Clock } from '../core/clock.ts';
import type { Hash } from '../core/hex.ts';
import type { PairEvents } from '../core/pair.ts';
import type { Activity } from './activities.ts';
import { extractTransfers } from './extract.ts';

/** A block as it is committed. */
export type ReadBlock = {
  header: BlockHeader;
  proved: boolean;
  traced: boolean;
  transfers: Transfer[];
  pairEvents: PairEvents[];
  /** What the rules of points ask for. */
  activities: Activity[];
};

/** What is taken out of a block for the ledgers; the block itself is garbage then. */
export type Extract = {
  pairEvents(bundle: Bundle): PairEvents[];
  activities(bundle: Bundle): Activity[];
};

/** For who needs the transfers alone. */
export const extractNothing: Extract = { pairEvents: () => [], activities: () => [] };

/** The last block to be read; without its hash it is asked for by number, as history is. */
type Head = { number: number; hash: Hash | undefined };

export type ReadAheadOptions = { nodes: Pick<ChainNodes, 'bundles'>; clock: Clock; extract: Extract };

export type ReadAhead = {
  /**
   * The blocks from this height on, in order: at least one, none above the head. Those after them are begun.
   * @throws Fault of the nodes; the next call then asks for one block only, which any node may have.
   */
  next(from: number, head: Head, signal: AbortSignal): Promise<ReadBlock[]>;
  /** Forgets all that was begun: after a fork. */
  drop(): void;
};

/** Requests on their way at once; more only queue at the node. */
const REQUESTS_MAX = 4;
/** A request that takes longer than this makes the next ones smaller. */
const REQUEST_MS_TARGET = 500;
/** Transactions, receipts and logs of one request, about 0.8 KiB of JSON each. */
const REQUEST_ITEMS_TARGET = 1200;
/** Two calls for each, and one batch of JSON-RPC for all. */
const REQUEST_BLOCKS_MAX = 30;
/** Requests that are on their way or wait to be committed: bounds memory where the database is slower than the node. */
const AHEAD_MAX = 12;
/** Blocks and transfers of one commit: bounds the work that is lost at a crash, and the statement. */
const COMMIT_BLOCKS_MAX = 100;
const COMMIT_TRANSFERS_MAX = 5_000;
/** A smaller commit waits so long for blocks that are on their way: each costs the same dozen statements. */
const COMMIT_WAIT_MS = 250;

type Request = { from: number; to: number; result: Promise<ReadBlock[]>; blocks: ReadBlock[] | undefined };

/** Requests that follow one another, of which the first are handed out next. */
export function createReadAhead({ nodes, clock, extract }: ReadAheadOptions): ReadAhead {
  let requests: Request[] = [];
  let requestBlocks = 1;
  let abort: WorkAbort | undefined;

  function drop(): void {
    abort?.abort();
    abort?.release();
    abort = undefined;
    requests = [];
  }

  /** Begins what may be begun from here on; until a request has shown how long it takes, one only. */
  function fill(from: number, head: Head, own: WorkAbort): void {
    for (;;) {
      const underWay = requests.filter(({ blocks }) => blocks === undefined).length;
      const isFull = underWay >= (requestBlocks === 1 ? 1 : REQUESTS_MAX) || requests.length >= AHEAD_MAX;
      const next = (requests.at(-1)?.to ?? from - 1) + 1;
      if (own.signal.aborted || isFull || next > head.number) return;
      begin(next, Math.min(next + requestBlocks - 1, head.number));
    }

    function begin(first: number, last: number): void {
      const result = read(referencesOf(first, last, head), own.signal);
      const request: Request = { from: first, to: last, result, blocks: undefined };
      requests.push(request);
      const onResult = (blocks: ReadBlock[]) => {
        request.blocks = blocks;
        fill(last + 1, head, own);
      };
      // Whoever takes it hears of its Fault; one that is dropped has nobody to tell.
      result.then(onResult, () => {});
    }
  }

  async function read(references: readonly BlockReference[], signal: AbortSignal): Promise<ReadBlock[]> {
    const startedAt = clock.now().getTime();
    const bundles = await nodes.bundles(references, signal);
    adapt(clock.now().getTime() - startedAt, bundles);
    return bundles.map((bundle) => ({
      header: bundle.header,
      proved: bundle.proved,
      traced: bundle.traced,
      transfers: extractTransfers(bundle),
      pairEvents: extract.pairEvents(bundle),
      activities: extract.activities(bundle),
    }));
  }

  /** At most twice as many blocks as this time, and as many as meet both targets. */
  function adapt(tookMs: number, bundles: readonly Bundle[]): void {
    const room = Math.min(
      REQUEST_MS_TARGET / Math.max(1, tookMs),
      REQUEST_ITEMS_TARGET / itemsOf(bundles),
      2,
    );
    requestBlocks = Math.max(1, Math.min(Math.floor(bundles.length * room), REQUEST_BLOCKS_MAX));
  }

  /** The first request's blocks, and those after them that come soon, as far as they fit into one commit. */
  async function take(signal: AbortSignal): Promise<ReadBlock[]> {
    const taken = (await requests[0]?.result) ?? [];
    requests.shift();
    if (requests.length === 0) return taken;
    const wait = startAbort(signal);
    const isOver = clock.wait(COMMIT_WAIT_MS, wait.signal).then(() => undefined);
    try {
      for (;;) {
        const [next] = requests;
        if (next === undefined || !fits(taken, next)) return taken;
        // Whoever takes it first hears of its Fault.
        const more = next.blocks ?? (await Promise.race([next.result.catch(() => undefined), isOver]));
        if (more === undefined || countTransfers(taken) + countTransfers(more) > COMMIT_TRANSFERS_MAX)
          return taken;
        taken.push(...more);
        requests.shift();
      }
    } finally {
      wait.abort();
      wait.release();
    }
  }

  return {
    drop,
    async next(from, head, signal) {
      if (requests.length > 0 && requests[0]?.from !== from) drop();
      abort ??= startAbort(signal);
      fill(from, head, abort);
      try {
        const blocks = await take(signal);
        fill(from + blocks.length, head, abort);
        return blocks;
      } catch (error) {
        drop();
        requestBlocks = 1;
        throw error;
      }
    },
  };
}

/** The head by its hash, so that "not here yet" is an error; history by number. */
function referencesOf(from: number, to: number, head: Head): BlockReference[] {
  return Array.from({ length: to - from + 1 }, (_, index) =>
    from + index === head.number && head.hash !== undefined ? head.hash : from + index,
  );
}

function itemsOf(bundles: readonly Bundle[]): number {
  let items = bundles.length;
  for (const { transactions } of bundles) {
    for (const { logs } of transactions) items += 2 + logs.length;
  }
  return items;
}

/** Whether a commit has room for further blocks, if they hold as much as those before them. */
function fits(taken: readonly ReadBlock[], { from, to }: Pick<Request, 'from' | 'to'>): boolean {
  const blockCount = taken.length + to - from + 1;
  const transferCount = (countTransfers(taken) / Math.max(1, taken.length)) * blockCount;
  return blockCount <= COMMIT_BLOCKS_MAX && transferCount <= COMMIT_TRANSFERS_MAX;
}

const countTransfers = (blocks: readonly ReadBlock[]): number =>
  blocks.reduce((sum, { transfers }) => sum + transfers.length, 0);
