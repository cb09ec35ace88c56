/**
 * Checks by their gas whether traces are complete. A node that leaves out a call also leaves out the call's gas,
 * unless it lies about the gas too.
 */
import { disproof } from '../../core/fault.ts';
import type { Bundle } from './bundle.ts';

export type GasCheck = {
  /**
   * `isConfirmed`: other nodes have the same internal transfers.
   * @throws Fault `inconsistent` if the traces add up to less gas than the block used, although those of this
   * node's earlier blocks added up. Not for a confirmed block, which shows that honest traces may fall short.
   */
  check(bundle: Bundle, node: { name: string; isConfirmed: boolean }): void;
};

/**
 * This many blocks must pass before the check is enforced, because not every node's traces add up. Some tracers
 * leave out the gas that a transaction costs before it runs: the traces of all 12 stored mainnet blocks that have
 * any fall short. Chains also count gas differently.
 */
const EVIDENCE_BLOCKS_MIN = 20;

const ADVICE =
  'Add another node that can trace, or replace this one. If its traces are right, because the chain counts gas differently since an upgrade, restart Chainbell: it then observes again';

/** The check for one node. It observes again after each start, because a hard fork may change how gas is counted. */
export function createGasCheck(): GasCheck {
  let heldCount = 0;
  let isOff = false;
  return {
    check({ header, gas }, { name, isConfirmed }) {
      if (gas === undefined || isOff) return;
      if (gas.traced >= gas.used) {
        heldCount += 1;
        return;
      }
      isOff = isConfirmed || heldCount < EVIDENCE_BLOCKS_MIN;
      if (isOff) return;
      throw disproof(
        `${name}: the traces of block ${header.number} (${header.hash}) add up to ${gas.traced} gas of ${gas.used}, and those of its earlier blocks added up. ${ADVICE}`,
      );
    },
  };
}
