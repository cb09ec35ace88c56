/**
 * Following the chain: one step fetches the next blocks and commits them with their notifications, or undoes a fork.
 */
import type { ChainNodes } from '../chain/nodes.ts';
import type { Verifier } from '../chain/verifier.ts';
import type { BlockHeader, BlockId } from '../core/block.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import type { Log } from '../core/log.ts';
import type { Step, StepOutcome } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import {
  type Committed,
  commitBlocks,
  findBlockHash,
  findChain,
  findTip,
  insertChain,
  requireChain,
  rollbackTo,
} from '../store/blocks.ts';
import type { Database, Db } from '../store/db.ts';
import type { Backfill } from './backfill.ts';
import { createReadAhead, type Extract, type ReadBlock } from './read-ahead.ts';
import type { Scrutiny } from './scrutiny.ts';
import type { Vouch } from './vouch.ts';

/** What else is taken from blocks and written in their transaction: swap pairs, points. */
export type Ledger = {
  write(tx: Db, blocks: readonly ReadBlock[]): Promise<void>;
  /** Undoes what was written for all blocks above this one. */
  undo(tx: Db, ancestorNumber: number): Promise<void>;
};

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
  ledgers: readonly Ledger[];
  extract: Extract;
  /** What this chain was seen to honour: stored with the next blocks, and taken over from who followed before. */
  checks: Pick<Verifier, 'learned' | 'enforce'>;
  /** Proof of what no hash covers; without it the node that gave a block is believed. */
  beyondHashes?: { scrutiny: Scrutiny; vouch: Vouch };
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
/** How often the nodes are asked what is final. */
const FINALIZED_MS = 10_000;

/**
 * A follower, whose step reads the tip from the database, so that it continues after any end, and commits whole batches.
 * The step throws a Fault when no node can give the next block (the loop tries again), `inconsistent` at a fork below
 * finality.
 */
