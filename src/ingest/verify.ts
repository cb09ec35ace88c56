/**
 * Deriving stored blocks again from the chain, through the follower's own nodes, proof and extraction, and comparing.
 * Nothing is written, and a follower may run meanwhile.
 */
import type { ChainNodes } from '../chain/nodes.ts';
import { type BlockHeader, sidesOf } from '../core/block.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { Pair } from '../core/pair.ts';
import { findChain, findTip } from '../store/blocks.ts';
import {
  listNotificationsOf,
  listStoredBlocks,
  listWatchesById,
  listWatchesOf,
  readSnapshot,
  type StoredBlock,
} from '../store/comparison.ts';
import type { Database, Db } from '../store/db.ts';
import { listPairCoverage } from '../store/pairs.ts';
import { listSwapsOf } from '../store/swaps.ts';
import { readTime } from '../store/time.ts';
import {
  compareBlock,
  compareNotifications,
  type Difference,
  differenceOf,
  dueOf,
  eventsOf,
  nothingUndecided,
  placesOf,
  type UndecidedReason,
  type Verdict,
} from './compare.ts';
import { compareSwaps } from './compare-swaps.ts';
import { createPairReader } from './pair-events.ts';
import { createReadAhead, extractNothing, type ReadBlock } from './read-ahead.ts';

export type VerifyOptions = {
  database: Database;
  nodes: Pick<ChainNodes, 'bundles' | 'head' | 'findHeader'>;
  clock: Clock;
  /** Undefined: the first and the newest stored block. */
  from: number | undefined;
  to: number | undefined;
  isProofOn: boolean;
  /** Whose swaps are compared too. */
  pairs: readonly Pick<Pair, 'id' | 'address'>[];
  /** How long notifications are kept once they are done, and swaps. */
  notificationsMs: number;
  swapsMs: number;
  onDifference(difference: Difference): void;
  /** After each batch. */
  onProgress(progress: { done: number; total: number; differences: number }): void;
};

export type VerifyReport = {
  /** `not_compared`: of the whole range no block is stored and served. */
  outcome: 'equal' | 'different' | 'not_compared' | 'reorganised';
  /** Undefined when nothing is stored. */
  range: { from: number; to: number } | undefined;
  /** Compared blocks, equal notifications, equal swaps of the configured pairs. */
  blocks: number;
  notifications: number;
  swaps: number;
  differences: number;
  undecided: Record<UndecidedReason, number>;
};

/** Records and notifications of one comparison: where there are more, blocks are compared one by one, then not at all. */
const ROWS_MAX = 100_000;
/** Waits before a block is asked for again that no node gave. */
const RETRY_MS = [1_000, 2_000, 4_000];
/** By then a follower has seen a new fork and undone the old one: it asks every 2 s at least. */
const SETTLE_MS = 5_000;

/**
 * Compares the blocks of the range with what is stored, in bounded memory. Ends early, as `reorganised`, when a fork
 * changes the range meanwhile. @throws Fault `unavailable` when the nodes or the database do not answer.
 */
export async function verifyStored(options: VerifyOptions, signal: AbortSignal): Promise<VerifyReport> {
  const { database, nodes, clock } = options;
  const report = emptyReport();
  const chain = await findChain(database);
  const tip = await findTip(database);
  if (chain?.startNumber === undefined || tip === undefined) return report;
  const { startNumber, finalizedNumber } = chain;
  // An end that is not given lies where the other one does, at least.
  const asked = {
    from: options.from ?? Math.min(startNumber, options.to ?? startNumber),
    to: options.to ?? Math.max(tip.number, options.from ?? tip.number),
  };
  const range = { from: Math.max(asked.from, startNumber), to: Math.min(asked.to, tip.number) };
  report.range = asked;
  report.undecided.before_start = Math.max(0, Math.min(startNumber, asked.to + 1) - asked.from);
  report.undecided.after_tip = Math.max(0, asked.to - Math.max(tip.number, asked.from - 1));
  const now = (await readTime(database)).getTime();
  const keptSince = new Date(now - options.notificationsMs);
  const swapsKeptSince = new Date(now - options.swapsMs);
  const readAhead = createReadAhead({
    nodes,
    clock,
    extract: { ...extractNothing, pairEvents: createPairReader(options.pairs) },
    scrutinyOf: () => 'full',
  });
  /** Of a long gap only the first block is waited for. */
  let isWorthWaiting = true;

  for (let next = range.from; next <= range.to; ) {
    const read = await readNext(next);
    if ((await compare(read)) === 'reorganised') return { ...report, outcome: 'reorganised' };
    next += Math.max(1, read.length);
    const total = range.to - range.from + 1;
    options.onProgress({ done: next - range.from, total, differences: report.differences });
  }
  if (report.differences > 0) return { ...report, outcome: 'different' };
  return { ...report, outcome: report.blocks > 0 ? 'equal' : 'not_compared' };

  /** The blocks from this one on that can be had; none when this one cannot, which is told. */
  async function readNext(from: number): Promise<ReadBlock[]> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        const blocks = await readAhead.next(from, { number: range.to, hash: undefined }, signal);
        isWorthWaiting = true;
        return blocks;
      } catch (error) {
        if (!(error instanceof Fault) || error.code === 'conflict' || signal.aborted) throw error;
        // The first Fault may be of any block of a batch; from then on it is of this one.
        if (attempt === 0) continue;
        const waitMs = isWorthWaiting ? RETRY_MS[attempt - 1] : undefined;
        if (waitMs === undefined) {
          count(await judgeUnread(from, error));
          isWorthWaiting = false;
          return [];
        }
        await clock.wait(waitMs, signal);
      }
    }
  }

  async function judgeUnread(number: number, fault: Fault): Promise<Verdict> {
    if (fault.code === 'inconsistent')
      return differenceOf('not_proved', number, `could not be proved: ${messageOf(fault)}`);
    // Throws when the nodes are away altogether.
    await nodes.head(signal);
    return 'not_served';
  }

  async function compare(read: readonly ReadBlock[]): Promise<'compared' | 'reorganised'> {
    if (read.length === 0) return 'compared';
    const compared = await readSnapshot(database, (snapshot) =>
      compareBatch(snapshot, read, {
        ...{ isProofOn: options.isProofOn, keptSince, swapsKeptSince, pairs: options.pairs },
      }),
    );
    if (compared === 'too many') {
      if (read.length === 1) count('too_many');
      else for (const one of read) if ((await compare([one])) === 'reorganised') return 'reorganised';
      return 'compared';
    }
    const { astray, blocks, swaps, verdicts } = compared;
    if (await isReorganising(astray.filter(({ header }) => header.number > finalizedNumber)))
      return 'reorganised';
    report.blocks += blocks;
    report.swaps += swaps;
    for (const verdict of [...astray.map(judgeAstray), ...verdicts]) count(verdict);
    return 'compared';
  }

  /** Whether what does not fit is on its way: the follower undoes a fork, or the nodes change their mind. */
  async function isReorganising(astray: readonly Astray[]): Promise<boolean> {
    const [first] = astray;
    if (first === undefined) return false;
    await clock.wait(SETTLE_MS, signal);
    const span = { from: first.header.number, to: astray.at(-1)?.header.number ?? first.header.number };
    const stored = await listStoredBlocks(database, span);
    for (const { header, storedHash } of astray) {
      if (stored.get(header.number)?.hash !== storedHash) return true;
      if ((await nodes.findHeader(header.number, signal))?.hash !== header.hash) return true;
    }
    return false;
  }

  function count(verdict: Verdict): void {
    if (verdict === 'equal') report.notifications += 1;
    else if (typeof verdict === 'string') report.undecided[verdict] += 1;
    else {
      report.differences += 1;
      options.onDifference(verdict);
    }
  }
}

