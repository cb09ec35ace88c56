/**
 * Following the chain: one step fetches the next blocks and commits them with their notifications, or
 * switches to the branch that the chain went over to.
 */
import type { Finalized } from '../chain/nodes/agreement.ts';
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { LASTING_MS } from '../chain/nodes/progress.ts';
import type { Verifier } from '../chain/proof/verifier.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { Log } from '../core/log.ts';
import type { Step, StepOutcome } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import type { BlockId } from '../domain/block.ts';
import {
  findBlockHash,
  findChain,
  findFirst,
  findKnownHash,
  findTip,
  insertChain,
  isOrphaned,
  requireChain,
} from '../store/blocks/blocks.ts';
import type { Database, Tx } from '../store/db/db.ts';
import type { DeferralLimits } from '../store/matching/deferred.ts';
import type { Backfill } from './backfill.ts';
import type { BlockProcessor } from './block-processor.ts';
import { changedAgain, createBranchReader, findAncestor, linkedPrefix } from './branch.ts';
import { absurdHead, adviseOnSilence, lowerBranch, prunedBlock, unconfirmedBranch } from './follow-faults.ts';
import { type BeyondHashes, createProvedCommit } from './proved-commit.ts';
import { createReadAhead, type Extract, type ReadBlock } from './read-ahead.ts';

export type FollowerOptions = {
  database: Database;
  nodes: ChainNodes;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  chainId: number;
  startBlock: 'latest' | number;
  confirmations: number;
  /** Depth of finality where the nodes have no `finalized` tag. */
  finalityDepth: number;
  backfill: Backfill;
  /** Written in this order, undone in the opposite one. */
  processors: readonly BlockProcessor[];
  extract: Extract;
  /**
   * What this chain was seen to honour: stored with the next blocks, and taken over from who followed before.
   */
  checks: Pick<Verifier, 'learned' | 'enforce'>;
  beyondHashes?: BeyondHashes;
  /** What a commit leaves to `createDeferredWriter`; the usual limits unless given. */
  deferral?: DeferralLimits;
  /** Called after a commit that left something to it. */
  onDeferred?(): void;
  /** Whether this process is the one that follows; others stand by. */
  isLeader(): Promise<boolean>;
};

export type Follower = {
  /** Binds database and nodes to one another. @throws Fault `conflict` when they are of different chains. */
  pin(signal: AbortSignal): Promise<void>;
  step: Step;
};

/** A small commit waits so long for blocks that are on their way: each costs the same dozen statements. */
const COMMIT_WAIT_MS = 250;
/** Being this far behind, the head is asked for now and then only. */
const BEHIND_BLOCKS_MIN = 200;
const HEAD_MS_MAX = 1_000;
/** Ethereum nodes that prune keep the states of so many blocks (geth's default), which traces need. */
const PRUNED_DEPTH_MIN = 128;
/** How often the nodes are asked for the final block. */
const FINALIZED_MS = 10_000;
/** How often nodes that vote differently are compared with the stored blocks. */
const COMPARE_MS = 1_000;

/**
 * A follower that commits only blocks that a quorum of the nodes anchors (docs/explanation/quorum.md). Each step reads
 * the tip from the database, so it continues after any crash, and commits whole batches. The step throws a
 * Fault when no node can give the next block (the loop tries again), and `inconsistent` when it holds:
 * without a quorum, at a branch lower than the stored one, and at a reorg from below the final block.
 */
