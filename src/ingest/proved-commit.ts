/**
 * The commit of blocks, including those of a new branch, after data that no hash covers is proved for each transfer that
 * matches a watched address.
 */
import type { Clock } from '../core/clock.ts';
import { type BlockCommit, type Committed, commitBlocks } from '../store/blocks/blocks.ts';
import type { Database } from '../store/db/db.ts';
import type { Scrutiny } from './full-checks.ts';
import type { Vouch } from './prove-transfers.ts';
import type { ReadAhead, ReadBlock } from './read-ahead.ts';

/** Proof of data that no hash covers; without it the node that gave a block is believed. */
export type BeyondHashes = { scrutiny: Scrutiny; vouch: Vouch };

/** 'lied': a node told something false, nothing is stored, and the blocks are to be read again. */
type ProvedCommit = (
  commit: Omit<BlockCommit, 'now' | 'findUnproved' | 'blocks'> & { blocks: readonly ReadBlock[] },
  signal: AbortSignal,
) => Promise<Exclude<Committed, { outcome: 'unproved' }> | 'lied'>;

export function createProvedCommit({
  database,
  clock,
  readAhead,
  beyondHashes,
}: {
  database: Database;
  clock: Clock;
  readAhead: Pick<ReadAhead, 'drop'>;
  beyondHashes: BeyondHashes | undefined;
}): ProvedCommit {
  return async (commit, signal) => {
    const vouching = beyondHashes?.vouch(commit.blocks);
    const findUnproved = vouching && { findUnproved: vouching.findUnproved };
    for (;;) {
      const committed = await commitBlocks(database, { ...commit, ...findUnproved, now: clock.now() });
      if (committed.outcome === 'committed') beyondHashes?.scrutiny.stored(commit.blocks);
      if (committed.outcome !== 'unproved') return committed;
      // Each round proves what the one before found; only a record that was made meanwhile adds to it.
      const liedAbout = await vouching?.prove(committed.transfers, signal);
      if (liedAbout === undefined) continue;
      const node = commit.blocks.find(({ header }) => header.number === liedAbout)?.believed;
      beyondHashes?.scrutiny.lied({ node: node ?? 'a node', block: liedAbout });
      readAhead.drop();
      return 'lied';
    }
  };
}
