/**
 * Decides which transaction types a chain's blocks may have although Chainbell can't encode them ("Transaction types" in
 * docs/explanation/proof.md).
 */
import type { Checks, ProofMode } from './block-checks.ts';
import { OTHER_DEPOSIT, UNSIGNED } from './roots.ts';

type TypesOptions = {
  mode: ProofMode;
  nodeCount: number;
  observedTypes?: readonly string[];
  unprovedTypes?: readonly string[];
  /** Whether Chainbell knows all types of the chain, so that it observes none. */
  isKnown: boolean;
  quorum: number;
  /** Whether a root is enforced. Before that, every type is accepted, and a single node's blocks show which ones there are. */
  areJudged(): boolean;
};

type Types = {
  /** The types in the block that forbid using it. */
  refused(checks: Checks): string[];
  /** Observes the types in a block that is used. */
  observe(checks: Checks): void;
  /** Takes over types that another process has observed. */
  takeOver(types: readonly string[]): void;
  /** Counts the types in one node's blocks. @returns whether no type is left in doubt. */
  addSample(sample: readonly Checks[]): boolean;
  /** Observes the types that enough of the sampled nodes have. */
  endSample(): void;
  /** Notes that a block was refused for these types. @returns whether all nodes should be sampled because of it. */
  doubt(types: readonly string[]): boolean;
  observed(): string[];
  accepted(): string[];
};

export function createTypes(options: TypesOptions): Types {
  const { mode, isKnown, nodeCount, areJudged, observedTypes = [], unprovedTypes = [] } = options;
  const mayObserve = mode === 'auto' && !isKnown;
  const configured = mode === 'auto' ? unprovedTypes : [];
  // A type is a claim, so even with `chain.quorum: 1` one of several nodes is not enough.
  const quorum = nodeCount > 1 ? Math.max(2, options.quorum) : 1;
  const observed = new Set(mayObserve ? observedTypes : []);
  /** For each type, how many nodes have it in the current sample. */
  const nodes = new Map<string, number>();
  /** For each type, how many blocks were refused for it. */
  const refusals = new Map<string, number>();
  let isDoubted = false;

  /** Where all types are known, no root excuses a further one. */
  const unaccepted = (checks: Checks) =>
    (mayObserve ? unprovedIn(checks) : checks.unencodableTypes).filter(
      (type) => !observed.has(type) && !configured.includes(type),
    );

  return {
    refused: (checks) => (areJudged() ? unaccepted(checks) : []),
    observe(checks) {
      // Of several nodes, only a sample shows what a quorum has.
      if (mayObserve && nodeCount === 1 && !areJudged())
        for (const type of unprovedIn(checks)) observed.add(type);
    },
    takeOver(types) {
      if (mayObserve) for (const type of types) observed.add(type);
    },
    addSample(sample) {
      // What a single node shows after a root is enforced could be a lie.
      if (!mayObserve || (nodeCount === 1 && areJudged())) return true;
      const open = [...new Set(sample.flatMap(unaccepted))];
      for (const type of open) nodes.set(type, (nodes.get(type) ?? 0) + 1);
      return !isDoubted && open.every((type) => (nodes.get(type) ?? 0) >= quorum);
    },
    endSample() {
      for (const [type, count] of nodes) if (count >= quorum) observed.add(type);
      nodes.clear();
      isDoubted = false;
    },
    doubt(types) {
      if (!mayObserve || nodeCount === 1) return false;
      let isDue = false;
      for (const type of types) {
        const count = (refusals.get(type) ?? 0) + 1;
        refusals.set(type, count);
        // After 1, 2, 4, 8 … blocks: a node that lies in each must not have all nodes sampled each time.
        isDue ||= Number.isInteger(Math.log2(count));
      }
      isDoubted ||= isDue;
      return isDue;
    },
    observed: () => [...observed].sort(),
    accepted: () => [...new Set([...observed, ...configured])].sort(),
  };
}

/** What the operator can do about a block that was refused for these types. Empty without any. */
export function adviceOn(types: readonly string[], mode: ProofMode): string {
  if (types.length === 0) return '';
  const named = types.map((type) =>
    type === UNSIGNED ? 'without a signature of their sender' : `of type ${type}`,
  );
  const reason = `Chainbell can't prove transactions ${named.join(' or ')}`;
  const key = `chain.unprovedTypes: [${types.map((type) => `"${type}"`).join(', ')}]`;
  if (mode === 'strict')
    return `: ${reason}, and chain.verify is strict. If the chain has them, set chain.verify to auto and ${key}; otherwise replace the node`;
  return `: ${reason}, and has not observed any on this chain. If the chain has them, set ${key}; otherwise replace the node`;
}

/**
 * The types in this block that no root proves. A receipt is encoded with the type of its transaction, so a receipts root
 * that holds proves all types, but not whether a transaction is signed, or a deposit of the OP Stack without its source hash.
 */
function unprovedIn({ receiptsRoot, unencodableTypes }: Checks): readonly string[] {
  return receiptsRoot === 'holds' ? unencodableTypes.filter(isOfTheNode) : unencodableTypes;
}

/** A node could turn another transaction into one of these by leaving out fields. */
const isOfTheNode = (type: string) => type === UNSIGNED || type === OTHER_DEPOSIT;
