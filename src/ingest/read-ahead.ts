/**
 * Blocks fetched, proved and read before the follower asks for them, so that node, proof and database work at the same
 * time. Requests are small, because what a request brings is garbage as soon as its transfers are read; commits are
 * large, because each costs the database the same dozen statements.
 */
import type { Bundle } from '../chain/blocks/bundle.ts';
import type { BundleOptions } from '../chain/nodes/fetch.ts';
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { SenderEvidence } from '../chain/proof/block-checks.ts';
import { startAbort, type WorkAbort } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { BlockHeader, BlockReference, Transfer } from '../domain/block.ts';
import type { PairEvents } from '../domain/pair.ts';
import type { Activity } from '../domain/points/activity.ts';
import { extractTransfers } from './extract.ts';
import { fetchBlocks, REQUEST_BYTES_MAX } from './fetch-blocks.ts';

/** A block as it is committed. */
export type ReadBlock = {
  header: BlockHeader;
  proved: boolean;
  traced: boolean;
  transfers: Transfer[];
  pairEvents: PairEvents[];
  /** What the rules of points ask for. */
  activities: Activity[];
  /** The evidence for the senders of native transfers; undefined if proof is off. */
  senders?: SenderEvidence | undefined;
  /** Its transactions, if only one node has confirmed its internal transfers so far; otherwise undefined. */
  unconfirmed?: readonly Hash[] | undefined;
  /** The node that gave it, if it was not checked in full; otherwise undefined. */
  believed?: string | undefined;
};

/** What is taken out of a block for the processors; the block itself is garbage then. */
export type Extract = {
  pairEvents(bundle: Bundle): PairEvents[];
  activities(bundle: Bundle): Activity[];
};

/** For who needs the transfers alone. */
export const extractNothing: Extract = { pairEvents: () => [], activities: () => [] };

/** The last block to be read; without its hash it is asked for by number, as history is. */
type Head = { number: number; hash: Hash | undefined };

type ReadAheadOptions = {
  nodes: Pick<ChainNodes, 'bundles'>;
  clock: Clock;
  extract: Extract;
  /** How long few blocks wait for more that are on their way; by default not at all. */
  patienceMs?: number;
  /** How closely these blocks are checked; by default everything that no hash covers is checked later. */
  scrutinyOf?: (blocks: { from: number; to: number; head: number }) => BundleOptions['scrutiny'];
  onLie?: BundleOptions['onLie'];
  onDispute?: BundleOptions['onDispute'];
};

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
/** JSON of those together, as far as the last one tells. */
const UNDER_WAY_BYTES_MAX = 8 * 1024 * 1024;
/** Beside a request that takes longer there is no other: the node has enough to do. */
const BESIDE_MS_MAX = 5_000;
/** A request that takes longer than this makes the next ones smaller. */
const REQUEST_MS_TARGET = 500;
/** JSON of one request. */
const REQUEST_BYTES_TARGET = 768 * 1024;
/** Two calls for each, and one batch of JSON-RPC for all. */
const REQUEST_BLOCKS_MAX = 30;
/** Requests that are on their way or wait to be committed: bounds memory where the database is slower than the node. */
const AHEAD_MAX = 10;
/** JSON of those that wait: one block may be many times what a request is meant to bring. */
const WAITING_BYTES_MAX = REQUEST_BYTES_MAX;
/** Blocks and transfers of one commit: bounds the work that is lost at a crash, and the statement. */
const COMMIT_BLOCKS_MAX = 100;
const COMMIT_TRANSFERS_MAX = 5_000;

type Read = { blocks: ReadBlock[]; bytes: number };
type Request = {
  from: number;
  to: number;
  abort: WorkAbort;
  result: Promise<Read | 'too large'>;
  /** What has come. */
  read: Read | undefined;
};

