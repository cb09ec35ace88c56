/**
 * Fetches, proves and reads blocks before the follower asks for them, so that node, proof and database work at the same
 * time. Requests are small, because the answer to a request is garbage as soon as its transfers are read. Commits are
 * large, because each costs the database the same dozen statements.
 */
import type { BundleOptions } from '../chain/nodes/fetch.ts';
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { startAbort, type WorkAbort } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { BlockReference } from '../domain/block.ts';
import { fetchBlocks, REQUEST_BYTES_MAX } from './fetch-blocks.ts';
import { type Extract, type ReadBlock, readBlock } from './read-block.ts';

/** The last block to read. Without its hash it is read by number, as history is. */
type Head = { number: number; hash: Hash | undefined };

type ReadAheadOptions = {
  nodes: Pick<ChainNodes, 'bundles'>;
  clock: Clock;
  extract: Extract;
  /** How long a few blocks wait for requests that are under way; 0 by default. */
  patienceMs?: number;
  /** The newest final block while this is the head. Blocks above it go stale, because a reorg may orphan them. By default, none does. */
  finalBelow?: (head: number) => number;
  /** How closely to check these blocks. By default, all data that no hash covers is checked later. */
  scrutinyOf?: (blocks: { from: number; to: number; head: number }) => BundleOptions['scrutiny'];
  onLie?: BundleOptions['onLie'];
  onUnconfirmed?: BundleOptions['onUnconfirmed'];
};

export type ReadAhead = {
  /**
   * The blocks from this height on, in order: at least one, none above the head. Requests for the blocks after them begin.
   * @throws Fault of the nodes. The next call then requests one block only, because a node may have that one and lack later ones.
   */
  next(from: number, head: Head, signal: AbortSignal): Promise<ReadBlock[]>;
  /** Drops all requests and the blocks they brought, because a reorg made them useless. */
  drop(): void;
  /** Drops those that may be orphaned before they are handed out: all above the final block. */
  dropUnsettled(): void;
};

/** Requests under way at once; more would only queue at the node. */
const REQUESTS_MAX = 4;
/** JSON of all requests under way, if each brings as much as the last one. */
const UNDER_WAY_BYTES_MAX = 8 * 1024 * 1024;
/** If a request takes longer than this, the next one runs alone, because the node has enough to do. */
const BESIDE_MS_MAX = 5_000;
/** A request that takes longer than this makes the next ones smaller. */
const REQUEST_MS_TARGET = 500;
/** JSON of one request. */
const REQUEST_BYTES_TARGET = 768 * 1024;
/** Two calls for each block, and one JSON-RPC batch for all. */
const REQUEST_BLOCKS_MAX = 30;
/** So long after they were requested, blocks above the final one must be read again. */
const FRESH_MS_MAX = 30_000;
/** Requests that are under way or wait to be committed. Bounds memory where the database is slower than the node. */
const AHEAD_MAX = 10;
/** JSON of the blocks that wait to be committed: one block may be many times REQUEST_BYTES_TARGET. */
const WAITING_BYTES_MAX = REQUEST_BYTES_MAX;
/** Blocks and transfers of one commit. Bounds the work that a crash loses, and the size of the statements. */
const COMMIT_BLOCKS_MAX = 100;
const COMMIT_TRANSFERS_MAX = 5_000;

type Read = { blocks: ReadBlock[]; bytes: number };
type Request = {
  from: number;
  to: number;
  isSettled: boolean;
  abort: WorkAbort;
  result: Promise<Read | 'too large'>;
  /** The result, once it is there. */
  read: Read | undefined;
};

/** Blocks of the next request, and how many requests may be under way. */
type RequestSize = { blocks: number; requests: number };

/** The first request, and the first after a Fault: one block shows how large blocks are here. */
const SMALLEST: RequestSize = { blocks: 1, requests: 1 };

