/**
 * The report of `verify`: counts of compared, different and undecided data.
 */
import {
  type ComparisonOutcome,
  type Difference,
  nothingUndecided,
  type UndecidedReason,
} from './compare.ts';
import type { Compared } from './compare-batch.ts';
import type { NotCompared, NotComparedCounts } from './not-compared.ts';
import type { Agreed } from './second-opinion.ts';

export type VerifyReport = {
  /** `not_compared`: a block of the range could not be compared, or too few nodes answered or agreed. */
  outcome: 'equal' | 'different' | 'not_compared' | 'reorganised';
  /** Undefined when no block is stored. */
  range: { from: number; to: number } | undefined;
  /** Compared blocks. */
  blocks: number;
  /** Equal notifications, swaps of the configured pairs, and awards. */
  notifications: number;
  swaps: number;
  awards: number;
  differences: number;
  /** How often a node contradicted the others. */
  dissents: number;
  undecided: Record<UndecidedReason, number>;
  /** The blocks that could not be compared and why, up to UNCOMPARED_MAX spans. */
  uncompared: UncomparedBlocks[];
  /** Stored figures that can't be re-derived, and why. */
  notCompared: NotCompared[];
  /** The number of configured nodes, and how many of them must confirm a difference. */
  quorum: { nodes: number; needed: number };
  /** Nodes that did not give a block that all nodes were asked for, each with its first error. */
  unanswered: { node: string; message: string }[];
  /** Statements and transactions that each server answered, if a replica is configured, and the replica's problem at the end. */
  reads?: { replica: number; primary: number; problem: string | undefined };
};

type UncomparedBlocks = {
  from: number;
  to: number;
  outcome: 'not_served' | 'too_many';
  /** Of the first of them. */
  reason: string;
};
/** Each span is a line. The counts cover all blocks. */
const UNCOMPARED_MAX = 100;

export type Tally = {
  readonly report: VerifyReport;
  /** Data that can't be re-derived. */
  readonly notCompared: NotComparedCounts;
  count(outcome: ComparisonOutcome): void;
  /** Counts a block that could not be compared. */
  countUncompared(number: number, outcome: UncomparedBlocks['outcome'], reason: string): void;
  /** Counts the blocks and equal data of a batch. Blocks with deferred notifications count as after the tip. */
  countCompared(compared: Compared): void;
  countDissent(dissent: Agreed['dissents'][number]): void;
  noteUnanswered(node: string, message: string): void;
};

export type VerifyEvents = {
  onDifference(difference: Difference): void;
  /** Called for each node that contradicts the others. */
  onDissent(dissent: Agreed['dissents'][number]): void;
};

/** Blocks of the stored range that could not be compared. */
export const uncomparedCount = ({ undecided }: Pick<VerifyReport, 'undecided'>): number =>
  undecided.not_served + undecided.too_many;

/** Whether every block of the stored range was compared, and a quorum confirmed it. */
export const isComplete = ({ undecided }: Pick<VerifyReport, 'undecided'>): boolean =>
  uncomparedCount({ undecided }) === 0 && undecided.unconfirmed === 0;

export function createTally(
  quorum: VerifyReport['quorum'],
  { onDifference, onDissent }: VerifyEvents,
): Tally {
  const notCompared: NotComparedCounts = { accrued: 0, unknownRule: 0, unobserved: 0 };
  const counts = { blocks: 0, notifications: 0, swaps: 0, awards: 0, differences: 0, dissents: 0 };
  const report: VerifyReport = {
    ...{ outcome: 'equal', range: undefined, ...counts, undecided: { ...nothingUndecided } },
    uncompared: [],
    ...{ notCompared: [], quorum, unanswered: [] },
  };
  return {
    report,
    notCompared,
    count(outcome) {
      if (outcome === 'equal') report.notifications += 1;
      else if (typeof outcome === 'string') report.undecided[outcome] += 1;
      else {
        report.differences += 1;
        onDifference(outcome);
      }
    },
    countUncompared(number, outcome, reason) {
      report.undecided[outcome] += 1;
      const last = report.uncompared.at(-1);
      // The reasons of neighbors differ only in names of blocks.
      if (last?.to === number - 1 && last.outcome === outcome) last.to = number;
      else if (report.uncompared.length < UNCOMPARED_MAX)
        report.uncompared.push({ from: number, to: number, outcome, reason });
    },
    countCompared({ blocks, deferred, swaps, awards, accrued, unknownRule }) {
      report.undecided.after_tip += deferred;
      report.blocks += blocks;
      report.swaps += swaps;
      report.awards += awards;
      notCompared.accrued += accrued;
      notCompared.unknownRule += unknownRule;
    },
    countDissent(dissent) {
      report.dissents += 1;
      onDissent(dissent);
    },
    noteUnanswered(node, message) {
      if (!report.unanswered.some((one) => one.node === node)) report.unanswered.push({ node, message });
    },
  };
}
