/**
 * Deriving stored blocks again from the chain, through the follower's own nodes, proof and extraction, and comparing.
 * Nothing is written, and a follower may run meanwhile.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { BlockHeader } from '../domain/block.ts';
import { type QuorumSetting, quorumOf } from '../domain/quorum.ts';
import { createPairReader } from '../ingest/pairs/pair-events.ts';
import { WHOLE_MS } from '../ingest/pairs/pair-retention.ts';
import { createActivityReader } from '../ingest/points/activities.ts';
import { createReadAhead } from '../ingest/read-ahead.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import { listStoredBlocks, readSnapshot } from '../store/audit/comparison.ts';
import { findChain, findTip } from '../store/blocks/blocks.ts';
import type { Database } from '../store/db/db.ts';
import { readTime } from '../store/db/time.ts';
import { findFirstDeferred } from '../store/matching/deferred.ts';
import {
  type Difference,
  differenceOf,
  nothingUndecided,
  type UndecidedReason,
  type Verdict,
} from './compare.ts';
import { type Astray, assetsOf, type CompareOptions, compareBatch, judgeAstray } from './compare-batch.ts';
import { comparePrices, compareSums } from './compare-sums.ts';
import { listNotCompared, type NotCompared } from './not-compared.ts';
import { type Agreed, agreeOn, type Opinion } from './second-opinion.ts';

export type VerifyOptions = CompareOptions & {
  database: Database;
  nodes: Pick<ChainNodes, 'bundles' | 'head' | 'findHeader' | 'ask'>;
  /** Each configured node by itself, where there are several. */
  witnesses: readonly Witness[];
  /** How many of them must agree: chain.quorum. */
  quorum: QuorumSetting;
  clock: Clock;
  /** Undefined: the first and the newest stored block. */
  from: number | undefined;
  to: number | undefined;
  /** How long notifications are kept once they are done, and swaps. */
  notificationsMs: number;
  swapsMs: number;
  onDifference(difference: Difference): void;
  /** A node that contradicts the others. */
  onDissent(dissent: Agreed['dissents'][number]): void;
  /** After each batch. */
  onProgress(progress: { done: number; total: number; differences: number }): void;
};

export type Witness = { name: string; nodes: Pick<ChainNodes, 'bundles' | 'findHeader'> };

export type VerifyReport = {
  /** `not_compared`: no block of the range is stored and served, or too few nodes answered or agreed. */
  outcome: 'equal' | 'different' | 'not_compared' | 'reorganised';
  /** Undefined when nothing is stored. */
  range: { from: number; to: number } | undefined;
  /** Compared blocks, equal notifications, equal swaps of the configured pairs. */
  blocks: number;
  notifications: number;
  swaps: number;
  /** Equal awards of points. */
  awards: number;
  differences: number;
  /** How often a node contradicted the others. */
  dissents: number;
  undecided: Record<UndecidedReason, number>;
  /** Stored figures that cannot be derived again, and why. */
  notCompared: NotCompared[];
  /** The configured nodes, and how many of them must confirm what differs. */
  quorum: { nodes: number; needed: number };
  /** Nodes that did not give a block that all were asked for, each with the first reason. */
  unanswered: { node: string; message: string }[];
};

/** Waits before a block is asked for again that no node gave. */
const RETRY_MS = [1_000, 2_000, 4_000];
/** By then a follower has seen a new fork and undone the old one: it asks every 2 s at least. */
const SETTLE_MS = 5_000;

/** The newest stored block, or the one below the first of which notifications are still to be written. */
async function findToldTip(database: Database): Promise<{ number: number } | undefined> {
  const tip = await findTip(database);
  const deferred = await findFirstDeferred(database);
  return tip && { number: Math.min(tip.number, (deferred ?? tip.number + 1) - 1) };
}

/**
 * Compares the blocks of the range with what is stored, in bounded memory. Ends early, as `reorganised`, when a fork
 * changes the range meanwhile. @throws Fault `unavailable` when the nodes or the database do not answer.
 */
