/**
 * Proof of the blocks of one chain: the prover says what holds, the calibration what must.
 */

import type { BlockId } from '../core/block.ts';
import { Fault } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import { type CheckState, createCalibration, type ProofMode } from './calibration.ts';
import { type CheckName, type Checks, checkNames, type RawBlock } from './proof.ts';
import { createProver } from './prover.ts';

/** Whether the block is proved in full. @throws Fault `inconsistent` when it must not be used. */
export type Verify = (block: Pick<BlockId, 'number' | 'hash'>, raw: RawBlock) => Promise<boolean>;

/** A node's recent blocks, handed to `verify` one by one. @throws Fault when the node fails. */
export type Sampling = (verify: Verify) => Promise<void>;

export type ProofStatus = { mode: ProofMode; checks: Record<CheckName, CheckState> };

export type Verifier = {
  /** Learns from the first of these that leaves no doubt, once; cheap afterwards. Never throws a node's Fault. */
  calibrate(samplings: readonly Sampling[]): Promise<void>;
  verify: Verify;
  status(): ProofStatus;
  close(): Promise<void>;
};

export function createVerifier({ mode, log }: { mode: ProofMode; log: Log }): Verifier {
  const calibration = createCalibration(mode);
  const prover = createProver();

  function tell(): void {
    const states = calibration.states();
    const isWeak = checkNames.some((name) => states[name] === 'off');
    log[isWeak ? 'warn' : 'info']({ mode, ...states }, 'proof.calibrated');
  }

  return {
    async calibrate(samplings) {
      if (!calibration.needsSample()) return;
      let sampleCount = 0;
      for (const sampling of samplings) {
        const sample: Checks[] = [];
        try {
          await sampling(async (_block, raw) => {
            sample.push(await prover.prove(raw));
            return false;
          });
        } catch (error) {
          // The blocks that came count; the others were of a node that has failed or lacks them.
          if (!(error instanceof Fault)) throw error;
        }
        sampleCount += sample.length;
        if (calibration.learn(sample) && sample.length > 0) break;
      }
      // Of a chain without blocks, or nodes that just failed, is learned at the next call.
      if (sampleCount === 0) return;
      calibration.endSample();
      tell();
    },
    async verify({ number, hash }, raw) {
      if (mode === 'off') return false;
      const checks = await prover.prove(raw);
      const before = calibration.states();
      const isProved = calibration.judge(`block ${number} (${hash})`, checks);
      const after = calibration.states();
      if (checkNames.some((name) => before[name] !== after[name])) tell();
      return isProved;
    },
    status: () => ({ mode, checks: calibration.states() }),
    close: prover.close,
  };
}
