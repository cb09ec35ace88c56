/**
 * What a node said against a signature, or against a quorum, where no hash decides: a sender or an internal transfer.
 */
import { Fault } from '../core/fault.ts';

export type Lie = { node: string; block: number };

/** The Fault of whoever finds it; the block can be read from another node. */
export class LieFault extends Fault {
  readonly block: number;

  constructor(block: number, message: string) {
    super('inconsistent', message, { isDisproof: true });
    this.block = block;
  }
}
