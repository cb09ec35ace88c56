/**
 * What else is derived from blocks and written in their transaction: swap pairs, points.
 */
import type { Tx } from '../store/db/db.ts';
import type { ReadBlock } from './read-block.ts';

export type BlockProcessor = {
  write(tx: Tx, blocks: readonly ReadBlock[]): Promise<void>;
  /** Undoes what was written for all blocks above this one. */
  undo(tx: Tx, ancestorNumber: number): Promise<void>;
};
