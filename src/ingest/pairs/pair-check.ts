/**
 * Compares pairs that have stored data with their contracts, which their owners may have changed since.
 */
import type { ContractReader } from '../../chain/contracts/contracts.ts';
import type { Log } from '../../core/log.ts';
import type { Step } from '../../core/loop.ts';
import type { Pair } from '../../domain/pair.ts';
import { comparePairs } from './pair-contracts.ts';

type PairCheckOptions = { nodes: ContractReader; log: Log; pairs: readonly Pair[] };

/**
 * A step that logs each difference. The configuration counts, because the stored data was computed with it. It throws a Fault when no
 * node answers.
 */
export function createPairCheck({ nodes, log, pairs }: PairCheckOptions): Step {
  return async (signal) => {
    // A contract that is silent may be so only for a moment. The readings of its pair say so if it stays.
    for (const { pair, message, isSilent } of await comparePairs(nodes, pairs, signal))
      if (!isSilent) log.warn({ pair: pair.id, error: message }, 'pair.differs');
    return 'idle';
  };
}
