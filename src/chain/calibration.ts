/**
 * Which checks of a block this chain honours (DESIGN §4): learned from its recent blocks, then enforced.
 */
import { Fault } from '../core/fault.ts';
import { type CheckName, type Checks, checkNames } from './proof.ts';

export type ProofMode = 'auto' | 'strict' | 'off';
export type CheckState = 'enforced' | 'calibrating' | 'off';

export type Calibration = {
  /** Whether the chain's recent blocks should be shown to `learn` before the first `judge`. */
  needsSample(): boolean;
  /**
   * Takes in the recent blocks of one node; whether nothing speaks against any check. With several nodes the one that
   * speaks best for a check counts: a node can drop data, but not make up what a root commits to.
   */
  learn(sample: readonly Checks[]): boolean;
  /** The sample is over: from now on single blocks decide what is still open. */
  endSample(): void;
  /** Whether the block is proved in full. @throws Fault `inconsistent` when it breaks a check that the chain honours. */
  judge(name: string, checks: Checks): boolean;
  states(): Record<CheckName, CheckState>;
};

/** Blocks that decide about a check. */
const EVIDENCE_BLOCKS_MIN = 3;

type Tally = { held: number; failed: number };

export function createCalibration(mode: ProofMode): Calibration {
  const start = mode === 'auto' ? 'calibrating' : mode === 'strict' ? 'enforced' : 'off';
  const states: Record<CheckName, CheckState> = {
    headerHash: start,
    transactionsRoot: start,
    receiptsRoot: start,
  };
  const tallies: Record<CheckName, Tally> = {
    headerHash: { held: 0, failed: 0 },
    transactionsRoot: { held: 0, failed: 0 },
    receiptsRoot: { held: 0, failed: 0 },
  };
  let needsSample = mode === 'auto';

  /** Once enforced a check stays so; once off, until the next start. */
  function decide(name: CheckName): void {
    const { held, failed } = tallies[name];
    if (states[name] !== 'calibrating') return;
    if (held >= EVIDENCE_BLOCKS_MIN && held > failed) states[name] = 'enforced';
    else if (failed >= EVIDENCE_BLOCKS_MIN && failed > held) states[name] = 'off';
  }

  /** Whether the block must not be used: it breaks what is enforced, or what more blocks kept than broke so far. */
  function refuses(name: CheckName, checks: Checks): boolean {
    const verdict = checks[name];
    if (states[name] === 'off' || verdict === 'holds') return false;
    if (verdict === 'unknown') return mode === 'strict';
    return states[name] === 'enforced' || tallies[name].held > tallies[name].failed;
  }

  return {
    needsSample: () => needsSample,
    learn(sample) {
      for (const name of checkNames) {
        const tally = { held: 0, failed: 0 };
        for (const checks of sample) count(tally, name, checks);
        const known = tallies[name];
        if (tally.held - tally.failed > known.held - known.failed || known.held + known.failed === 0)
          tallies[name] = tally;
      }
      return checkNames.every((name) => tallies[name].failed === 0);
    },
    endSample() {
      needsSample = false;
      for (const name of checkNames) decide(name);
    },
    judge(name, checks) {
      const broken = checkNames.filter((check) => refuses(check, checks));
      if (broken.length > 0) {
        const what = broken.map((check) => `${LABELS[check]} ${WORDS[checks[check]]}`).join(', ');
        throw new Fault('inconsistent', `${name} is not proved: ${what}`);
      }
      for (const check of checkNames) {
        count(tallies[check], check, checks);
        decide(check);
      }
      return checkNames.every((check) => checks[check] === 'holds');
    },
    states: () => ({ ...states }),
  };
}

const LABELS = {
  headerHash: 'its header hash',
  transactionsRoot: 'its transactions root',
  receiptsRoot: 'its receipts root',
} satisfies Record<CheckName, string>;

const WORDS = { holds: 'holds', fails: 'does not hold', unknown: 'cannot be computed' };

function count(tally: Tally, name: CheckName, checks: Checks): void {
  // The roots of an empty block are constants.
  if (checks.isEmpty && name !== 'headerHash') return;
  if (checks[name] === 'holds') tally.held += 1;
  if (checks[name] === 'fails') tally.failed += 1;
}
