/**
 * Proof of the blocks of one chain: the prover says what holds, the calibration what must.
 */
import { Fault } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { BlockId } from '../../domain/block.ts';
import {
  type BlockProof,
  type CheckName,
  type Checks,
  checkNames,
  type RawBlock,
  type SenderEvidence,
  type SenderScope,
} from './block-checks.ts';
import {
  type CalibrationOptions,
  type CheckState,
  createCalibration,
  type ProofMode,
} from './calibration.ts';
import { LieFault } from './false-answer.ts';
import { createProver, type Prover } from './proof-pool.ts';

/** Whether the block is proved in full, and what its senders rest on; undefined where proof is off. */
type Verified = { proved: boolean; senders: SenderEvidence | undefined };

/** @throws Fault `inconsistent` when the block must not be used. */
export type Verify = (
  block: Pick<BlockId, 'number' | 'hash'>,
  raw: RawBlock,
  scope?: SenderScope,
) => Promise<Verified>;

/** Nothing is proved. */
export const notVerified: Verified = { proved: false, senders: undefined };

/** A node's recent blocks, handed to `verify` one by one. @throws Fault when the node fails. */
export type Sampling = (verify: Verify) => Promise<void>;

type VerifierOptions = CalibrationOptions & { log: Log };

type ProofStatus = { mode: ProofMode; checks: Record<CheckName, CheckState> };

export type Verifier = {
  /**
   * Learns from the first of these that leaves no doubt, as often as needed; else cheap. Never throws a
   * node's Fault.
   */
  calibrate(samplings: readonly Sampling[]): Promise<void>;
  verify: Verify;
  recover: Prover['recover'];
  status(): ProofStatus;
  /** What was learned that the chain honours: to be kept, and given back at the next start. */
  learned(): CheckName[];
  /** What another program has learned of this chain meanwhile. */
  enforce(names: readonly string[]): void;
  close(): Promise<void>;
};

export function createVerifier({ log, ...options }: VerifierOptions): Verifier {
  const { mode } = options;
  const calibration = createCalibration(options);
  const prover = createProver();
  let learning: Promise<void> | undefined;

  function tell(): void {
    const states = calibration.states();
    const isWeak = checkNames.some((name) => states[name] === 'off');
    log[isWeak ? 'warn' : 'info']({ mode, ...states }, 'proof.calibrated');
  }

  /** Logs what the work has changed. */
  function telling<Result>(work: () => Result): Result {
    const before = calibration.states();
    const result = work();
    const after = calibration.states();
    if (checkNames.some((name) => before[name] !== after[name])) tell();
    return result;
  }

  async function learnFrom(samplings: readonly Sampling[]): Promise<void> {
    let sampleCount = 0;
    for (const sampling of samplings) {
      const sample: Checks[] = [];
      try {
        await sampling(async (_block, raw) => {
          sample.push(await prover.prove(raw));
          return notVerified;
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
  }

  return {
    async calibrate(samplings) {
      if (!calibration.needsSample()) return;
      // One at a time: a node that is asked by two callers is still one.
      learning ??= learnFrom(samplings).finally(() => {
        learning = undefined;
      });
      await learning;
    },
    async verify({ number, hash }, raw, scope) {
      if (mode === 'off') return notVerified;
      const name = `block ${number} (${hash})`;
      const proof = await prover.prove(raw, scope);
      const proved = telling(() => calibration.judge(name, proof));
      refuseForged(number, name, proof);
      return { proved, senders: proof.senders };
    },
    recover: prover.recover,
    enforce(names) {
      telling(() => calibration.enforce(names));
    },
    learned() {
      const states = calibration.states();
      return mode === 'auto' ? checkNames.filter((name) => states[name] === 'enforced') : [];
    },
    status: () => ({ mode, checks: calibration.states() }),
    close: prover.close,
  };
}

/** Whatever the chain honors: the transaction has its hash, so its signature is the one that was mined. */
function refuseForged(number: number, name: string, { forged: [first] }: BlockProof): void {
  if (first === undefined) return;
  throw new LieFault(number, `${name} names a false sender: ${first.signer} signed ${first.hash}`);
}
