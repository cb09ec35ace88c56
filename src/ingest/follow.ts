/**
 * Follows the chain. One step either commits the next blocks with their notifications, or switches to the branch that the
 * chain moved to.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Verifier } from '../chain/proof/verifier.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { Log } from '../core/log.ts';
import type { Step, StepOutcome } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import type { BlockId } from '../domain/block.ts';
import { findBlockHash, findChain, findTip, isOrphaned } from '../store/blocks/blocks.ts';
import { noteTimeline } from '../store/blocks/commit-lock.ts';
import type { Backfill } from './backfill.ts';
import { changedAgain, createBranchReader, findAncestor, linkedPrefix } from './branch.ts';
import { createNodeComparison } from './compare-nodes.ts';
import { createFinality } from './finality.ts';
import { explainUnavailable, lowerBranch, unconfirmedBranch } from './follow-faults.ts';
import { pinChain } from './pin-chain.ts';
import { type CommitOptions, createProvedCommit } from './proved-commit.ts';
import { createReadAhead } from './read-ahead.ts';
import type { Extract, ReadBlock } from './read-block.ts';
import { reportCommit, reportReorg } from './report-blocks.ts';
import { createWorkerCheck, type WorkerCheck } from './worker-check.ts';

export type FollowerOptions = CommitOptions & {
  nodes: ChainNodes;
  log: Log;
  metrics: Metrics;
  chainId: number;
  startBlock: 'latest' | number;
  /** Blocks this deep below the tip are final as long as no quorum of the nodes has named a `finalized` block. */
  finalityDepth: number;
  backfill: Backfill;
  extract: Extract;
  /** Checks that the chain was observed to honor: stored with the blocks, and enforced by the next process that follows. */
  checks: Pick<Verifier, 'enforcedChecks' | 'observedTypes' | 'enforce'>;
  /** On Citus. */
  checkWorkers?: WorkerCheck;
  /** Called after a commit that left notifications to `createDeferredWriter`. */
  onDeferred?(): void;
  /** Whether this process is the one that follows. The others stand by. */
  isLeader(): Promise<boolean>;
  /**
   * The session that makes it the leader. The next one may be of a server that lacks commits of the last one. Without it, the server has no
   * standby.
   */
  term?(): object | undefined;
};

export type Follower = {
  /** Binds database and nodes to one chain. @throws Fault `conflict` when they are of different chains. */
  pin(signal: AbortSignal): Promise<void>;
  step: Step;
};

/** A commit of few blocks waits this long for requests that are under way, because each commit costs the same dozen statements. */
const COMMIT_WAIT_MS = 250;
/** This far behind, the follower reads the head only once per HEAD_MS_MAX. */
const BEHIND_BLOCKS_MIN = 200;
const HEAD_MS_MAX = 1_000;

/**
 * A follower that commits only blocks that a quorum of the nodes anchors (docs/explanation/quorum.md). Each step reads the
 * tip from the database, so it continues after any crash, and commits whole batches. The step throws a Fault when no node
 * can give the next block (the loop tries again), and `inconsistent` when it holds: without a quorum, at a branch lower
 * than the stored one, and at a reorg from below the final block.
 */
