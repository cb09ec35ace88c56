/**
 * Decides how many nodes must agree. With a majority of honest nodes, no false block is accepted (docs/explanation/quorum.md).
 */
import type { Clock } from '../core/clock.ts';
import { createSilences } from './silence.ts';

/** `auto`, or the number from chain.quorum. */
export type QuorumSetting = 'auto' | number;

export type Quorum<Voter> = {
  readonly nodeCount: number;
  /** Set by chain.quorum. Silent nodes don't lower it. */
  readonly isFixed: boolean;
  /** Votes that a block currently needs. */
  needed(): number;
  /** Records that this node has just answered. */
  noteAnswer(voter: Voter): void;
  /** Records that this node has given no vote in a round in which all nodes were asked, and another one has. */
  noteMiss(voter: Voter): void;
  /** Records that no voter gave a vote. */
  noteOutage(): void;
  /** With two nodes, the one that has been silent for so long that Chainbell follows the other one alone. */
  silent(): { voter: Voter; since: Date } | undefined;
};

/** As /status shows it. */
export type QuorumStatus = {
  nodes: number;
  /** Votes that a block currently needs. */
  needed: number;
  /** Votes for the last head. */
  votes: number;
  /** While the nodes disagree about their newest blocks: why none of these is followed. */
  dispute: { message: string; since: Date } | undefined;
  /** True if, at the last request to all nodes, no quorum named a block that all its nodes have reached. */
  isHeld: boolean;
  /** Why the head doesn't move: a node that the quorum needs is behind, or has not answered yet. */
  stalled: { message: string; since: Date } | undefined;
  /** Nodes ahead of a head that has not moved for long. They are too few to be followed. */
  ahead: { message: string; since: Date } | undefined;
  /** With two nodes, the silent one while Chainbell follows the other one alone. */
  silent: { name: string; since: Date } | undefined;
};

/** Half of the nodes, rounded up, and at least two. If fewer than half of all nodes lie, one of these is honest. */
export function quorumOf(nodeCount: number, setting: QuorumSetting): number {
  if (setting !== 'auto') return Math.min(setting, Math.max(1, nodeCount));
  return nodeCount <= 1 ? 1 : Math.max(2, Math.ceil(nodeCount / 2));
}

/** Half of the nodes, rounded up. If fewer than half of all nodes are wrong, one of these is honest. */
export const credibleCount = (nodeCount: number): number => Math.max(1, Math.ceil(nodeCount / 2));

export function createQuorum<Voter>(
  voters: readonly Voter[],
  setting: QuorumSetting,
  clock: Clock,
): Quorum<Voter> {
  const quorum = quorumOf(voters.length, setting);
  const mayFollowOne = voters.length === 2 && setting === 'auto';
  const silences = createSilences<Voter>(clock);

  function silent() {
    const away = voters.flatMap((voter) => {
      const since = silences.since(voter);
      return since === undefined ? [] : { voter, since };
    });
    return mayFollowOne && away.length === 1 ? away[0] : undefined;
  }

  return {
    nodeCount: voters.length,
    isFixed: setting !== 'auto',
    needed: () => (silent() === undefined ? quorum : 1),
    noteAnswer: silences.end,
    noteMiss: silences.noteMiss,
    noteOutage: silences.pause,
    silent,
  };
}
