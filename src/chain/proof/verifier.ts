/**
 * Verifies the blocks of one chain. The prover says which checks hold, and the calibration says which must hold.
 */
import { Fault } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { Log } from '../../core/log.ts';
import type { BlockId } from '../../domain/block.ts';
import {
  type BlockProof,
  type CheckName,
  type Checks,
  checkNames,
  type ProofMode,
  type RawBlock,
  type SenderEvidence,
  type SenderScope,
} from './block-checks.ts';
import { type CalibrationOptions, type CheckState, createCalibration } from './calibration.ts';
import { LieFault } from './false-answer.ts';
import { createProver, type Prover } from './proof-pool.ts';

/** `proved` says whether the block is proved in full. `senders` is undefined if proof is off. */
type Verified = { proved: boolean; senders: SenderEvidence | undefined };

/** @throws Fault `inconsistent` if the block must not be used. */
export type Verify = (
  block: Pick<BlockId, 'number' | 'hash'>,
  raw: RawBlock,
  scope?: SenderScope,
  needed?: readonly Hash[],
) => Promise<Verified>;

/** The result for a block that was not proved, for example because proof is off. */
export const notVerified: Verified = { proved: false, senders: undefined };

/** `read` passes recent blocks of the node to `verify`, one by one. @throws Fault if the node fails. */
export type Sampling = { node: unknown; read(verify: Verify): Promise<void> };

type VerifierOptions = CalibrationOptions & { log: Log };

type ProofStatus = {
  mode: ProofMode;
  checks: Record<CheckName, CheckState>;
  /** The accepted transaction types that Chainbell can't prove: configured and observed ones. */
  unprovedTypes: string[];
};

export type Verifier = {
  /**
   * Observes the checks in samples of the nodes, in order, until they leave no doubt. Cheap unless checks are
   * still open. Never throws a node's Fault.
   */
  calibrate(samplings: readonly Sampling[]): Promise<void>;
  verify: Verify;
  recover: Prover['recover'];
  status(): ProofStatus;
  /** The enforced checks in mode `auto`. The caller stores them and passes them as `enforced` at the next start. */
  enforcedChecks(): CheckName[];
  /** The accepted transaction types (`Calibration.observedTypes`). The caller stores them like the enforced checks. */
  observedTypes(): string[];
  /** Takes over the checks and types that another process, which followed this chain meanwhile, has observed. */
  enforce(names: readonly string[], types: readonly string[]): void;
  close(): Promise<void>;
};

export function createVerifier({ log, ...options }: VerifierOptions): Verifier {
  const { mode } = options;
  const calibration = createCalibration(options);
  const prover = createProver();
  let underWay: Promise<void> | undefined;

  function logStates(): void {
    const states = calibration.states();
    const isWeak = checkNames.some((name) => states[name] === 'off');
    const unprovedTypes = calibration.unprovedTypes();
    log[isWeak ? 'warn' : 'info']({ mode, ...states, unprovedTypes }, 'proof.calibrated');
  }

  /** Runs the work, and logs the checks' states if it changed any. */
  function loggingChanges<Result>(work: () => Result): Result {
    const before = calibration.states();
    const result = work();
    const after = calibration.states();
    if (checkNames.some((name) => before[name] !== after[name])) logStates();
    return result;
  }

  async function sampleNodes(samplings: readonly Sampling[]): Promise<void> {
    let sampleCount = 0;
    for (const sampling of samplings) {
      const sample: Checks[] = [];
      try {
        await sampling.read(async (_block, raw, scope, needed) => {
          sample.push(await prover.prove(raw, scope, needed));
          return notVerified;
        });
      } catch (error) {
        // The node failed or lacks blocks. Those that it gave before still count.
        if (!(error instanceof Fault)) throw error;
      }
      sampleCount += sample.length;
      if (calibration.addSample(sampling.node, sample)) break;
    }
    // The chain has no blocks yet or all nodes failed, so the next call tries again.
    if (sampleCount === 0) return;
    calibration.endSample();
    logStates();
  }

  return {
    async calibrate(samplings) {
      if (!calibration.needsSample(samplings.map(({ node }) => node))) return;
      // Concurrent callers share one sampling: a type that a node was seen to have twice would count as of two nodes.
      underWay ??= sampleNodes(samplings).finally(() => {
        underWay = undefined;
      });
      await underWay;
    },
    async verify({ number, hash }, raw, scope, needed) {
      if (mode === 'off') return notVerified;
      const name = `block ${number} (${hash})`;
      const proof = await prover.prove(raw, scope, needed);
      const proved = loggingChanges(() => calibration.judge(name, proof));
      refuseForged(number, name, proof);
      return { proved, senders: proof.senders };
    },
    recover: prover.recover,
    enforce(names, types) {
      loggingChanges(() => calibration.enforce(names, types));
    },
    observedTypes: calibration.observedTypes,
    enforcedChecks() {
      const states = calibration.states();
      return mode === 'auto' ? checkNames.filter((name) => states[name] === 'enforced') : [];
    },
    status: () => ({ mode, checks: calibration.states(), unprovedTypes: calibration.unprovedTypes() }),
    close: prover.close,
  };
}

/**
 * Refuses a block with a forged sender, whichever checks the chain honors. The transaction has its hash, so its
 * signature is the one that was mined.
 */
function refuseForged(number: number, name: string, { forged: [first] }: BlockProof): void {
  if (first === undefined) return;
  throw new LieFault(number, `${name} names a false sender: ${first.signer} signed ${first.hash}`);
}
