/**
 * Commits blocks, or the switch to another branch, in one transaction. Before that, it proves the data that no hash covers
 * for each transfer that matches a watched address, and for the senders that points rules use.
 */
import type { Verifier } from '../chain/proof/verifier.ts';
import type { Clock } from '../core/clock.ts';
import type { Hash } from '../core/hex.ts';
import type { BlockId } from '../domain/block.ts';
import { type BlockCommit, type Committed, commitBlocks } from '../store/blocks/blocks.ts';
import type { Database, Tx } from '../store/db/db.ts';
import type { AddressFilter } from '../store/matching/address-filter.ts';
import type { DeferralLimits } from '../store/matching/deferred.ts';
import type { BlockProcessor } from './block-processor.ts';
import type { FullChecks } from './full-checks.ts';
import type { TransferProver } from './prove-transfers.ts';
import type { ReadAhead } from './read-ahead.ts';
import type { ReadBlock } from './read-block.ts';

/** Proof of data that no hash covers. Without it, the node that gave a block is believed. */
type UnhashedProof = { fullChecks: FullChecks; proverOf: TransferProver };

export type CommitOptions = {
  database: Database;
  clock: Clock;
  confirmations: number;
  /** They write in this order and undo in the opposite one. */
  processors: readonly BlockProcessor[];
  /** Checks that the chain was observed to honor, and its types that can't be proved: each commit stores them. */
  checks: Pick<Verifier, 'enforcedChecks' | 'observedTypes'>;
  unhashedProof?: UnhashedProof;
  /** How many notifications one commit may write itself; `createDeferredWriter` writes the others. */
  deferral?: DeferralLimits;
  filter?: Pick<AddressFilter, 'transaction'> | undefined;
};

type CommitTarget = {
  /** The tip that the blocks replace or follow; undefined for the very first block. */
  tip: BlockId | undefined;
  /** The last of the blocks. */
  newest: BlockId;
  /** Set for a reorg: the newest block that both branches share. */
  ancestor: BlockId | undefined;
  finalizedNumber: number;
};

/**
 * `lost`: another process committed first. `lied`: a node gave false data. `stale`: the blocks were read long ago. In these cases
 * nothing is stored, and the blocks must be read again.
 */
type ProvedCommit = (
  blocks: readonly ReadBlock[],
  target: CommitTarget,
  signal: AbortSignal,
) => Promise<Exclude<Committed, { outcome: 'unproved' }> | { outcome: 'lied' }>;

type CommitAtAnyTime = Omit<BlockCommit, 'blocks' | 'now'> & { isStale(): boolean };
type ProvedCommitOptions = CommitOptions & { readAhead: Pick<ReadAhead, 'drop'> };

export function createProvedCommit(options: ProvedCommitOptions): {
  commitProved: ProvedCommit;
  forget(): void;
} {
  const { clock, processors } = options;
  /** Notifications up to `number` are released; this holds as long as `tip` is the tip. */
  let released: { tip: Hash; number: number } | undefined;
  const staleness = createStaleness(clock);

  async function undo(tx: Tx, ancestorNumber: number): Promise<void> {
    for (const processor of processors.toReversed()) await processor.undo(tx, ancestorNumber);
  }

  const commitProved: ProvedCommit = async (blocks, { tip, newest, ancestor, finalizedNumber }, signal) => {
    // After a reorg or another process's commit, notifications that were released may be held again.
    const isKnown = ancestor === undefined && tip !== undefined && tip.hash === released?.tip;
    const commit: CommitAtAnyTime = {
      expectedTip: tip,
      isStale: () => staleness.refuses(blocks),
      reorg: ancestor && {
        ancestorNumber: ancestor.number,
        undo: (tx) => undo(tx, ancestor.number),
        readNow: () => clock.now(),
      },
      confirmations: options.confirmations,
      releasedBefore: isKnown ? released?.number : undefined,
      finalizedNumber,
      corroboratedNumber: newest.number,
      enforcedChecks: options.checks.enforcedChecks(),
      hasTraces: blocks.some(({ traced, transfers }) => traced && transfers.length > 0),
      unprovedTypes: options.checks.observedTypes(),
      ...(options.deferral && { deferral: options.deferral }),
      filter: options.filter,
      async also(tx) {
        for (const processor of processors) await processor.write(tx, blocks);
      },
    };
    const committed = await commitUntilProved(options, commit, blocks, signal);
    if (committed.outcome === 'stale') options.readAhead.drop();
    if (committed.outcome === 'committed') {
      staleness.stored();
      released = { tip: newest.hash, number: newest.number };
      for (const processor of processors) processor.committed?.();
    }
    return committed;
  };

  return {
    commitProved,
    /** The database may have lost commits. */
    forget() {
      released = undefined;
      for (const processor of processors) processor.forget?.();
    },
  };
}

/** Commits the blocks once what the watched addresses match is proved. */
async function commitUntilProved(
  { database, clock, unhashedProof, readAhead }: ProvedCommitOptions,
  commit: CommitAtAnyTime,
  blocks: readonly ReadBlock[],
  signal: AbortSignal,
): ReturnType<ProvedCommit> {
  const prover = unhashedProof?.proverOf(blocks);
  const findUnproved = prover && { findUnproved: prover.findUnproved };
  if (commit.isStale()) return { outcome: 'stale' };
  await prover?.proveActivities(signal);
  for (;;) {
    const committed = await commitBlocks(database, {
      ...commit,
      ...{ blocks, now: clock.now() },
      ...findUnproved,
    });
    if (committed.outcome === 'committed') unhashedProof?.fullChecks.stored(blocks);
    if (committed.outcome !== 'unproved') return committed;
    // A further round is rare: it is needed only if an address was added since the last one.
    const liedAbout = await prover?.prove(committed.transfers, signal);
    if (liedAbout === undefined) continue;
    const node = blocks.find(({ header }) => header.number === liedAbout)?.believed;
    unhashedProof?.fullChecks.lied({ node: node ?? 'a node', block: liedAbout });
    readAhead.drop();
    return { outcome: 'lied' };
  }
}

/** By then, blocks that were refused have been read again, however slow the nodes are. Later, the process was suspended once more. */
const SLOW_MS_MAX = 600_000;

/** Refuses blocks that a reorg may have orphaned since they were read: while the process was suspended, or the commit before took long. */
function createStaleness(clock: Clock) {
  /** When blocks were refused last; undefined once fresh ones were stored. */
  let refusedMs: number | undefined;
  let isStale = false;
  return {
    /**
     * The newest block counts, because the others are its ancestors. Blocks that are stale again soon after some were refused come from slow
     * nodes or a slow database, and are stored.
     */
    refuses(blocks: readonly ReadBlock[]): boolean {
      const nowMs = clock.steadyMs();
      const staleMs = blocks.at(-1)?.staleMs;
      isStale = staleMs !== undefined && nowMs >= staleMs;
      if (!isStale || (refusedMs !== undefined && nowMs - refusedMs < SLOW_MS_MAX)) return false;
      refusedMs = nowMs;
      return true;
    },
    stored(): void {
      refusedMs = isStale ? clock.steadyMs() : undefined;
    },
  };
}
