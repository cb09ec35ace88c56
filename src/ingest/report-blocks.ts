/**
 * Metrics and log lines of committed blocks and reorgs.
 */
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { BlockId } from '../domain/block.ts';
import type { Backfill } from './backfill.ts';
import type { ReadBlock } from './read-block.ts';

type ReportOptions = { metrics: Metrics; log: Log; clock: Clock; backfill: Backfill };

type CommitReport = {
  blocks: readonly ReadBlock[];
  notifications: number;
  head: BlockId;
  /** When the follower began to read these blocks, by the steady clock. */
  startedMs: number;
};

export function reportCommit(
  { metrics, log, clock, backfill }: ReportOptions,
  { blocks, notifications, head, startedMs }: CommitReport,
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
  const ageMs = clock.now().getTime() - newest.minedAt.getTime();
  metrics.chainLagSeconds.set(newest.number < head.number ? Math.max(0, ageMs / 1000) : 0);
  const fields = {
    block: newest.number,
    blocks: blocks.length,
    head: head.number,
    transfers: transfers.length,
  };
  const isBackfill = backfill.advance(fields);
  log[isBackfill ? 'debug' : 'info'](
    { ...fields, notifications, durationMs: Math.round(clock.steadyMs() - startedMs) },
    'blocks.committed',
  );
}

/** `depth` is the number of orphaned blocks, `newest` the newest block of the new branch. */
export function reportReorg(
  { metrics, log }: Pick<ReportOptions, 'metrics' | 'log'>,
  { tip, newest, ancestor, depth }: { tip: BlockId; newest: BlockId; ancestor: BlockId; depth: number },
): void {
  metrics.chainReorgs.inc();
  metrics.chainReorgDepth.observe(depth);
  const branches = { tip: tip.number, hash: tip.hash, branch: newest.hash };
  log.warn({ ancestor: ancestor.number, depth, ...branches }, 'chain.reorg');
}