export function createFollower(options: FollowerOptions): Follower {
  const { database, nodes, clock, log, metrics } = options;
  const { scrutiny, vouch } = options.beyondHashes ?? {};
  const readAhead = createReadAhead({
    ...{ nodes, clock, extract: options.extract, patienceMs: COMMIT_WAIT_MS },
    ...(scrutiny !== undefined && { scrutinyOf: scrutiny.of }),
  });
  let isPinned = false;
  let leads = false;
  let lastHead: BlockHeader | undefined;
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
    // Who stands by asks too: its readiness tells whether its nodes would do.
    const head = await findHead(signal);
    if (isLeader && !leads) await takeOver();
    leads = isLeader;
    if (!isLeader) return 'idle';
    const tip = await findTip(database);
    metrics.chainBlockNumber.set({ stage: 'head' }, head.number);
    isFarBehind = tip !== undefined && head.number - tip.number > BEHIND_BLOCKS_MIN;
    if (tip !== undefined && head.number <= tip.number) return atOrBehindTip(tip, head, signal);
    return append(tip, head, signal);
  }

  /** Before the first block: another one may have followed since this process started. */
  async function takeOver(): Promise<void> {
    const chain = await findChain(database);
    if (chain !== undefined) options.checks.enforce(chain.enforcedChecks);
  }

  /** Far behind, the head of a moment ago will do: a busy node takes as long for it as for blocks. */
  async function findHead(signal: AbortSignal): Promise<BlockHeader> {
    const nowMs = clock.now().getTime();
    if (lastHead !== undefined && isFarBehind && nowMs - headAtMs < HEAD_MS_MAX) return lastHead;
    lastHead = await nodes.head(signal);
    headAtMs = nowMs;
    return lastHead;
  }

  /** A head that is not news: ours or older is ignored; another hash at the tip's height is a fork. */
  async function atOrBehindTip(tip: BlockId, head: BlockHeader, signal: AbortSignal): Promise<StepOutcome> {
    metrics.chainLagSeconds.set(0);
    if (head.number < tip.number || head.hash === tip.hash) return 'idle';
    return followFork(tip, head, signal);
  }

  async function append(
    tip: BlockId | undefined,
    head: BlockHeader,
    signal: AbortSignal,
  ): Promise<StepOutcome> {
    const startedAt = clock.now().getTime();
    const from = tip === undefined ? await firstNumber(head) : tip.number + 1;
    if (from > head.number) return waitForStart(from, head);
    const read = await readAhead.next(from, head, signal).catch((error: unknown) => {
      throw withAdvice(error, { from, depth: head.number - from, isFirst: tip === undefined });
    });
    const [first] = read;
    if (first === undefined) return 'idle';
    if (tip !== undefined && first.header.parentHash !== tip.hash) return askAgain(tip, first.header, signal);
    const blocks = linkedPrefix(read);
    const newest = blocks.at(-1) ?? first;
    // Only what is stored confirms: the head is a node's word.
    const releasedNumber = newest.header.number - options.confirmations;
    // After another follower's commit or fork nothing is known: what was released once may be held again.
    const known = tip !== undefined && tip.hash === released?.tip ? released.number : undefined;
    const vouching = vouch?.(blocks);
    const commit = (): Promise<Committed> =>
      commitBlocks(database, {
        ...(vouching !== undefined && { findUnproved: vouching.findUnproved }),
        expectedTip: tip,
        blocks,
        releasedNumber,
        releasedBefore: known,
        finalizedNumber,
        enforcedChecks: options.checks.learned(),
        now: clock.now(),
        async also(tx) {
          for (const ledger of options.ledgers) await ledger.write(tx, blocks);
        },
      });
    let committed = await commit();
    // Each round proves what the one before found; only a record that was made meanwhile adds to it.
    while (committed.outcome === 'unproved') {
      const liedAbout = await vouching?.prove(committed.transfers, signal);
      if (liedAbout !== undefined) {
        scrutiny?.suspect(liedAbout);
        readAhead.drop();
        return 'worked';
      }
      committed = await commit();
    }
    if (committed.outcome === 'lost') return 'worked';
    released = { tip: newest.header.hash, number: releasedNumber };
    report(blocks, committed.notificationCount, head, startedAt);
    // After the commit: neither the wait for it nor its failure costs the blocks anything.
    await refreshFinalized(newest.header, signal);
    return 'worked';
  }

  /** Where to begin: where it began before (a fork may have undone everything), else as configured. */
  async function firstNumber(head: BlockHeader): Promise<number> {
    const startNumber = (await findChain(database))?.startNumber;
    return startNumber ?? (options.startBlock === 'latest' ? head.number : options.startBlock);
  }

  /** A first block that is not mined yet is told once: nothing else happens until then. */
  function waitForStart(startBlock: number, head: BlockHeader): StepOutcome {
    if (!hasToldOfStart) log.warn({ startBlock, head: head.number }, 'follow.waits_for_start');
    hasToldOfStart = true;
    return 'idle';
  }

  /** What was read ahead may be of a branch that is gone: only what the nodes say now is a fork. */
  async function askAgain(tip: BlockId, read: BlockHeader, signal: AbortSignal): Promise<StepOutcome> {
    readAhead.drop();
    const branch = await nodes.findHeader(read.number, signal);
    if (branch === undefined || branch.parentHash === tip.hash)
      throw new Fault('unavailable', `the nodes do not agree about block ${read.number}: asking again`);
    return followFork(tip, branch, signal);
  }

  /** Walks back from a block whose parent is not ours to the newest common block, and undoes what lies above it. */
  async function followFork(tip: BlockId, branch: BlockHeader, signal: AbortSignal): Promise<StepOutcome> {
    if (branch.number > tip.number + 1) {
      throw new Fault('inconsistent', `block ${branch.number} came as the one after ${tip.number}`);
    }
    await confirmBranch(branch, signal);
    await refreshFinalized(tip, signal);
    let child = branch;
    for (;;) {
      const stored = await findBlockHash(database, child.number - 1);
      // Below the first block that was ever stored there is nothing to undo.
      if (stored === child.parentHash || stored === undefined) break;
      if (child.number - 1 <= finalizedNumber) {
        throw new Fault(
          'inconsistent',
          `a fork from below the final block ${finalizedNumber}: holding at ${tip.number} (${tip.hash})`,
        );
      }
      child = await getParent(child, signal);
    }
    const ancestor = child.number - 1;
    const undone = await rollbackTo(database, {
      ancestorNumber: ancestor,
      expectedTip: tip,
      now: clock.now(),
      async also(tx) {
        for (const ledger of options.ledgers.toReversed()) await ledger.undo(tx, ancestor);
      },
    });
    if (undone === 'lost') return 'worked';
    metrics.chainReorgs.inc();
    metrics.chainReorgDepth.observe(undone);
    log.warn(
      { depth: undone, ancestor, tip: tip.number, hash: tip.hash, branch: branch.hash },
      'chain.reorg',
    );
    return 'worked';
  }

  /** A node that has gone over to another chain looks like a fork of everything: each says anew who it is. */
  async function confirmBranch(branch: BlockHeader, signal: AbortSignal): Promise<void> {
    nodes.doubt();
    if ((await nodes.findHeader(branch.hash, signal)) === undefined)
      throw new Fault('unavailable', `no node has block ${branch.hash} of the fork any more`);
  }

  async function getParent(child: BlockHeader, signal: AbortSignal): Promise<BlockHeader> {
    const parent = await nodes.findHeader(child.parentHash, signal);
    if (parent === undefined)
      throw new Fault('unavailable', `no node has block ${child.parentHash} of the new fork yet`);
    if (parent.number === child.number - 1 && parent.hash === child.parentHash) return parent;
    throw new Fault(
      'inconsistent',
      `the node gave block ${parent.number} (${parent.hash}) as the parent of ${child.number}`,
    );
  }

  async function pin(signal: AbortSignal): Promise<void> {
    const identity = await nodes.identify(signal);
    const known = await findChain(database);
    if (known === undefined) await insertChain(database, identity.chainId, identity.genesisHash);
    const {
      chainId,
      genesisHash,
      finalizedNumber: stored,
    } = (await findChain(database)) ?? { ...identity, finalizedNumber: 0 };
    requireChain({ chainId }, options.chainId);
    if (
      genesisHash !== undefined &&
      identity.genesisHash !== undefined &&
      genesisHash !== identity.genesisHash
    ) {
      throw new Fault(
        'conflict',
        `the database holds a chain with genesis ${genesisHash}, the nodes have ${identity.genesisHash}`,
      );
    }
    nodes.pin({ chainId, genesisHash });
    finalizedNumber = stored;
    isPinned = true;
  }

  /**
   * What is final never moves back (reference: chain.md, lesson 10), and is a block of ours, not a node's word. Where a tag
   * names one that is not stored yet, what lies as deep below the tip as without a tag is older than that.
   */
  async function refreshFinalized(tip: BlockId, signal: AbortSignal): Promise<void> {
    const now = clock.now().getTime();
    if (now - finalizedAt < FINALIZED_MS) return;
    const tagged = await nodes.finalized(signal);
    const deep = tip.number - options.finalityDepth;
    const named = tagged === undefined || tagged > tip.number ? deep : tagged;
    const found = tagged === undefined || (await isOurs(named, tip, signal)) ? named : 0;
    // What another follower found while this one stood by counts too.
    const stored = (await findChain(database))?.finalizedNumber ?? 0;
    finalizedNumber = Math.max(finalizedNumber, stored, found);
    finalizedAt = now;
    metrics.chainBlockNumber.set({ stage: 'finalized' }, finalizedNumber);
  }

  /** Whether the nodes have our block at this height; below the first one that is stored there is none to differ. */
  async function isOurs(number: number, tip: BlockId, signal: AbortSignal): Promise<boolean> {
    const stored = await findBlockHash(database, number);
    if (stored === undefined) return number < tip.number;
    return (await nodes.findHeader(number, signal))?.hash === stored;
  }

  function report(
    blocks: readonly ReadBlock[],
    notifications: number,
    head: BlockHeader,
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
      { ...fields, notifications, durationMs: now - startedAt },
      'blocks.committed',
    );
  }

  return { pin, step };
}

/** A Fault of a block so old that nodes may have pruned it, with what can be done then. */
function withAdvice(
  error: unknown,
  { from, depth, isFirst }: { from: number; depth: number; isFirst: boolean },
): unknown {
  if (!(error instanceof Fault) || error.code !== 'unavailable' || depth < PRUNED_DEPTH_MIN) return error;
  const asked = `asked for block ${from}, ${depth} below the head: ${messageOf(error)}`;
  const history = 'add a node to chain.rpc that keeps all history (an archive node for traces';
  const later = isFirst ? ', or begin later: chain.startBlock' : '';
  const advice = `${history}, or chain.internalTransfers: off)${later}`;
  return new Fault('unavailable', `${asked}; if the nodes have pruned it, ${advice}`, { cause: error });
}

/** The blocks up to the first that does not follow the one before it: a fork happened while they were fetched. */
function linkedPrefix(blocks: readonly ReadBlock[]): ReadBlock[] {
  const broken = blocks.findIndex(({ header }, index) => {
    const previous = blocks[index - 1];
    return previous !== undefined && header.parentHash !== previous.header.hash;
  });
  return broken === -1 ? [...blocks] : blocks.slice(0, broken);
}