export function createFollower(options: FollowerOptions): Follower {
  const { database, nodes, clock, log, metrics } = options;
  const { beyondHashes } = options;
  // Only blocks that a quorum anchors reach the database.
  const readAhead = createReadAhead({
    nodes: { bundles: nodes.anchored },
    ...{ clock, extract: options.extract, patienceMs: COMMIT_WAIT_MS },
    ...(beyondHashes && {
      scrutinyOf: beyondHashes.scrutiny.of,
      onLie: beyondHashes.scrutiny.lied,
      onDispute: beyondHashes.scrutiny.disputed,
    }),
  });
  const commitProved = createProvedCommit({ database, clock, readAhead, beyondHashes });
  const readBranch = createBranchReader(readAhead);
  let comparedAtMs = Number.NEGATIVE_INFINITY;
  /** Since when the nodes have been on a branch that is not followed, by the steady clock. */
  let heldSinceMs: number | undefined;
  let isPinned = false;
  let leads = false;
  let lastHead: BlockId | undefined;
  let headAtMs = 0;
  let isFarBehind = false;
  let finalizedAt = Number.NEGATIVE_INFINITY;
  let finalizedNumber = 0;
  let hasToldOfStart = false;
  /** Up to where everything is released, for as long as the tip is the one that this was committed with. */
  let released: { tip: Hash; number: number } | undefined;

  async function step(signal: AbortSignal): Promise<StepOutcome> {
    const isLeader = await options.isLeader();
    if (!isPinned) await pin(signal);
    if (isLeader) await compareNodes(signal);
    // Who stands by asks too: its readiness tells whether its nodes would do.
    const head = await findHead(signal);
    if (isLeader && !leads) await takeOver();
    leads = isLeader;
    if (!isLeader) return 'idle';
    const tip = await findTip(database);
    metrics.chainBlockNumber.set({ stage: 'head' }, head.number);
    isFarBehind = tip !== undefined && head.number - tip.number > BEHIND_BLOCKS_MIN;
    try {
      const isAbove = tip === undefined || head.number > tip.number;
      const outcome = await (isAbove ? append(tip, head, signal) : atOrBehindTip(tip, head, signal));
      heldSinceMs = undefined;
      return outcome;
    } catch (error) {
      if (error instanceof Fault && error.code === 'inconsistent') heldSinceMs ??= clock.steadyMs();
      throw error;
    }
  }

  /** Before the first block: another one may have followed since this process started. */
  async function takeOver(): Promise<void> {
    beyondHashes?.scrutiny.begin();
    const chain = await findChain(database);
    if (chain !== undefined) options.checks.enforce(chain.enforcedChecks);
  }

  /** Far behind, the head of a moment ago will do: a busy node takes as long for it as for blocks. */
  async function findHead(signal: AbortSignal): Promise<BlockId> {
    const nowMs = clock.now().getTime();
    if (lastHead !== undefined && isFarBehind && nowMs - headAtMs < HEAD_MS_MAX) return lastHead;
    lastHead = await nodes.head(signal);
    headAtMs = nowMs;
    return lastHead;
  }

  /** Nodes whose chain differs from what is stored are found before they are asked for blocks. */
  async function compareNodes(signal: AbortSignal): Promise<void> {
    const nowMs = clock.now().getTime();
    const sinceMs = nowMs - comparedAtMs;
    if (sinceMs >= 0 && sinceMs < COMPARE_MS) return;
    comparedAtMs = nowMs;
    const readStored = async () => {
      const [first, tip] = [await findFirst(database), await findTip(database)];
      const hashAt = (number: number) => findBlockHash(database, number);
      const isLeft = heldSinceMs !== undefined && clock.steadyMs() - heldSinceMs >= LASTING_MS;
      return first && tip && { from: first.number, to: tip.number, hashAt, isLeft };
    };
    await nodes.compareWith(readStored, signal, heldSinceMs === undefined ? 'doubtful' : 'all');
  }

  /**
   * A head that is not above the tip. A stored block is ignored. Another block at the tip's height is a
   * reorg, unless that branch was left before: otherwise a lying node could send the follower back and forth
   * between equal branches. A lower branch is not followed before it is as long as the stored one.
   */
  async function atOrBehindTip(tip: BlockId, head: BlockId, signal: AbortSignal): Promise<StepOutcome> {
    metrics.chainLagSeconds.set(0);
    if (head.hash === tip.hash) return 'idle';
    if (head.number === tip.number)
      return (await isOrphaned(database, head)) ? 'idle' : switchBranch(tip, head.number, head, signal);
    const stored = await findBlockHash(database, head.number);
    if (stored === head.hash) return 'idle';
    throw lowerBranch({ tip, head, stored, nodeCount: nodes.quorum().nodes });
  }

  async function append(tip: BlockId | undefined, head: BlockId, signal: AbortSignal): Promise<StepOutcome> {
    const startedAt = clock.steadyMs();
    const from = tip === undefined ? await firstNumber(head) : tip.number + 1;
    if (from > head.number) return waitForStart(from, head);
    const read = await readAhead.next(from, head, signal).catch(async (error: unknown) => {
      const isFar =
        error instanceof Fault && error.code === 'unavailable' && head.number - from >= PRUNED_DEPTH_MIN;
      if (!isFar || signal.aborted) throw error;
      const isHeadReal = await isBuiltUpon(head, signal);
      throw isHeadReal
        ? prunedBlock(error, { from, head, isFirst: tip === undefined })
        : absurdHead(error, head);
    });
    const [first] = read;
    if (first === undefined) return 'idle';
    if (tip !== undefined && first.header.parentHash !== tip.hash)
      return switchBranch(tip, first.header.number, head, signal);
    return commit(tip, linkedPrefix(read), { head, startedAt }, signal);
  }

  async function commit(
    tip: BlockId | undefined,
    blocks: readonly ReadBlock[],
    { head, startedAt, ancestor }: { head: BlockId; startedAt: number; ancestor?: number },
    signal: AbortSignal,
  ): Promise<StepOutcome> {
    const newest = blocks.at(-1);
    if (newest === undefined) return 'idle';
    // Only what is stored confirms: the head is a node's word.
    const releasedNumber = newest.header.number - options.confirmations;
    // After another follower's commit or fork nothing is known: what was released once may be held again.
    const isKnown = ancestor === undefined && tip !== undefined && tip.hash === released?.tip;
    const known = isKnown ? released?.number : undefined;
    const committed = await commitProved(
      {
        expectedTip: tip,
        reorg:
          ancestor === undefined ? undefined : { ancestorNumber: ancestor, undo: (tx) => undo(tx, ancestor) },
        blocks,
        releasedNumber,
        releasedBefore: known,
        finalizedNumber,
        corroboratedNumber: newest.header.number,
        enforcedChecks: options.checks.learned(),
        ...(options.deferral && { deferral: options.deferral }),
        async also(tx) {
          for (const processor of options.processors) await processor.write(tx, blocks);
        },
      },
      signal,
    );
    if (committed === 'lied' || committed.outcome === 'lost') return 'worked';
    if (committed.hasDeferred) options.onDeferred?.();
    released = { tip: newest.header.hash, number: releasedNumber };
    if (tip !== undefined && ancestor !== undefined)
      reportReorg(tip, newest.header, { ancestor, depth: committed.orphanedCount });
    report(blocks, committed.notificationCount, head, startedAt);
    // After the commit: neither the wait for it nor its failure costs the blocks anything.
    await refreshFinalized(newest.header, signal);
    return 'worked';
  }

  /** Whether a node has the block below the head, as every node does of a real one. */
  async function isBuiltUpon(head: BlockId, signal: AbortSignal): Promise<boolean> {
    try {
      return (await nodes.findHeader(head.number - 1, signal)) !== undefined;
    } catch (error) {
      if (error instanceof Fault) return false;
      throw error;
    }
  }

  /** Where to begin: where it began before (a fork may have undone everything), else as configured. */
  async function firstNumber(head: BlockId): Promise<number> {
    const startNumber = (await findChain(database))?.startNumber;
    return startNumber ?? (options.startBlock === 'latest' ? head.number : options.startBlock);
  }

  /** Logs once that the first block is not mined yet; nothing else happens until then. */
  function waitForStart(startBlock: number, head: BlockId): StepOutcome {
    if (!hasToldOfStart) log.warn({ startBlock, head: head.number }, 'follow.waits_for_start');
    hasToldOfStart = true;
    return 'idle';
  }

  /**
   * Switches to the branch of the corroborated block at `number`, which does not descend from the tip: reads
   * and proves the branch first, and then one transaction undoes the old one and stores the new one.
   */
  async function switchBranch(
    tip: BlockId,
    number: number,
    head: BlockId,
    signal: AbortSignal,
  ): Promise<StepOutcome> {
    const startedAt = clock.steadyMs();
    // Blocks read ahead may be older than the reorg, and a node may have switched chains, so all are asked
    // again.
    readAhead.drop();
    nodes.doubt();
    const branch = await nodes.corroborated(number, signal);
    if (branch === undefined || branch.parentHash === tip.hash || branch.hash === tip.hash)
      throw unconfirmedBranch(number, nodes.quorum().nodes);
    await refreshFinalized(tip, signal);
    const ancestor = await findAncestor(branch, {
      database,
      finalizedNumber,
      quorum: nodes.quorum(),
      parentOf: (child) => nodes.parentOf(child, signal),
    });
    const blocks = await readBranch(ancestor, head, signal);
    // The ancestor is that of a branch which the nodes have left: this one leaves ours further up.
    const [first] = blocks;
    if (first !== undefined && (await findBlockHash(database, first.header.number)) === first.header.hash)
      throw changedAgain(first.header.number);
    return commit(tip, blocks, { head, startedAt, ancestor: ancestor.number }, signal);
  }

  async function undo(tx: Tx, ancestor: number): Promise<void> {
    for (const processor of options.processors.toReversed()) await processor.undo(tx, ancestor);
  }

  function reportReorg(tip: BlockId, branch: BlockId, reorg: { ancestor: number; depth: number }): void {
    metrics.chainReorgs.inc();
    metrics.chainReorgDepth.observe(reorg.depth);
    log.warn({ ...reorg, tip: tip.number, hash: tip.hash, branch: branch.hash }, 'chain.reorg');
  }

  async function pin(signal: AbortSignal): Promise<void> {
    const before = await findChain(database);
    if (before !== undefined) {
      requireChain(before, options.chainId);
      // The stored genesis block decides: nodes with another one are refused.
      nodes.pin({ chainId: before.chainId, genesisHash: before.genesisHash });
    }
    const identity = await nodes.identify(signal).catch(adviseOnSilence);
    if (before === undefined) await insertChain(database, identity.chainId, identity.genesisHash);
    const stored = (await findChain(database)) ?? { ...identity, finalizedNumber: 0 };
    requireChain(stored, options.chainId);
    nodes.pin({ chainId: stored.chainId, genesisHash: stored.genesisHash ?? identity.genesisHash });
    finalizedNumber = stored.finalizedNumber;
    isPinned = true;
  }

  /**
   * What is final never moves back (reference: chain.md, lesson 10), and is a block of ours, not a node's
   * word. Where a tag names one that is not stored yet, what lies as deep below the tip as without a tag is
   * older than that.
   */
  async function refreshFinalized(tip: BlockId, signal: AbortSignal): Promise<void> {
    const now = clock.now().getTime();
    if (now - finalizedAt < FINALIZED_MS) return;
    const tagged = await nodes.finalized(signal);
    const deep = { number: tip.number - options.finalityDepth, hash: undefined };
    const named = tagged === undefined || tagged.number > tip.number ? deep : tagged;
    const found = tagged === undefined || (await isOurs(named, signal)) ? named.number : 0;
    // What another follower found while this one stood by counts too.
    const stored = (await findChain(database))?.finalizedNumber ?? 0;
    finalizedNumber = Math.max(finalizedNumber, stored, found);
    finalizedAt = now;
    metrics.chainBlockNumber.set({ stage: 'finalized' }, finalizedNumber);
  }

  /** Whether a quorum has our block at this height, or the parent of our first one. */
  async function isOurs({ number, hash }: Finalized, signal: AbortSignal): Promise<boolean> {
    const known = await findKnownHash(database, number);
    return known !== undefined && known === (hash ?? (await nodes.corroborated(number, signal))?.hash);
  }

  function report(
    blocks: readonly ReadBlock[],
    notifications: number,
    head: BlockId,
    startedAt: number,
  ): void {
    const newest = blocks.at(-1)?.header;
    if (newest === undefined) return;
    const transfers = blocks.flatMap((block) => block.transfers);
    metrics.ingestBlocks.inc(blocks.length);
    for (const kind of ['transaction', 'internal', 'token']) {
      const count = transfers.filter((transfer) => transfer.kind === kind).length;
      if (count > 0) metrics.ingestTransfers.inc({ kind }, count);
    }
    metrics.ingestNotifications.inc(notifications);
    metrics.chainBlockNumber.set({ stage: 'ingested' }, newest.number);
    const now = clock.now().getTime();
    metrics.chainLagSeconds.set(
      newest.number < head.number ? Math.max(0, (now - newest.minedAt.getTime()) / 1000) : 0,
    );
    const fields = {
      block: newest.number,
      blocks: blocks.length,
      head: head.number,
      transfers: transfers.length,
    };
    const isBackfill = options.backfill.advance(fields);
    log[isBackfill ? 'debug' : 'info'](
      { ...fields, notifications, durationMs: Math.round(clock.steadyMs() - startedAt) },
      'blocks.committed',
    );
  }

  return { pin, step };
}
