/**
 * Which checks of a block this chain honours (DESIGN §4): learned from its recent blocks, then enforced.
 */
import { Fault } from '../../core/fault.ts';
import { quorumOf } from '../../domain/quorum.ts';
import { type CheckName, type Checks, checkNames } from './block-checks.ts';

export type ProofMode = 'auto' | 'strict' | 'off';
export type CheckState = 'enforced' | 'calibrating' | 'off';

export type CalibrationOptions = {
  mode: ProofMode;
  chainId: number;
  nodeCount: number;
  /** With several nodes a check is off only when so many of them have shown that the chain breaks it. */
  quorum?: number;
  /** What this chain was known to honour when the program last ran. */
  enforced: readonly string[];
};

export type Calibration = {
  /** Whether the chain's blocks should be shown to `learn` before the next `judge`. */
  needsSample(): boolean;
  /**
   * Takes in some blocks of one node; whether nothing speaks against any check. With several nodes the one
   * that speaks best for a check counts: a node can drop data, but not make up what a root commits to.
   */
  learn(sample: readonly Checks[]): boolean;
  /**
   * All nodes that can have spoken: what is still open, single blocks decide, or with several nodes the next
   * sample.
   */
  endSample(): void;
  /**
   * Takes another program's word, which has followed this chain meanwhile, for what it honours. Changes
   * `auto` only.
   */
  enforce(names: readonly string[]): void;
  /**
   * Whether the block is proved in full.
   * @throws Fault `inconsistent` when it breaks a check that the chain honours.
   */
  judge(name: string, checks: Checks): boolean;
  states(): Record<CheckName, CheckState>;
};

/**
 * Public chains of Ethereum, which need no calibration. Tests prove blocks of mainnet and Sepolia, and Holesky and Hoodi are made by
 * the same programs.
 */
const HONOURING_CHAIN_IDS: readonly number[] = [1, 11_155_111, 17_000, 560_048];

/** Blocks of one node that are enough to decide about a check. */
const EVIDENCE_BLOCKS_MIN = 3;

type Tally = { held: number; failed: number };

export function createCalibration({
  mode,
  chainId,
  nodeCount,
  quorum = quorumOf(nodeCount, 'auto'),
  enforced,
}: CalibrationOptions): Calibration {
  const isKnown = HONOURING_CHAIN_IDS.includes(chainId);
  const isEnforced = (name: CheckName) => mode === 'strict' || isKnown || enforced.includes(name);
  const states = eachCheck(
    (name): CheckState => (mode === 'off' ? 'off' : isEnforced(name) ? 'enforced' : 'calibrating'),
  );
  const tallies = eachCheck((): Tally => ({ held: 0, failed: 0 }));
  /** Nodes of the current sample that break each check. */
  let against = eachCheck(() => 0);
  let needsSample = checkNames.some((name) => states[name] === 'calibrating');

  /** An enforced check stays enforced. One that is off stays off until the next start, or until another process enforces it. */
  function decide(name: CheckName): void {
    const { held, failed } = tallies[name];
    if (states[name] !== 'calibrating') return;
    if (held >= EVIDENCE_BLOCKS_MIN && held > failed) states[name] = 'enforced';
    else if (failed > held && hasEnoughAgainst(name)) states[name] = 'off';
  }

  const hasEnoughAgainst = (name: CheckName): boolean =>
    nodeCount > 1 ? against[name] >= quorum : tallies[name].failed >= EVIDENCE_BLOCKS_MIN;

  /**
   * Whether the block must not be used. It breaks an enforced check, a check that more blocks kept than broke so far, or a check that
   * another node may still show to be honored.
   */
  function refuses(name: CheckName, checks: Checks): boolean {
    const verdict = checks[name];
    if (states[name] === 'off' || verdict === 'holds' || verdict === 'none') return false;
    // Ethereum's public chains have no transaction types that only they can encode, so the node invented it.
    if (verdict === 'unknown') return mode === 'strict' || isKnown;
    return states[name] === 'enforced' || nodeCount > 1 || tallies[name].held > tallies[name].failed;
  }

  return {
    needsSample: () => needsSample,
    learn(sample) {
      for (const name of checkNames) {
        const tally = { held: 0, failed: 0 };
        for (const checks of sample) count(tally, name, checks);
        if (tally.failed > tally.held) against[name] += 1;
        const known = tallies[name];
        if (tally.held - tally.failed > known.held - known.failed || known.held + known.failed === 0)
          tallies[name] = tally;
      }
      return checkNames.every((name) => tallies[name].failed === 0);
    },
    endSample() {
      needsSample = false;
      for (const name of checkNames) decide(name);
      against = eachCheck(() => 0);
    },
    enforce(names) {
      if (mode !== 'auto') return;
      for (const name of checkNames) if (names.includes(name)) states[name] = 'enforced';
      needsSample &&= checkNames.some((name) => states[name] === 'calibrating');
    },
    judge(name, checks) {
      const broken = checkNames.filter((check) => refuses(check, checks));
      if (broken.length > 0) {
        // While the check is open, all nodes are asked about this block.
        if (nodeCount > 1 && broken.some((check) => states[check] === 'calibrating')) needsSample = true;
        const what = broken.map((check) => `${LABELS[check]} ${WORDS[checks[check]]}`).join(', ');
        // While a check is open, the chain may not honor it.
        const isDisproof = broken.some((check) => states[check] === 'enforced' && checks[check] === 'fails');
        throw new Fault('inconsistent', `${name} is not proved: ${what}`, { isDisproof });
      }
      for (const check of checkNames) {
        count(tallies[check], check, checks);
        decide(check);
      }
      return checkNames.every((check) => checks[check] === 'holds' || checks[check] === 'none');
    },
    states: () => ({ ...states }),
  };
}

function eachCheck<Value>(initial: (name: CheckName) => Value): Record<CheckName, Value> {
  return {
    headerHash: initial('headerHash'),
    transactionsRoot: initial('transactionsRoot'),
    withdrawalsRoot: initial('withdrawalsRoot'),
    receiptsRoot: initial('receiptsRoot'),
  };
}

const LABELS = {
  headerHash: 'its header hash',
  transactionsRoot: 'its transactions root',
  withdrawalsRoot: 'its withdrawals root',
  receiptsRoot: 'its receipts root',
} satisfies Record<CheckName, string>;

const WORDS = { holds: 'holds', fails: 'does not hold', unknown: 'cannot be computed', none: 'is missing' };

function count(tally: Tally, name: CheckName, checks: Checks): void {
  // The roots of an empty block are constants: that they hold says nothing.
  const isTelling = name === 'headerHash' || !checks.isEmpty;
  if (checks[name] === 'holds' && isTelling) tally.held += 1;
  if (checks[name] === 'fails') tally.failed += 1;
}