// oxlint-disable-next-line max-lines-per-function -- the decisions of one step in one place, so that they read as one story
export function createFollower(options: FollowerOptions): Follower {
  const { database, nodes, clock, log, metrics, unhashedProof } = options;
  const finality = createFinality(options);
  const readAhead = createReadAhead({
    nodes: { bundles: nodes.anchored },
    ...{ clock, extract: options.extract, patienceMs: COMMIT_WAIT_MS, finalBelow: finality.below },
    ...(unhashedProof && {
      scrutinyOf: unhashedProof.fullChecks.scrutinyOf,
      onLie: unhashedProof.fullChecks.lied,
      onUnconfirmed: unhashedProof.fullChecks.unconfirmed,
    }),
  });
  const { commitProved, forget } = createProvedCommit({ ...options, readAhead });
  const readBranch = createBranchReader(readAhead);
  const readHead = cacheHead(nodes, clock);
  const { checkWorkers = createWorkerCheck(options) } = options;
  const compareNodes = createNodeComparison({ database, nodes, clock });
  /** Since when the follower has held, by the steady clock. */
  let heldSinceMs: number | undefined;
  let isPinned = false;
  /** The tip of the branch that was left last. */
  let leftTip: Hash | undefined;
  let leads = false;
  let ledTerm: object | undefined;
  let isFarBehind = false;
  let hasWarnedOfStart = false;
  let hasWarnedOfTimeline = false;

  async function step(signal: AbortSignal): Promise<StepOutcome> {
    try {
      return await advance(signal);
    } catch (error) {
      // The cause may last for hours, and the chain goes on meanwhile.
      readAhead.dropUnsettled();
      throw error;
    }
  }

  async function advance(signal: AbortSignal): Promise<StepOutcome> {
    const isLeader = await options.isLeader();
    if (!isPinned) await pin(signal);
    // Before the nodes are asked, because deferred notifications are written without them.
    const term = isLeader ? options.term?.() : undefined;
    if (term !== ledTerm && term !== undefined) await noteFailOver();
    ledTerm = term;
    if (isLeader) await compareNodes(heldSinceMs, signal);
    // A standby process reads the head too, because its readiness depends on its nodes.
    const head = await readHead(isFarBehind, signal);
    if (isLeader && !leads) await takeOver();
    leads = isLeader;
    if (!isLeader) {
      readAhead.drop();
      return 'idle';
    }
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

  /** The database may have lost commits. */
  async function noteFailOver(): Promise<void> {
    forget();
    reportMoved(await noteTimeline(database));
  }

  function reportMoved(after: number | 'hidden' | undefined): void {
    if (after === 'hidden') {
      if (!hasWarnedOfTimeline) log.warn({}, 'follow.timeline_hidden');
      hasWarnedOfTimeline = true;
    } else if (after !== undefined) log.warn({ after }, 'follow.ids_moved');
  }

  async function pin(signal: AbortSignal): Promise<void> {
    finality.resume((await pinChain(options, signal)).finalizedNumber);
    isPinned = true;
  }

  /** Another process may have followed, and observed more checks, since this one started. */
  async function takeOver(): Promise<void> {
    unhashedProof?.fullChecks.begin();
    const chain = await findChain(database);
    if (chain !== undefined) options.checks.enforce(chain.enforcedChecks, chain.unprovedTypes);
  }

  /** Commits the next blocks, or switches to another branch if they do not follow the tip. */
  async function append(tip: BlockId | undefined, head: BlockId, signal: AbortSignal): Promise<StepOutcome> {
    const startedMs = clock.steadyMs();
    const from = tip === undefined ? await findStart(head) : tip.number + 1;
    if (from > head.number) return waitForStart(from, head);
    const read = await readAhead.next(from, head, signal).catch(async (error: unknown) => {
      throw await explainUnavailable(error, { nodes, from, head, isFirst: tip === undefined }, signal);
    });
    const [first] = read;
    if (first === undefined) return 'idle';
    if (tip !== undefined && first.header.parentHash !== tip.hash)
      return switchBranch(tip, first.header.number, head, signal);
    return commit(linkedPrefix(read), { tip, head, startedMs }, signal);
  }

  /**
   * Handles a head that is not above the tip. A stored block is ignored. Another block at the tip's height is a reorg,
   * unless that branch was left before: otherwise a lying node could send the follower back and forth between equal
   * branches. A lower branch is not followed before it is as long as the stored one.
   */
  async function atOrBehindTip(tip: BlockId, head: BlockId, signal: AbortSignal): Promise<StepOutcome> {
    metrics.chainLagSeconds.set(0);
    if (head.hash === tip.hash) {
      await finality.keepUp(tip, signal);
      return 'idle';
    }
    if (head.number === tip.number)
      return (await isOrphaned(database, head)) ? 'idle' : switchBranch(tip, head.number, head, signal);
    const stored = await findBlockHash(database, head.number);
    if (stored === head.hash) return 'idle';
    throw lowerBranch({ tip, head, stored, nodeCount: nodes.quorum().nodes });
  }

  /**
   * Switches to the branch of the corroborated block at `number`, which does not descend from the tip. It reads and proves
   * the new branch first. Then one transaction orphans the old branch and stores the new one.
   */
  async function switchBranch(
    tip: BlockId,
    number: number,
    head: BlockId,
    signal: AbortSignal,
  ): Promise<StepOutcome> {
    const startedMs = clock.steadyMs();
    // Blocks read ahead may be older than the reorg, and a node may have switched chains, so ask all nodes again.
    readAhead.drop();
    nodes.doubt();
    const branch = await nodes.corroborated(number, signal);
    if (branch === undefined || branch.parentHash === tip.hash || branch.hash === tip.hash)
      throw unconfirmedBranch(number, nodes.quorum().nodes);
    await finality.refresh(tip, signal);
    // What the new branch lacks is withdrawn, so no single node may decide that, however far the head is.
    if (leftTip !== tip.hash) unhashedProof?.fullChecks.begin();
    leftTip = tip.hash;
    const ancestor = await findAncestor(branch, {
      database,
      finalizedNumber: finality.number(),
      quorum: nodes.quorum(),
      parentOf: (child) => nodes.parentOf(child, signal),
    });
    const blocks = await readBranch(ancestor, head, signal);
    // If the first block is a stored one, the nodes left the branch of `ancestor` while it was read.
    const [first] = blocks;
    if (first !== undefined && (await findBlockHash(database, first.header.number)) === first.header.hash)
      throw changedAgain(first.header.number);
    return commit(blocks, { tip, head, startedMs, ancestor }, signal);
  }

  async function commit(
    blocks: readonly ReadBlock[],
    { tip, head, startedMs, ancestor }: CommitContext,
    signal: AbortSignal,
  ): Promise<StepOutcome> {
    const newest = blocks.at(-1)?.header;
    if (newest === undefined) return 'idle';
    if (database.isDistributed === true && (await checkWorkers())) return 'worked';
    const target = { tip, newest, ancestor, finalizedNumber: finality.number() };
    const committed = await commitProved(blocks, target, signal).catch(async (error: unknown) => {
      if (await leaveOutSilent(error)) return { outcome: 'lost' as const };
      throw error;
    });
    if (committed.outcome !== 'committed') return 'worked';
    reportMoved(committed.idsAfter);
    if (committed.hasDeferred) options.onDeferred?.();
    if (tip !== undefined && ancestor !== undefined)
      reportReorg(options, { tip, newest, ancestor, depth: committed.orphanedCount });
    reportCommit(options, { blocks, notifications: committed.notificationCount, head, startedMs });
    // After the commit, so that neither the wait for the nodes nor their Fault delays these blocks.
    await finality.keepUp(newest, signal);
    return 'worked';
  }

  /** On Citus: if a worker doesn't answer, the next step goes on without its shards (ingest/catch-up.ts). */
  async function leaveOutSilent(error: unknown): Promise<boolean> {
    if (!(error instanceof Fault) || error.code !== 'unavailable') return false;
    return checkWorkers(messageOf(error));
  }

  /** The first block: the stored start if there is one (a reorg may have orphaned all blocks), otherwise the configured one. */
  async function findStart(head: BlockId): Promise<number> {
    const startNumber = (await findChain(database))?.startNumber;
    return startNumber ?? (options.startBlock === 'latest' ? head.number : options.startBlock);
  }

  /** Warns once that the first block is not mined yet. */
  function waitForStart(startBlock: number, head: BlockId): StepOutcome {
    if (!hasWarnedOfStart) log.warn({ startBlock, head: head.number }, 'follow.waits_for_start');
    hasWarnedOfStart = true;
    return 'idle';
  }

  return { pin, step };
}

type CommitContext = { tip: BlockId | undefined; head: BlockId; startedMs: number; ancestor?: BlockId };

/** While far behind, returns the last head again for up to a second, because a busy node takes as long for it as for blocks. */
function cacheHead(
  nodes: Pick<ChainNodes, 'head'>,
  clock: Clock,
): (isFarBehind: boolean, signal: AbortSignal) => Promise<BlockId> {
  let last: BlockId | undefined;
  let readMs = Number.NEGATIVE_INFINITY;
  return async (isFarBehind, signal) => {
    const nowMs = clock.steadyMs();
    if (last !== undefined && isFarBehind && nowMs - readMs < HEAD_MS_MAX) return last;
    last = await nodes.head(signal);
    readMs = nowMs;
    return last;
  };
}
