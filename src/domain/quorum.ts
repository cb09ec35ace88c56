/**
 * How many nodes must agree (docs/explanation/quorum.md): a majority of honest nodes keeps every false block out.
 */
import type { Clock } from '../core/clock.ts';

/** `auto`, or the number from chain.quorum. */
export type QuorumSetting = 'auto' | number;

export type Quorum<Voter> = {
  readonly nodeCount: number;
  /** Set by chain.quorum: no silence lowers it. */
  readonly isFixed: boolean;
  /** Votes that corroborate a block at the moment. */
  needed(): number;
  /** Notes that this node has just answered. */
  heard(voter: Voter): void;
  /** Notes that this node has given no vote in a round in which all were asked. */
  missed(voter: Voter): void;
  /** With two nodes, the one that has been silent for so long that the other one is followed alone. */
  silent(): { voter: Voter; since: Date } | undefined;
};

/** As /status shows it. */
export type QuorumStatus = {
  nodes: number;
  /** Votes that corroborate a block at the moment. */
  needed: number;
  /** Nodes that name the last head. */
  votes: number;
  /** Why the nodes' newest blocks are not followed, while they disagree about them. */
  dispute: { message: string; since: Date } | undefined;
  /** Set when the nodes were last asked and no quorum named a block that all of it has reached. */
  isHeld: boolean;
  /** Why the head does not move: a node that the quorum needs is behind, or owes an answer. */
  stalled: { message: string; since: Date } | undefined;
  /** Which nodes are ahead of a head that has not moved for long: too few to be followed. */
  ahead: { message: string; since: Date } | undefined;
  /** With two nodes, the silent one while the other one is followed alone. */
  silent: { name: string; since: Date } | undefined;
};

/**
 * With two nodes both must agree, so one that is down would stop everything; after this the other one is
 * followed.
 */
export const SILENCE_MS = 30_000;
/** Rounds without a vote in that time. A process that was paused asked no node, so no node was silent. */
export const SILENT_ROUNDS_MIN = 3;

/** Half of the nodes, rounded up, and at least two: with fewer than half lying, one of them is honest. */
export function quorumOf(nodeCount: number, setting: QuorumSetting): number {
  if (setting !== 'auto') return Math.min(setting, Math.max(1, nodeCount));
  return nodeCount <= 1 ? 1 : Math.max(2, Math.ceil(nodeCount / 2));
}

/**
 * This many nodes include an honest one: they are half of the nodes, rounded up, and fewer than half are
 * wrong.
 */
export const credibleCount = (nodeCount: number): number => Math.max(1, Math.ceil(nodeCount / 2));

export function createQuorum<Voter>(
  voters: readonly Voter[],
  setting: QuorumSetting,
  clock: Clock,
): Quorum<Voter> {
  const quorum = quorumOf(voters.length, setting);
  const mayFollowOne = voters.length === 2 && setting === 'auto';
  const misses = new Map<Voter, { sinceMs: number; rounds: number }>();

  function silent() {
    const now = clock.now().getTime();
    const away = [...misses].filter(
      ([, { sinceMs, rounds }]) => now - sinceMs >= SILENCE_MS && rounds >= SILENT_ROUNDS_MIN,
    );
    const [first] = away;
    if (!mayFollowOne || first === undefined || away.length > 1) return undefined;
    const [voter, { sinceMs }] = first;
    return { voter, since: new Date(sinceMs) };
  }

  return {
    nodeCount: voters.length,
    isFixed: setting !== 'auto',
    needed: () => (silent() === undefined ? quorum : 1),
    heard: (voter) => void misses.delete(voter),
    missed(voter) {
      const known = misses.get(voter);
      const sinceMs = known?.sinceMs ?? clock.now().getTime();
      misses.set(voter, { sinceMs, rounds: (known?.rounds ?? 0) + 1 });
    },
    silent,
  };
}
