/**
 * Decides which proof checks a chain's blocks must pass. It observes recent blocks, and enforces the checks that they honor
 * ("Observed checks" in docs/explanation/architecture.md).
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
  /** With several nodes, a check is off only if the blocks of this many nodes break it. */
  quorum?: number;
  /** The names of the checks that were enforced when the program last ran. */
  enforced: readonly string[];
};

export type Calibration = {
  /** Whether recent blocks should be sampled (`addSample`) before the next `judge`. */
  needsSample(): boolean;
  /**
   * Counts the checks of some blocks of one node. For each check, the node with the best result counts,
   * because a node can leave data out but can't invent data that matches a root.
   * @returns whether no doubt is left: no check has failed in the blocks that count, and if a refused block broke
   * an open check, a block has kept that check.
   */
  addSample(sample: readonly Checks[]): boolean;
  /**
   * Decides the checks once all nodes that can answer have been sampled. A check that stays open is decided by
   * the blocks that `judge` sees, or with several nodes by the next sample.
   */
  endSample(): void;
  /** Enforces the checks that another process, which followed this chain meanwhile, has observed. Only for `auto`. */
  enforce(names: readonly string[]): void;
  /**
   * Whether the block is proved in full.
   * @throws Fault `inconsistent` if a check forbids using the block (`refuses`).
   */
  judge(name: string, checks: Checks): boolean;
  states(): Record<CheckName, CheckState>;
};

/**
 * Ethereum's public chains: mainnet, Sepolia, Holesky and Hoodi. They need no calibration. Tests prove blocks of
 * mainnet and Sepolia, and the same programs build the blocks of Holesky and Hoodi.
 */
const HONOURING_CHAIN_IDS: readonly number[] = [1, 11_155_111, 17_000, 560_048];

/** This many blocks of one node are enough to decide about a check. */
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
  /** For each check, how many nodes of the current sample break it. */
  let against = eachCheck(() => 0);
  /** Open checks that a refused block broke since the last sample. */
  const doubted = new Set<CheckName>();
  let needsSample = checkNames.some((name) => states[name] === 'calibrating');

  /**
   * An enforced check stays enforced. A check that is off stays off until the next start, or until another
   * process enforces it.
   */
  function decide(name: CheckName): void {
    const { held, failed } = tallies[name];
    if (states[name] !== 'calibrating') return;
    if (held >= EVIDENCE_BLOCKS_MIN && held > failed) states[name] = 'enforced';
    else if (failed > held && hasEnoughAgainst(name)) states[name] = 'off';
  }

  const hasEnoughAgainst = (name: CheckName): boolean =>
    nodeCount > 1 ? against[name] >= quorum : tallies[name].failed >= EVIDENCE_BLOCKS_MIN;

  /**
   * Whether this check forbids using the block. A failed check does if it is enforced, if more blocks have kept
   * than broken it so far, or if another node may still show that the chain honors it.
   */
  function refuses(name: CheckName, checks: Checks): boolean {
    const result = checks[name];
    if (states[name] === 'off' || result === 'holds' || result === 'none') return false;
    // Ethereum's public chains have no transaction types that only they can encode, so the node invented it.
    if (result === 'unknown') return mode === 'strict' || isKnown;
    return states[name] === 'enforced' || nodeCount > 1 || tallies[name].held > tallies[name].failed;
  }

  return {
    needsSample: () => needsSample,
    addSample(sample) {
      for (const name of checkNames) {
        const tally = tallyOf(name, sample);
        if (tally.failed > tally.held) against[name] += 1;
        if (isBetter(tally, tallies[name])) tallies[name] = tally;
      }
      return checkNames.every(
        (name) => tallies[name].failed === 0 && (tallies[name].held > 0 || !doubted.has(name)),
      );
    },
    endSample() {
      needsSample = false;
      doubted.clear();
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
        // While the check is open, the next sample asks all nodes for this block too.
        const open = broken.filter((check) => nodeCount > 1 && states[check] === 'calibrating');
        for (const check of open) doubted.add(check);
        needsSample ||= open.length > 0;
        throw refusal(name, { broken, checks, states });
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

function refusal(
  name: string,
  {
    broken,
    checks,
    states,
  }: { broken: readonly CheckName[]; checks: Checks; states: Record<CheckName, CheckState> },
): Fault {
  const what = broken.map((check) => `${LABELS[check]} ${WORDS[checks[check]]}`).join(', ');
  // A failure disproves the answer only if the check is enforced. While a check is open, the chain may not honor it.
  const isDisproof = broken.some((check) => states[check] === 'enforced' && checks[check] === 'fails');
  return new Fault('inconsistent', `${name} is not proved: ${what}`, { isDisproof });
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

function tallyOf(name: CheckName, sample: readonly Checks[]): Tally {
  const tally = { held: 0, failed: 0 };
  for (const checks of sample) count(tally, name, checks);
  return tally;
}

const isBetter = (tally: Tally, known: Tally) =>
  tally.held - tally.failed > known.held - known.failed || known.held + known.failed === 0;

function count(tally: Tally, name: CheckName, checks: Checks): void {
  // The roots of an empty block are constants, so a root that holds there is no evidence for the check.
  const isTelling = name === 'headerHash' || !checks.isEmpty;
  if (checks[name] === 'holds' && isTelling) tally.held += 1;
  if (checks[name] === 'fails') tally.failed += 1;
}
