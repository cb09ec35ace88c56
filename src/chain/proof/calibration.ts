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
  /**
   * With several nodes, so many must show blocks that keep a check before it is enforced, or that break it before it is off.
   * One node could make up blocks that keep a check which the chain doesn't honor, and its true blocks would be refused.
   */
  quorum?: number;
  /** The names of the checks that were enforced when the program last ran. */
  enforced: readonly string[];
  /** `observedTypes` of when the program last ran. */
  observedTypes?: readonly string[];
  /** Transaction types that the operator accepts without proof (`chain.unprovedTypes`). */
  unprovedTypes?: readonly string[];
};

export type Calibration = {
  /** Whether recent blocks of these nodes, for which any values may stand, should be sampled (`addSample`) before the next `judge`. */
  needsSample(nodes: readonly unknown[]): boolean;
  /**
   * Counts the checks of some blocks of this node; none if it gave none.
   * @returns whether no other node need be sampled: a quorum has been, and for each open check, either a quorum keeps it,
   * or no node breaks it and, if a refused block broke it, a block has kept it.
   */
  addSample(node: unknown, sample: readonly Checks[]): boolean;
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

/** This many blocks of a node are enough to say that it keeps a check. */
const EVIDENCE_BLOCKS_MIN = 3;

/** Sampling is due again after at most this many more blocks. */
const DUE_BLOCKS_MAX = 1_000;

/** How many blocks have kept and broken a check. */
type Tally = { held: number; failed: number };
type Tallies = Record<CheckName, Tally>;

export function createCalibration(options: CalibrationOptions): Calibration {
  const { mode, chainId, nodeCount, quorum = quorumOf(nodeCount, 'auto') } = options;
  const isKnown = HONOURING_CHAIN_IDS.includes(chainId);
  const states = eachCheck((name) => firstState(name, options, isKnown));
  const samples = createSamples(quorum);
  /** The blocks that `judge` has let pass, and those of a single node's samples. */
  const passed = noBlocks();
  /** With several nodes, blocks that kept or broke an open check make the next sample due. */
  const kept = eachCheck(() => createDue(EVIDENCE_BLOCKS_MIN));
  const broke = eachCheck(() => createDue(1));
  /** Open checks that a refused block broke. */
  const doubted = new Set<CheckName>();
  const areJudged = () => states.transactionsRoot === 'enforced' || states.receiptsRoot === 'enforced';
  const types = createTypes({ ...options, isKnown, quorum, areJudged });
  const isOpen = (name: CheckName) => states[name] === 'calibrating';
  let needsSample = checkNames.some(isOpen);

  /** An enforced check stays enforced. A check that is off stays off until the next start, or until another process enforces it. */
  function decideOpen(): void {
    for (const name of checkNames.filter(isOpen))
      states[name] = nodeCount > 1 ? verdictOfMany(samples, name) : verdictOfOne(passed[name]);
  }

  /**
   * Whether this check forbids using the block. A failed check does if it is enforced, if more blocks have kept
   * than broken it so far, or if another node may still show that the chain honors it. A check that can't be
   * computed does if the block has a type that is neither proved nor accepted.
   */
  function refuses(name: CheckName, checks: Checks): boolean {
    const result = checks[name];
    if (states[name] === 'off' || result === 'holds' || result === 'none') return false;
    if (result === 'unknown') return types.refused(checks).length > 0;
    return states[name] === 'enforced' || nodeCount > 1 || passed[name].held > passed[name].failed;
  }

  /** Counts a block that is used, and lets a single node's blocks decide open checks. */
  function notePassed(checks: Checks): void {
    countAll(passed, checks);
    if (nodeCount === 1) decideOpen();
    else for (const name of checkNames.filter(isOpen)) if (kept[name](passed[name].held)) needsSample = true;
  }

  const isClear = (name: CheckName) => !isOpen(name) || samples.areClear(name, doubted.has(name));

  return {
    // A node that the last sample lacked may decide a check.
    needsSample: (nodes) => needsSample || (doubted.size > 0 && !nodes.every(samples.wasAsked)),
    addSample(node, sample) {
      samples.add(node, sample);
      if (nodeCount === 1) for (const checks of sample) countAll(passed, checks);
      return types.addSample(sample) && samples.areEnough() && checkNames.every(isClear);
    },
    endSample() {
      needsSample = false;
      types.endSample();
      decideOpen();
      for (const name of [...doubted].filter(isClear)) doubted.delete(name);
      samples.end();
    },
    enforce(names, observed) {
      if (mode !== 'auto') return;
      types.takeOver(observed);
      for (const name of checkNames) if (names.includes(name)) states[name] = 'enforced';
      needsSample &&= checkNames.some(isOpen);
    },
    judge(name, checks) {
      const broken = checkNames.filter((check) => refuses(check, checks));
      const refused = isUndecided(checks, broken) ? types.refused(checks) : [];
      if (broken.length > 0 || refused.length > 0) {
        // While the check is open, the next sample asks all nodes for this block too.
        const open = broken.filter((check) => nodeCount > 1 && isOpen(check) && checks[check] === 'fails');
        for (const check of open) {
          doubted.add(check);
          if (broke[check]()) needsSample = true;
        }
        if (types.doubt(refused)) needsSample = true;
        throw refusal(name, { broken, checks, states, advice: adviceOn(refused, mode) });
      }
      types.observe(checks);
      notePassed(checks);
      return checkNames.every((check) => checks[check] === 'holds' || checks[check] === 'none');
    },
    states: () => ({ ...states }),
    observedTypes: types.observed,
    unprovedTypes: types.accepted,
  };
}

function firstState(name: CheckName, { mode, enforced }: CalibrationOptions, isKnown: boolean): CheckState {
  if (mode === 'off') return 'off';
  return mode === 'strict' || isKnown || enforced.includes(name) ? 'enforced' : 'calibrating';
}

function verdictOfMany({ areMany }: ReturnType<typeof createSamples>, name: CheckName): CheckState {
  const [isKept, isBroken] = [areMany(keeps, name), areMany(breaks, name)];
  return isKept === isBroken ? 'calibrating' : isKept ? 'enforced' : 'off';
}

function verdictOfOne(tally: Tally): CheckState {
  if (keeps(tally)) return 'enforced';
  return breaks(tally) && tally.failed >= EVIDENCE_BLOCKS_MIN ? 'off' : 'calibrating';
}

/**
 * Counts blocks, one or up to `count`. It returns true at `first` and at about twice as many each time, so that a node that lies in each block
 * doesn't have all nodes sampled each time.
 */
function createDue(first: number): (count?: number) => boolean {
  let [counted, due] = [0, first];
  return (count = counted + 1) => {
    counted = count;
    if (counted < due) return false;
    due = counted + Math.min(counted, DUE_BLOCKS_MAX);
    return true;
  };
}

/** The blocks of several nodes. */
function createSamples(quorum: number) {
  /** The blocks of each node in all samples. */
  const tallies = new Map<unknown, Tallies>();
  /** The nodes of the current sample, and those that were asked for the last one. */
  const current = new Set<unknown>();
  let [asking, asked] = [new Set<unknown>(), new Set<unknown>()];

  const areMany = (are: (tally: Tally) => boolean, name: CheckName): boolean =>
    [...tallies.values()].filter((one) => are(one[name])).length >= quorum;
  const hasSeen = (result: keyof Tally, name: CheckName): boolean =>
    [...current].some((node) => (tallies.get(node)?.[name][result] ?? 0) > 0);

  return {
    add(node: unknown, sample: readonly Checks[]): void {
      asking.add(node);
      if (sample.length === 0) return;
      const own = tallies.get(node) ?? noBlocks();
      tallies.set(node, own);
      current.add(node);
      for (const checks of sample) countAll(own, checks);
    },
    /** Whether a quorum has been sampled now. */
    areEnough: () => current.size >= quorum,
    /** Whether this is so for the blocks of a quorum. */
    areMany,
    /** Whether the nodes sampled now leave no doubt about this check, which a refused block may have broken. */
    areClear: (name: CheckName, isDoubted: boolean): boolean =>
      areMany(keeps, name) || (!hasSeen('failed', name) && (!isDoubted || hasSeen('held', name))),
    wasAsked: (node: unknown) => asked.has(node),
    end(): void {
      current.clear();
      [asking, asked] = [new Set(), asking];
    },
  };
}

const noBlocks = () => eachCheck((): Tally => ({ held: 0, failed: 0 }));
const keeps = ({ held, failed }: Tally) => held >= EVIDENCE_BLOCKS_MIN && held > failed;
const breaks = ({ held, failed }: Tally) => failed > held;

/** Whether the block has a transaction that no check decides, so that its type must be accepted. */
const isUndecided = (checks: Checks, broken: readonly CheckName[]): boolean =>
  checks.hasMadeUpSignature === true || broken.some((check) => checks[check] === 'unknown');

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
  const reasons = broken.map((check) => `${LABELS[check]} ${WORDS[checks[check]]}`);
  const what =
    reasons.length > 0 ? reasons.join(', ') : 'the signature of a transaction is not of its sender';
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

function countAll(tallies: Tallies, checks: Checks): void {
  for (const name of checkNames) count(tallies[name], name, checks);
}

function count(tally: Tally, name: CheckName, checks: Checks): void {
  // The roots of an empty block are constants, so a root that holds there is no evidence for the check.
  const isTelling = name === 'headerHash' || !checks.isEmpty;
  if (checks[name] === 'holds' && isTelling) tally.held += 1;
  if (checks[name] === 'fails') tally.failed += 1;
}
