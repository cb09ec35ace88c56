/**
 * Faults for false answers that no hash exposes: a sender that contradicts the signature, or internal transfers
 * that contradict a quorum. If no quorum agrees, the nodes are in dispute, because nothing shows which one is wrong.
 */
import { Fault } from '../../core/fault.ts';

export type Lie = { node: string; block: number };

/** A check found that a node lied about this block. The caller can read the block from another node. */
export class LieFault extends Fault {
  readonly block: number;

  constructor(block: number, message: string) {
    super('inconsistent', message, { isDisproof: true });
    this.block = block;
  }
}

/** A node's block can't be proved. `isAdvised`: its message says what to do. */
export class UnprovedFault extends Fault {
  readonly isAdvised: boolean;

  constructor(message: string, { isDisproof, isAdvised }: { isDisproof: boolean; isAdvised: boolean }) {
    super('inconsistent', message, { isDisproof });
    this.isAdvised = isAdvised;
  }
}

/** Nodes gave different answers about this block, and no quorum agrees. */
export class DisputeFault extends Fault {
  constructor(message: string) {
    super('inconsistent', message);
  }
}