/** A block that is not stored as it is on the chain. */
type Astray = { header: BlockHeader; storedHash: Hash | undefined };

type Compared = { blocks: number; swaps: number; astray: Astray[]; verdicts: Verdict[] };

/** Blocks that follow one another against one moment of the database. */
async function compareBatch(
  snapshot: Db,
  read: readonly ReadBlock[],
  {
    isProofOn,
    keptSince,
    swapsKeptSince,
    pairs,
  }: {
    isProofOn: boolean;
    keptSince: Date;
    swapsKeptSince: Date;
    pairs: readonly Pick<Pair, 'id' | 'address'>[];
  },
): Promise<Compared | 'too many'> {
  const span = { from: read[0]?.header.number ?? 0, to: read.at(-1)?.header.number ?? 0 };
  const stored = await listStoredBlocks(snapshot, span);
  const blocks = new Map<number, { read: ReadBlock; stored: StoredBlock }>();
  const astray: Astray[] = [];
  for (const one of read) {
    const { header } = one;
    const found = stored.get(header.number);
    if (found?.hash === header.hash) blocks.set(header.number, { read: one, stored: found });
    else astray.push({ header, storedHash: found?.hash });
  }
  const events = eventsOf([...blocks.values()]);
  const addresses = new Set([...events.values()].flatMap(({ transfer }) => sidesOf(transfer)));
  const watching = await listWatchesOf(snapshot, [...addresses], ROWS_MAX);
  const due = dueOf(events, watching, ROWS_MAX);
  if (watching.length === ROWS_MAX || due.size > ROWS_MAX) return 'too many';
  const notifications = await listNotificationsOf(snapshot, span, placesOf(due), ROWS_MAX);
  if (notifications.length === ROWS_MAX) return 'too many';
  const storedSwaps = pairs.length === 0 ? [] : await listSwapsOf(snapshot, span, ROWS_MAX);
  if (storedSwaps.length === ROWS_MAX) return 'too many';
  const swaps = compareSwaps({
    blocks: Array.from(blocks.values(), (one) => one.read),
    stored: storedSwaps,
    coverage: await listPairCoverage(
      snapshot,
      pairs.map(({ id }) => id),
    ),
    keptSince: swapsKeptSince,
  });
  const owners = new Map(notifications.map((one) => [one.watchedAddressId, one]));
  const watches = await listWatchesById(snapshot, [...owners.values()]);
  const verdicts = [
    ...[...blocks.values()].flatMap((one) => compareBlock(one.read, one.stored, isProofOn)),
    ...compareNotifications({
      ...{ blocks, events, due, notifications, keptSince },
      watches: new Map(watches.map((watch) => [watch.id, watch])),
    }),
    ...swaps.differences,
    ...Array.from({ length: swaps.pruned }, (): Verdict => 'pruned'),
  ];
  return { blocks: blocks.size, swaps: swaps.equal, astray, verdicts };
}

function judgeAstray({ header: { number, hash }, storedHash }: Astray): Difference {
  return storedHash === undefined
    ? differenceOf('not_stored', number, `not stored; on the chain it is ${hash}`)
    : differenceOf('hash', number, `stored as ${storedHash}, on the chain it is ${hash}`);
}

function emptyReport(): VerifyReport {
  const counts = {
    blocks: 0,
    notifications: 0,
    swaps: 0,
    differences: 0,
    undecided: { ...nothingUndecided },
  };
  return { outcome: 'equal', range: undefined, ...counts };
}
