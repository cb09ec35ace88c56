/**
 * A false answer that no hash exposes: a sender against its signature, or an internal transfer against a
 * quorum.
 */
import { Fault } from '../core/fault.ts';

export type Lie = { node: string; block: number };

/** The Fault of the check that finds it; the block can be read from another node. */
export class LieFault extends Fault {
  readonly block: number;

  constructor(block: number, message: string) {
    super('inconsistent', message, { isDisproof: true });
    this.block = block;
  }
}