export async function verifyStored(options: VerifyOptions, signal: AbortSignal): Promise<VerifyReport> {
  const { database, nodes, clock } = options;
  const nodeCount = Math.max(1, options.witnesses.length);
  const report = emptyReport({ nodes: nodeCount, needed: quorumOf(nodeCount, options.quorum) });
  const chain = await findChain(database);
  const tip = await findToldTip(database);
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
  const extract = {
    pairEvents: createPairReader(options.pairs),
    activities: createActivityReader(options.rules),
  };
  const readAhead = createReadAhead({ nodes, clock, extract, scrutinyOf: () => 'full' });
  const context = { ...options, keptSince, swapsKeptSince, statesKeptSince: new Date(now - WHOLE_MS) };
  /** Counts of data that is not compared. */
  const skipped = { accrued: 0, unknownRule: 0, unobserved: 0 };
  /** The times of the blocks that were read. */
  const times: Date[] = [];
  /** Of a long gap only the first block is waited for. */
  let isWorthWaiting = true;

  for (let next = range.from; next <= range.to; ) {
    const read = await readNext(next);
    if ((await compare(read)) === 'reorganised') return { ...report, outcome: 'reorganised' };
    noteTimes(read);
    next += Math.max(1, read.length);
    const total = range.to - range.from + 1;
    options.onProgress({ done: next - range.from, total, differences: report.differences });
  }
  const [first, last] = times;
  if (first !== undefined && last !== undefined) {
    const side = { ...context, block: range.to, first, last };
    const prices = await comparePrices(database, { ...side, assets: assetsOf(options.pairs) });
    for (const difference of [...prices.differences, ...(await compareSums(database, side))])
      count(difference);
    skipped.unobserved = prices.unobserved;
  }
  report.notCompared = listNotCompared(options, skipped);
  if (report.differences > 0) return { ...report, outcome: 'different' };
  const isCompared = report.blocks > 0 && report.undecided.unconfirmed === 0;
  return { ...report, outcome: isCompared ? 'equal' : 'not_compared' };

  /** Keeps the first and the last time. */
  function noteTimes(read: readonly ReadBlock[]): void {
    const [first, last] = [read[0]?.header.minedAt, read.at(-1)?.header.minedAt];
    if (first !== undefined && last !== undefined) times.splice(0, 2, times[0] ?? first, last);
  }

  /** The blocks from this one on that the nodes can give; none, with a report, if they can't give this one. */
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
          await judgeUnread(from, error);
          isWorthWaiting = false;
          return [];
        }
        await clock.wait(waitMs, signal);
      }
    }
  }

  async function judgeUnread(number: number, fault: Fault): Promise<void> {
    if (fault.code !== 'inconsistent') {
      // Throws when the nodes are away altogether.
      await nodes.head(signal);
      return count('not_served');
    }
    // Nodes that disagree about what no hash covers prove the block no more than one that lies, so each is heard alone.
    const isLone = options.witnesses.length < 2;
    const confirmed = isLone ? [notProved(number, fault)] : await hearEach({ from: number, to: number });
    if (confirmed === undefined) return count('unconfirmed');
    for (const difference of confirmed) count(difference);
  }

  async function compare(read: readonly ReadBlock[]): Promise<'compared' | 'reorganised'> {
    if (read.length === 0) return 'compared';
    const compared = await readSnapshot(database, (snapshot) => compareBatch(snapshot, read, context));
    if (compared === 'too many') {
      if (read.length === 1) count('too_many');
      else for (const one of read) if ((await compare([one])) === 'reorganised') return 'reorganised';
      return 'compared';
    }
    const { astray, blocks, swaps, verdicts } = compared;
    if (await isReorganising(astray.filter(({ header }) => header.number > finalizedNumber)))
      return 'reorganised';
    const all = [...astray.map(judgeAstray), ...verdicts];
    const differences = all.filter((verdict) => typeof verdict !== 'string');
    const confirmed = await confirm(read, differences);
    if (confirmed === 'reorganised') return confirmed;
    if (confirmed === 'unconfirmed') {
      report.undecided.unconfirmed += read.length;
      return 'compared';
    }
    report.blocks += blocks;
    report.swaps += swaps;
    report.awards += compared.awards;
    skipped.accrued += compared.accrued;
    skipped.unknownRule += compared.unknownRule;
    for (const verdict of all) if (typeof verdict === 'string') count(verdict);
    for (const difference of confirmed) {
      const known = await relocate(difference);
      if (known !== undefined) count(known);
    }
    return 'compared';
  }

  /** The differences that a quorum of the nodes confirms, all with one node; `unconfirmed` when too few of them answer. */
  async function confirm(
    read: readonly ReadBlock[],
    differences: readonly Difference[],
  ): Promise<readonly Difference[] | 'reorganised' | 'unconfirmed'> {
    const { witnesses } = options;
    const last = read.at(-1)?.header;
    if (witnesses.length < 2 || last === undefined) return differences;
    const anchor = await lookAtAnchor(last);
    if (anchor === 'reorganised') return anchor;
    if (differences.length === 0 && anchor === 'anchored') return [];
    return (
      (await hearEach({ from: read[0]?.header.number ?? last.number, to: last.number })) ?? 'unconfirmed'
    );
  }

  /** The differences of these blocks that a quorum of the nodes confirms; undefined when too few of them give the blocks. */
  async function hearEach(span: Span): Promise<readonly Difference[] | undefined> {
    const opinions: Opinion[] = [];
    for (const { name, nodes: own } of options.witnesses)
      opinions.push({ node: name, ...(await findDifferences(own, span)) });
    for (const { node, problem } of opinions) {
      const isKnown = report.unanswered.some((one) => one.node === node);
      if (problem !== undefined && !isKnown) report.unanswered.push({ node, message: problem });
    }
    const agreed = agreeOn(opinions, options.quorum);
    if (!agreed.isQuorate) return undefined;
    report.undecided.unconfirmed += agreed.unconfirmed.length;
    report.dissents += agreed.dissents.length;
    for (const dissent of agreed.dissents) options.onDissent(dissent);
    return agreed.differences;
  }

  /** Near the head nodes differ for a moment, and the follower may be about to handle a reorg: then it looks twice. */
  async function lookAtAnchor(last: BlockHeader): Promise<'anchored' | 'disputed' | 'reorganised'> {
    if (await isAnchored(last)) return 'anchored';
    if (last.number <= finalizedNumber) return 'disputed';
    const span = { from: last.number, to: last.number };
    const before = (await listStoredBlocks(database, span)).get(last.number)?.hash;
    await clock.wait(SETTLE_MS, signal);
    const after = (await listStoredBlocks(database, span)).get(last.number)?.hash;
    if (before !== after) return 'reorganised';
    return (await isAnchored(last)) ? 'anchored' : 'disputed';
  }

  /** Whether a quorum has this block: all below it follows from its parent hashes. Reports the nodes that have another. */
  async function isAnchored({ number, hash }: BlockHeader): Promise<boolean> {
    const headers = await Promise.all(
      options.witnesses.map(({ nodes: own }) => own.findHeader(number, signal).catch(ignoreFault)),
    );
    const votes = headers.filter((header) => header?.hash === hash).length;
    if (votes < quorumOf(options.witnesses.length, options.quorum)) return false;
    for (const [index, { name: node }] of options.witnesses.entries()) {
      const other = headers[index]?.hash;
      if (other === undefined || other === hash) continue;
      report.dissents += 1;
      options.onDissent({ node, block: number, message: `block ${number} is ${other}, elsewhere ${hash}` });
    }
    return true;
  }

  /** What differs where this node alone is believed, or why it does not give the blocks. */
  async function findDifferences(own: Witness['nodes'], { from, to }: Span): Promise<Omit<Opinion, 'node'>> {
    const blocks: ReadBlock[] = [];
    const alone = createReadAhead({ nodes: own, clock, extract, scrutinyOf: () => 'full' });
    try {
      for (let next = from; next <= to; next = from + blocks.length)
        blocks.push(...(await alone.next(next, { number: to, hash: undefined }, signal)));
    } catch (error) {
      if (!(error instanceof Fault) || signal.aborted) throw error;
      if (error.code === 'inconsistent' && from === to) return { differences: [notProved(from, error)] };
      return { differences: undefined, problem: messageOf(error) };
    }
    const compared = await readSnapshot(database, (snapshot) => compareBatch(snapshot, blocks, context));
    if (compared === 'too many')
      return { differences: undefined, problem: 'its blocks have too much to compare at once' };
    const verdicts = [...compared.astray.map(judgeAstray), ...compared.verdicts];
    return { differences: verdicts.filter((verdict) => typeof verdict !== 'string') };
  }

  function ignoreFault(error: unknown): undefined {
    if (!(error instanceof Fault) || signal.aborted) throw error;
  }

  /** A notification with a wrong block number differs where its transaction is, and only there. */
  async function relocate(difference: Difference): Promise<Difference | undefined> {
    const { what, notification } = difference;
    if (what !== 'unexpected' || notification === undefined) return difference;
    const number = await findBlockNumber(notification.txHash);
    if (number === undefined || number === difference.block) return difference;
    if (number >= range.from && number <= range.to) return undefined;
    const { repairs: _, mayCreditTwice: _2, ...rest } = difference;
    return {
      ...rest,
      message: `${rest.message}; its transaction is in block ${number}: compare that one too`,
    };
  }

  /** Where the nodes have a transaction; undefined when they have none. */
  async function findBlockNumber(txHash: Hash): Promise<number | undefined> {
    const calls = [{ method: 'eth_getTransactionReceipt', params: [txHash] }];
    return nodes
      .ask(
        calls,
        ([answer]) => {
          const { blockNumber } = Object(answer?.ok === true ? answer.result : undefined) as Record<
            string,
            unknown
          >;
          return typeof blockNumber === 'string' ? Number(blockNumber) : undefined;
        },
        signal,
      )
      .catch(ignoreFault);
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

type Span = { from: number; to: number };

const notProved = (number: number, fault: Fault) =>
  differenceOf('not_proved', number, `could not be proved: ${messageOf(fault)}`);

function emptyReport(quorum: VerifyReport['quorum']): VerifyReport {
  const counts = {
    blocks: 0,
    notifications: 0,
    swaps: 0,
    awards: 0,
    differences: 0,
    dissents: 0,
    ...{ notCompared: [], quorum, unanswered: [] },
    undecided: { ...nothingUndecided },
  };
  return { outcome: 'equal', range: undefined, ...counts };
}