/** Keeps a queue of requests for successive blocks. `next` hands out the blocks of the first requests. */
// oxlint-disable-next-line max-lines-per-function -- all parts share one queue of requests, which any of them may cut short
export function createReadAhead(options: ReadAheadOptions): ReadAhead {
  const { nodes, clock, extract, patienceMs = 0, onLie, onUnconfirmed } = options;
  const callbacks = { ...(onLie && { onLie }), ...(onUnconfirmed && { onUnconfirmed }) };
  let requests: Request[] = [];
  let size = SMALLEST;
  /** Counts requests that were too large: the sizes of requests begun before the last one no longer apply. */
  let tooLargeCount = 0;
  let abort: WorkAbort | undefined;

  function drop(): void {
    abort?.abort();
    abort?.release();
    abort = undefined;
    requests = [];
  }

  function dropUnsettled(): void {
    const first = requests.findIndex(({ isSettled }) => !isSettled);
    if (first !== -1) for (const { abort } of requests.splice(first)) abort.abort();
  }

  /** Begins requests after the last one, as many as the limits allow. */
  function fill(from: number, head: Head, own: WorkAbort): void {
    for (;;) {
      const underWay = requests.filter(({ read }) => read === undefined).length;
      const waitingBytes = requests.reduce((sum, { read }) => sum + (read?.bytes ?? 0), 0);
      const isFull =
        underWay >= size.requests || requests.length >= AHEAD_MAX || waitingBytes >= WAITING_BYTES_MAX;
      const next = (requests.at(-1)?.to ?? from - 1) + 1;
      if (own.signal.aborted || isFull || next > head.number) return;
      begin(next, Math.min(next + size.blocks - 1, head.number), head, own);
    }
  }

  function begin(from: number, to: number, head: Head, own: WorkAbort): void {
    const work = startAbort(own.signal);
    const scrutiny = options.scrutinyOf?.({ from, to, head: head.number });
    const isSettled = to <= (options.finalBelow?.(head.number) ?? head.number);
    const result = read(referencesOf(from, to, head), { scrutiny, isSettled }, work.signal).finally(
      work.release,
    );
    const request: Request = { from, to, isSettled, abort: work, result, read: undefined };
    requests.push(request);
    const onResult = (outcome: Read | 'too large') => {
      if (work.signal.aborted) return;
      if (outcome === 'too large') cutAt(request);
      else request.read = outcome;
      fill(from, head, own);
    };
    // `next` throws the Fault of the request it waits for. The Fault of a dropped request is ignored.
    result.then(onResult, () => {});
  }

  /** Drops this request and those after it, which may be as large, and continues block by block at first. */
  function cutAt(request: Request): void {
    for (const { abort } of requests.splice(requests.indexOf(request))) abort.abort();
    size = SMALLEST;
    tooLargeCount += 1;
  }

  async function read(
    references: readonly BlockReference[],
    { scrutiny, isSettled }: { scrutiny: BundleOptions['scrutiny']; isSettled: boolean },
    signal: AbortSignal,
  ): Promise<Read | 'too large'> {
    const startedMs = clock.steadyMs();
    const countBefore = tooLargeCount;
    const isAlone = size.requests === 1;
    const { needsSenders } = extract;
    const request = { ...callbacks, needsSenders, isAlone, ...(scrutiny && { scrutiny }) };
    const fetched = await fetchBlocks(nodes, references, signal, request);
    if (fetched === 'too large') return fetched;
    const { bundles, bytes } = fetched;
    if (!signal.aborted && tooLargeCount === countBefore)
      size = sizeAfter(clock.steadyMs() - startedMs, { blocks: bundles.length, bytes });
    const blocks = bundles.map((bundle) => readBlock(bundle, extract, scrutiny === 'full'));
    if (!isSettled) for (const block of blocks) block.staleMs = startedMs + FRESH_MS_MAX;
    return { blocks, bytes };
  }

  /** The blocks of the first request, and of those after it that finish soon, as far as they fit into one commit. */
  async function take(signal: AbortSignal): Promise<ReadBlock[]> {
    const taken = (await awaitFirst())?.blocks ?? [];
    requests.shift();
    if (requests.length === 0) return taken;
    const wait = startAbort(signal);
    const timeout = patienceMs > 0 ? clock.wait(patienceMs, wait.signal) : Promise.resolve();
    const isOver = timeout.then(() => undefined);
    try {
      while (requests[0] !== undefined && fits(taken, requests[0])) {
        // The next call of `next` waits for this request first, and throws its Fault.
        const more = (await awaitFirst(isOver).catch(() => undefined))?.blocks;
        if (more === undefined || countTransfers(taken) + countTransfers(more) > COMMIT_TRANSFERS_MAX) break;
        taken.push(...more);
        requests.shift();
      }
      return taken;
    } finally {
      wait.abort();
      wait.release();
    }
  }

  /** The result of the first request, or of the smaller one that replaces it. Undefined when `isOver` resolves first. */
  async function awaitFirst(isOver?: Promise<undefined>): Promise<Read | undefined> {
    let [request] = requests;
    while (request !== undefined) {
      const outcome = request.read ?? (await Promise.race([request.result, ...(isOver ? [isOver] : [])]));
      if (outcome !== 'too large') return outcome;
      const [successor] = requests;
      if (successor === request) throw new Fault('unavailable', 'the request for these blocks was aborted');
      request = successor;
    }
    return undefined;
  }

  return {
    drop,
    dropUnsettled,
    async next(from, head, signal) {
      if (requests.length > 0 && requests[0]?.from !== from) drop();
      abort ??= startAbort(signal);
      const own = abort;
      fill(from, head, own);
      try {
        // Callers repeat the call until they have all blocks.
        if (own.signal.aborted && requests.length === 0)
          throw new Fault('unavailable', 'the request for these blocks was aborted');
        const blocks = await take(signal);
        fill(from + blocks.length, head, own);
        return blocks;
      } catch (error) {
        if (abort === own) drop();
        size = SMALLEST;
        throw error;
      }
    },
  };
}

