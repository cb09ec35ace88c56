/**
 * Re-derives stored blocks from the chain, with the follower's nodes, proof and extraction, and compares them with the
 * database. Writes nothing, so a follower may run meanwhile.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { type QuorumSetting, quorumOf } from '../domain/quorum.ts';
import { createPairReader } from '../ingest/pairs/pair-events.ts';
import { createActivityReader, createSenderNeeds } from '../ingest/points/activities.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import { readSnapshot } from '../store/audit/comparison.ts';
import { findChain, findTip } from '../store/blocks/blocks.ts';
import { readTime } from '../store/db/database-time.ts';
import type { Database } from '../store/db/db.ts';
import { findFirstDeferred } from '../store/matching/deferred.ts';
import { assetsOf, type CompareOptions, type CompareStored, compareBatch } from './compare-batch.ts';
import { comparePrices, compareSums } from './compare-sums.ts';
import { createKeptSince } from './kept-since.ts';
import { listNotCompared } from './not-compared.ts';
import { createRangeReader } from './read-range.ts';
import { countUnread, verifyBatch } from './verify-batch.ts';
import {
  createTally,
  isComplete,
  type Tally,
  uncomparedCount,
  type VerifyEvents,
  type VerifyReport,
} from './verify-report.ts';
import { createWitnessPanel, type Witness } from './witnesses.ts';

export type VerifyOptions = CompareOptions &
  VerifyEvents & {
    database: Database;
    nodes: Pick<ChainNodes & Voters, 'bundles' | 'head' | 'findHeader' | 'agree'>;
    /** Each configured node separately, if there are several. */
    witnesses: readonly Witness[];
    /** How many of them must agree: chain.quorum. */
    quorum: QuorumSetting;
    clock: Clock;
    /** The assets that have a feed. Their prices are compared, also of those that value no pair. */
    fedAssets: readonly string[];
    /** By default, the first and the newest stored block. */
    from: number | undefined;
    to: number | undefined;
    /** How long notifications are kept after they are processed, and how long swaps are kept. */
    notificationsMs: number;
    swapsMs: number;
    /** Called after each batch. `done` blocks are behind it, of which `uncompared` could not be compared. */
    onProgress(progress: { done: number; total: number; uncompared: number; differences: number }): void;
  };

/**
 * Compares the blocks of the range with the database, in bounded memory. Ends early, as `reorganised`, when a reorg changes
 * the range meanwhile. @throws Fault `unavailable` when the nodes or the database do not answer.
 */
export async function verifyStored(options: VerifyOptions, signal: AbortSignal): Promise<VerifyReport> {
  const { database, nodes, clock, witnesses, quorum } = options;
  const nodeCount = Math.max(1, witnesses.length);
  const tally = createTally({ nodes: nodeCount, needed: quorumOf(nodeCount, quorum) }, options);
  const { report } = tally;
  const stored = await findStoredRange(database);
  if (stored === undefined) return report;
  const range = limitRange(options, stored, report);
  const { finalizedNumber } = stored;
  const now = await readTime(options.primary ?? database);
  const whileKept = createKeptSince({ db: database, clock, now }, options);
  const extract = {
    pairEvents: createPairReader(options.pairs),
    activities: createActivityReader(options.rules),
    needsSenders: createSenderNeeds(options.rules),
  };
  const compareStored: CompareStored = (read) =>
    whileKept((kept) =>
      readSnapshot(database, (snapshot) => compareBatch(snapshot, read, { ...options, ...kept })),
    );
  const access = { database, clock, extract, finalizedNumber, compareStored };
  const panel = createWitnessPanel({ ...access, witnesses, quorum }, tally, signal);
  const readBlocks = createRangeReader({ nodes, clock, extract, to: range.to }, signal);
  const readBlock = (number: number) =>
    createRangeReader({ nodes, clock, extract, to: number }, signal)(number);
  const batch = { ...access, nodes, range, panel, readBlock, hasWitnesses: witnesses.length > 1 };
  let times: Times | undefined;

  for (let next = range.from; next <= range.to; ) {
    const read = await readBlocks(next);
    if (read instanceof Fault) await countUnread(next, read, batch, tally, signal);
    else if ((await verifyBatch(read, batch, tally, signal)) === 'reorganised')
      return { ...report, outcome: 'reorganised' };
    else times = extend(times, read);
    next += read instanceof Fault ? 1 : Math.max(1, read.length);
    const total = range.to - range.from + 1;
    const { differences } = report;
    options.onProgress({ done: next - range.from, total, uncompared: uncomparedCount(report), differences });
  }
  if (times !== undefined) {
    const { pairs, fedAssets } = options;
    await countSums(database, whileKept, { ...times, pairs, fedAssets, block: range.to }, tally);
  }
  report.notCompared = listNotCompared(options, tally.notCompared);
  return { ...report, outcome: outcomeOf(report) };
}

/** The first stored block, the last one whose notifications are all written, and the final one. */
async function findStoredRange(
  database: Database,
): Promise<{ from: number; to: number; finalizedNumber: number } | undefined> {
  const chain = await findChain(database);
  const tip = await findTip(database);
  const deferred = await findFirstDeferred(database);
  if (chain?.startNumber === undefined || tip === undefined) return undefined;
  const to = deferred === undefined ? tip.number : Math.min(tip.number, deferred - 1);
  return { from: chain.startNumber, to, finalizedNumber: chain.finalizedNumber };
}

/** The part of the requested range that is stored. Puts the requested range, and the size of the rest, into the report. */
function limitRange(
  { from, to }: Pick<VerifyOptions, 'from' | 'to'>,
  stored: { from: number; to: number },
  report: VerifyReport,
): { from: number; to: number } {
  // A missing end is the stored one, unless the given end lies beyond that.
  const asked = {
    from: from ?? Math.min(stored.from, to ?? stored.from),
    to: to ?? Math.max(stored.to, from ?? stored.to),
  };
  report.range = asked;
  report.undecided.before_start = Math.max(0, Math.min(stored.from, asked.to + 1) - asked.from);
  report.undecided.after_tip = Math.max(0, asked.to - Math.max(stored.to, asked.from - 1));
  return { from: Math.max(asked.from, stored.from), to: Math.min(asked.to, stored.to) };
}

/** The times of the first and the last block that were read. */
type Times = { first: Date; last: Date };

function extend(times: Times | undefined, read: readonly ReadBlock[]): Times | undefined {
  const [first, last] = [read[0]?.header.minedAt, read.at(-1)?.header.minedAt];
  return first === undefined || last === undefined ? times : { first: times?.first ?? first, last };
}

/** Compares sums and prices of the time between the first and the last block. */
async function countSums(
  database: Database,
  whileKept: ReturnType<typeof createKeptSince>,
  side: Times & Pick<VerifyOptions, 'pairs' | 'fedAssets'> & { block: number },
  tally: Tally,
): Promise<void> {
  // Swaps of a pair may still refer to prices of a feed that was removed.
  const assets = [...new Set([...assetsOf(side.pairs), ...side.fedAssets])];
  const prices = await comparePrices(database, { ...side, assets });
  tally.notCompared.unobserved = prices.unobserved;
  const sums = await whileKept(({ swapsKeptSince }) => compareSums(database, { ...side, swapsKeptSince }));
  for (const difference of [...prices.differences, ...sums]) tally.count(difference);
}

function outcomeOf({ differences, blocks, undecided }: VerifyReport): VerifyReport['outcome'] {
  if (differences > 0) return 'different';
  return blocks > 0 && isComplete({ undecided }) ? 'equal' : 'not_compared';
}
