/**
 * Decides which proof checks a chain's blocks must pass. It observes recent blocks, and enforces the checks that they honor
 * ("Observed checks" in docs/explanation/architecture.md).
 */
import type { Fault } from '../../core/fault.ts';
import { quorumOf } from '../../domain/quorum.ts';
import { type CheckName, type Checks, checkNames, type ProofMode } from './block-checks.ts';
import { UnprovedFault } from './false-answer.ts';
import { adviceOn, createTypes } from './unproved-types.ts';

export type CheckState = 'enforced' | 'calibrating' | 'off';

export type CalibrationOptions = {
  mode: ProofMode;
  chainId: number;
  nodeCount: number;
  /** With several nodes, a check is off only if the blocks of this many nodes break it. */
  quorum?: number;
  /** The names of the checks that were enforced when the program last ran. */
  enforced: readonly string[];
  /** `observedTypes` of when the program last ran. */
  observedTypes?: readonly string[];
  /** Transaction types that the operator accepts without proof (`chain.unprovedTypes`). */
  unprovedTypes?: readonly string[];
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
  /** Takes over the checks and types that another process, which followed this chain meanwhile, has observed. Only for `auto`. */
  enforce(names: readonly string[], types: readonly string[]): void;
  /**
   * Whether the block is proved in full.
   * @throws Fault `inconsistent` if a check forbids using the block (`refuses`).
   */
  judge(name: string, checks: Checks): boolean;
  states(): Record<CheckName, CheckState>;
  /**
   * The types of transactions that the chain was seen to have although no root proves it: their receipts have another
   * form than usual, or they are unsigned.
   */
  observedTypes(): string[];
  /** The observed types and the configured ones. */
  unprovedTypes(): string[];
};

/**
 * Ethereum's public chains: mainnet, Sepolia, Holesky and Hoodi. They need no calibration. Tests prove blocks of
 * mainnet and Sepolia, and the same programs build the blocks of Holesky and Hoodi.
 */
const HONOURING_CHAIN_IDS: readonly number[] = [1, 11_155_111, 17_000, 560_048];

/** This many blocks of one node are enough to decide about a check. */
const EVIDENCE_BLOCKS_MIN = 3;

type Tally = { held: number; failed: number };

export function createCalibration(options: CalibrationOptions): Calibration {
  const { mode, chainId, nodeCount, enforced, quorum = quorumOf(nodeCount, 'auto') } = options;
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
  const areJudged = () => states.transactionsRoot === 'enforced' || states.receiptsRoot === 'enforced';
  const types = createTypes({ ...options, isKnown, quorum, areJudged });
  let needsSample = checkNames.some((name) => states[name] === 'calibrating');

  function decide(name: CheckName): void {
    states[name] = stateAfter(states[name], tallies[name], hasEnoughAgainst(name));
  }

  const isClear = (name: CheckName) =>
    tallies[name].failed === 0 && (tallies[name].held > 0 || !doubted.has(name));

  const hasEnoughAgainst = (name: CheckName): boolean =>
    nodeCount > 1 ? against[name] >= quorum : tallies[name].failed >= EVIDENCE_BLOCKS_MIN;

  /**
   * Whether this check forbids using the block. A failed check does if it is enforced, if more blocks have kept
   * than broken it so far, or if another node may still show that the chain honors it. A check that can't be
   * computed does if the block has a type that is neither proved nor accepted.
   */
  function refuses(name: CheckName, checks: Checks): boolean {
    const result = checks[name];
    if (states[name] === 'off' || result === 'holds' || result === 'none') return false;
    if (result === 'unknown') return types.refused(checks).length > 0;
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
      return types.addSample(sample) && checkNames.every(isClear);
    },
    endSample() {
      needsSample = false;
      doubted.clear();
      types.endSample();
      for (const name of checkNames) decide(name);
      against = eachCheck(() => 0);
    },
    enforce(names, observed) {
      if (mode !== 'auto') return;
      types.takeOver(observed);
      for (const name of checkNames) if (names.includes(name)) states[name] = 'enforced';
      needsSample &&= checkNames.some((name) => states[name] === 'calibrating');
    },
    judge(name, checks) {
      const broken = checkNames.filter((check) => refuses(check, checks));
      if (broken.length > 0) {
        // While the check is open, the next sample asks all nodes for this block too.
        const isOpen = (check: CheckName) => states[check] === 'calibrating' && checks[check] === 'fails';
        const open = nodeCount > 1 ? broken.filter(isOpen) : [];
        for (const check of open) doubted.add(check);
        const refused = broken.some((check) => checks[check] === 'unknown') ? types.refused(checks) : [];
        if (types.doubt(refused) || open.length > 0) needsSample = true;
        throw refusal(name, { broken, checks, states, advice: adviceOn(refused, mode) });
      }
      types.observe(checks);
      for (const check of checkNames) count(tallies[check], check, checks);
      for (const check of checkNames) decide(check);
      return checkNames.every((check) => checks[check] === 'holds' || checks[check] === 'none');
    },
    states: () => ({ ...states }),
    observedTypes: types.observed,
    unprovedTypes: types.accepted,
  };
}

/** An enforced check stays enforced. A check that is off stays off until the next start, or until another process enforces it. */
function stateAfter(state: CheckState, { held, failed }: Tally, hasEnoughAgainst: boolean): CheckState {
  if (state !== 'calibrating') return state;
  if (held >= EVIDENCE_BLOCKS_MIN && held > failed) return 'enforced';
  return failed > held && hasEnoughAgainst ? 'off' : state;
}

function refusal(
  name: string,
  {
    broken,
    checks,
    states,
    advice,
  }: {
    broken: readonly CheckName[];
    checks: Checks;
    states: Record<CheckName, CheckState>;
    advice: string;
  },
): Fault {
  const what = broken.map((check) => `${LABELS[check]} ${WORDS[checks[check]]}`).join(', ');
  // A failure disproves the answer only if the check is enforced. While a check is open, the chain may not honor it.
  const isDisproof = broken.some((check) => states[check] === 'enforced' && checks[check] === 'fails');
  return new UnprovedFault(`${name} is not proved: ${what}${advice}`, {
    isDisproof,
    isAdvised: advice !== '',
  });
}

function eachCheck<Value>(initial: (name: CheckName) => Value): Record<CheckName, Value> {
  return {
    headerHash: initial('headerHash'),
    transactionsRoot: initial('transactionsRoot'),
    transactionHashes: initial('transactionHashes'),
    withdrawalsRoot: initial('withdrawalsRoot'),
    receiptsRoot: initial('receiptsRoot'),
  };
}

const LABELS = {
  headerHash: 'its header hash',
  transactionsRoot: 'its transactions root',
  transactionHashes: 'the hash of a transaction',
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
