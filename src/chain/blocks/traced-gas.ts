/**
 * Whether traces are complete, by the gas that they add up to: a node that leaves out a call leaves out its
 * gas, unless it lies about that too.
 */
import { disproof } from '../../core/fault.ts';
import type { Bundle } from './bundle.ts';

export type GasCheck = {
  /** @throws Fault `inconsistent` when traces that used to add up to what the block used no longer do. */
  check(bundle: Bundle, nodeName: string): void;
};

/**
 * Blocks that must pass before the check is enforced. Some tracers leave out the gas that a transaction costs
 * before it runs (all 12 stored mainnet blocks with traces fall short), and chains count gas differently.
 */
const EVIDENCE_BLOCKS_MIN = 20;

/** For one node. Observed again after each start, because a hard fork may change how gas is counted. */
export function createGasCheck(): GasCheck {
  let heldCount = 0;
  let isOff = false;
  return {
    check({ header, gas }, nodeName) {
      if (gas === undefined || isOff) return;
      if (gas.traced >= gas.used) {
        heldCount += 1;
        return;
      }
      isOff = heldCount < EVIDENCE_BLOCKS_MIN;
      if (isOff) return;
      throw disproof(
        `${nodeName}: the traces of block ${header.number} (${header.hash}) add up to ${gas.traced} gas of ${gas.used}`,
      );
    },
  };
}
