/**
 * A block processor derives further data from blocks, such as swaps or points, and writes it in the blocks' transaction.
 */
import type { Tx } from '../store/db/db.ts';
import type { ReadBlock } from './read-block.ts';

export type BlockProcessor = {
  write(tx: Tx, blocks: readonly ReadBlock[]): Promise<void>;
  /** Removes everything that was written for blocks above this one. */
  undo(tx: Tx, ancestorNumber: number): Promise<void>;
  /** What was written last is committed. Not called if the answer to the commit was lost. */
  committed?(): void;
  /** The database may have lost commits. */
  forget?(): void;
};