/** Requests that follow one another, of which the first are handed out next. */
export function createReadAhead(options: ReadAheadOptions): ReadAhead {
  const { nodes, clock, extract, patienceMs = 0 } = options;
  let requests: Request[] = [];
  /** Blocks of the next request, and how many may be under way: until one has shown what it takes, one. */
  let requestBlocks = 1;
  let requestsMax = 1;
  /** Requests that were too large: what was begun before tells nothing of what comes after. */
  let tooLargeCount = 0;
  let abort: WorkAbort | undefined;

  function drop(): void {
    abort?.abort();
    abort?.release();
    abort = undefined;
    requests = [];
  }

  /** Begins what may be begun from here on. */
  function fill(from: number, head: Head, own: WorkAbort): void {
    for (;;) {
      const underWay = requests.filter(({ read }) => read === undefined).length;
      const waitingBytes = requests.reduce((sum, { read }) => sum + (read?.bytes ?? 0), 0);
      const isFull =
        underWay >= requestsMax || requests.length >= AHEAD_MAX || waitingBytes >= WAITING_BYTES_MAX;
      const next = (requests.at(-1)?.to ?? from - 1) + 1;
      if (own.signal.aborted || isFull || next > head.number) return;
      begin(next, Math.min(next + requestBlocks - 1, head.number));
    }

    function begin(first: number, last: number): void {
      const work = startAbort(own.signal);
      const scrutiny = options.scrutinyOf?.({ from: first, to: last, head: head.number });
      const result = read(referencesOf(first, last, head), scrutiny, work.signal).finally(work.release);
      const request: Request = { from: first, to: last, abort: work, result, read: undefined };
      requests.push(request);
      const onResult = (outcome: Read | 'too large') => {
        if (work.signal.aborted) return;
        if (outcome === 'too large') giveWay(request);
        else request.read = outcome;
        fill(first, head, own);
      };
      // The consumer gets its Fault; the Fault of a dropped request is ignored.
      result.then(onResult, () => {});
    }
  }

  /** Ends the request and those after it, which are as large perhaps: from here on block by block at first. */
  function giveWay(request: Request): void {
    for (const { abort } of requests.splice(requests.indexOf(request))) abort.abort();
    beginSmall();
    tooLargeCount += 1;
  }

  function beginSmall(): void {
    requestBlocks = 1;
    requestsMax = 1;
  }

  async function read(
    references: readonly BlockReference[],
    scrutiny: BundleOptions['scrutiny'],
    signal: AbortSignal,
  ): Promise<Read | 'too large'> {
    const startedAt = clock.now().getTime();
    const countBefore = tooLargeCount;
    const fetched = await fetchBlocks(nodes, references, signal, {
      isAlone: requestsMax === 1,
      ...(scrutiny !== undefined && { scrutiny }),
      ...(options.onLie !== undefined && { onLie: options.onLie }),
      ...(options.onDispute !== undefined && { onDispute: options.onDispute }),
    });
    if (fetched === 'too large') return fetched;
    const { bundles, bytes } = fetched;
    const isOfUse = !signal.aborted && tooLargeCount === countBefore;
    if (isOfUse) adapt(clock.now().getTime() - startedAt, { blocks: bundles.length, bytes });
    const blocks = bundles.map((bundle) => ({
      header: bundle.header,
      proved: bundle.proved,
      traced: bundle.traced,
      transfers: extractTransfers(bundle),
      pairEvents: extract.pairEvents(bundle),
      activities: extract.activities(bundle),
      senders: bundle.senders,
      ...(scrutiny !== 'full' && { unconfirmed: unconfirmedOf(bundle), believed: bundle.node }),
    }));
    return { blocks, bytes };
  }

  /** At most twice as many blocks as this time, and as many as meet both targets; beside it what fits. */
  function adapt(tookMs: number, { blocks, bytes }: { blocks: number; bytes: number }): void {
    const room = Math.min(
      REQUEST_MS_TARGET / Math.max(1, tookMs),
      REQUEST_BYTES_TARGET / Math.max(1, bytes),
      2,
    );
    requestBlocks = Math.max(1, Math.min(Math.floor(blocks * room), REQUEST_BLOCKS_MAX));
    const fitting = tookMs > BESIDE_MS_MAX ? 1 : Math.floor(UNDER_WAY_BYTES_MAX / Math.max(1, bytes));
    requestsMax = Math.max(1, Math.min(fitting, REQUESTS_MAX));
  }

  /** The first request's blocks, and those after them that come soon, as far as they fit into one commit. */
  async function take(signal: AbortSignal): Promise<ReadBlock[]> {
    const taken = (await comeFirst())?.blocks ?? [];
    requests.shift();
    if (requests.length === 0) return taken;
    const wait = startAbort(signal);
    const over = patienceMs > 0 ? clock.wait(patienceMs, wait.signal) : Promise.resolve();
    const isOver = over.then(() => undefined);
    try {
      while (requests[0] !== undefined && fits(taken, requests[0])) {
        // Its first consumer gets its Fault.
        const more = (await comeFirst(isOver).catch(() => undefined))?.blocks;
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

  /** What the first request brings, or that which takes its place because it was too large; undefined when it is over. */
  async function comeFirst(isOver?: Promise<undefined>): Promise<Read | undefined> {
    let [request] = requests;
    while (request !== undefined) {
      const outcome = request.read ?? (await Promise.race([request.result, ...(isOver ? [isOver] : [])]));
      if (outcome !== 'too large') return outcome;
      const [successor] = requests;
      if (successor === request) throw new Fault('unavailable', 'these blocks are no longer wanted');
      request = successor;
    }
    return undefined;
  }

  return {
    drop,
    async next(from, head, signal) {
      if (requests.length > 0 && requests[0]?.from !== from) drop();
      abort ??= startAbort(signal);
      const own = abort;
      fill(from, head, own);
      try {
        const blocks = await take(signal);
        fill(from + blocks.length, head, own);
        return blocks;
      } catch (error) {
        if (abort === own) drop();
        beginSmall();
        throw error;
      }
    },
  };
}

/** Only where there is something to confirm: the hashes of a mainnet block take 16 KB. */
const unconfirmedOf = ({ transactions }: Bundle): Hash[] | undefined =>
  transactions.some(({ calls }) => calls.length > 0) ? transactions.map(({ hash }) => hash) : undefined;

/** The head by its hash, so that "not here yet" is an error; history by number. */
function referencesOf(from: number, to: number, head: Head): BlockReference[] {
  return Array.from({ length: to - from + 1 }, (_, index) =>
    from + index === head.number && head.hash !== undefined ? head.hash : from + index,
  );
}

/** Whether a commit has room for further blocks, if they hold as much as those before them. */
function fits(taken: readonly ReadBlock[], { from, to }: Pick<Request, 'from' | 'to'>): boolean {
  const blockCount = taken.length + to - from + 1;
  const transferCount = (countTransfers(taken) / Math.max(1, taken.length)) * blockCount;
  return blockCount <= COMMIT_BLOCKS_MAX && transferCount <= COMMIT_TRANSFERS_MAX;
}

const countTransfers = (blocks: readonly ReadBlock[]): number =>
  blocks.reduce((sum, { transfers }) => sum + transfers.length, 0);
