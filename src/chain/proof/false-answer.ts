/**
 * A false answer that no hash exposes: a sender against its signature, or an internal transfer against a
 * quorum. Without a quorum nodes dispute, and which of them is wrong stays open.
 */
import { Fault } from '../../core/fault.ts';

export type Lie = { node: string; block: number };

/** The Fault of the check that finds it; the block can be read from another node. */
export class LieFault extends Fault {
  readonly block: number;

  constructor(block: number, message: string) {
    super('inconsistent', message, { isDisproof: true });
    this.block = block;
  }
}

/** Nodes gave different answers about this block, and no quorum agrees. */
export class DisputeFault extends Fault {
  readonly block: number;

  constructor(block: number, message: string) {
    super('inconsistent', message);
    this.block = block;
  }
}