/**
 * The size of the next request: at most twice as many blocks as the last one, and few enough to meet the targets for time
 * and bytes. As many requests at once as fit into UNDER_WAY_BYTES_MAX.
 */
function sizeAfter(tookMs: number, { blocks, bytes }: { blocks: number; bytes: number }): RequestSize {
  const room = Math.min(
    REQUEST_MS_TARGET / Math.max(1, tookMs),
    REQUEST_BYTES_TARGET / Math.max(1, bytes),
    2,
  );
  const fitting = tookMs > BESIDE_MS_MAX ? 1 : Math.floor(UNDER_WAY_BYTES_MAX / Math.max(1, bytes));
  return {
    blocks: Math.max(1, Math.min(Math.floor(blocks * room), REQUEST_BLOCKS_MAX)),
    requests: Math.max(1, Math.min(fitting, REQUESTS_MAX)),
  };
}

/** The head by its hash, so that a node that doesn't have it yet answers with an error. History by number. */
function referencesOf(from: number, to: number, head: Head): BlockReference[] {
  return Array.from({ length: to - from + 1 }, (_, index) =>
    from + index === head.number && head.hash !== undefined ? head.hash : from + index,
  );
}

/** Whether a commit has room for further blocks, if they hold as many transfers as those before them. */
function fits(taken: readonly ReadBlock[], { from, to }: Pick<Request, 'from' | 'to'>): boolean {
  const blockCount = taken.length + to - from + 1;
  const transferCount = (countTransfers(taken) / Math.max(1, taken.length)) * blockCount;
  return blockCount <= COMMIT_BLOCKS_MAX && transferCount <= COMMIT_TRANSFERS_MAX;
}

const countTransfers = (blocks: readonly ReadBlock[]): number =>
  blocks.reduce((sum, { transfers }) => sum + transfers.length, 0);
