/**
 * The reason why this process doesn't follow the chain, or follows it with less certainty than configured, and since when.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { type Fault, messageOf } from '../core/fault.ts';
import type { Trouble } from './deployment-status.ts';

/** Consecutive troubles of one kind count as one, even if their messages differ. */
type Kind = 'stopped' | 'ahead' | 'silent' | 'untraced';
type KindOfTrouble = Trouble & { kind: Kind };

type FollowingTrouble = {
  /** Notes the Fault of the follower's last step; undefined after a step that worked. */
  noteStep(failed: Fault | undefined, now: Date): void;
  /** The present trouble. Without `tipNumber`, doesn't check whether the head is below the stored tip. */
  find(tipNumber: number | undefined): Trouble | undefined;
};

/** `heldUpSince`: since when the database, which may be the embedded one, has held up the follower. */
export function createFollowingTrouble(
  nodes: ChainNodes | undefined,
  { heldUpSince, isEmbedded }: { heldUpSince(): Date | undefined; isEmbedded: boolean },
): FollowingTrouble {
  let failed: { fault: Fault; since: Date } | undefined;
  let shown: { kind: Kind; since: Date } | undefined;
  const own = () => heldUp(heldUpSince(), isEmbedded) ?? troubleOf(failed, nodes);

  return {
    noteStep(fault, now) {
      failed = fault && { fault, since: failed?.since ?? now };
      if (shown !== undefined && own() === undefined) shown = undefined;
    },
    find(tipNumber) {
      const found =
        own() ?? (nodes === undefined || tipNumber === undefined ? undefined : rollbackOf(nodes, tipNumber));
      if (found === undefined) {
        if (tipNumber !== undefined) shown = undefined;
        return undefined;
      }
      const { kind, ...trouble } = found;
      const since = shown?.kind === kind && shown.since < trouble.since ? shown.since : trouble.since;
      shown = { kind, since };
      return { ...trouble, since };
    },
  };
}

/** Comes first, because the Fault of the step before says less about the cause. */
function heldUp(since: Date | undefined, isEmbedded: boolean): KindOfTrouble | undefined {
  const cause = isEmbedded
    ? 'a long statement of another part or of a command holds it up'
    : 'a lock on a table, or a slow statement, holds it up. PostgreSQL lists them in pg_stat_activity and pg_locks';
  return (
    since && {
      ...{ kind: 'stopped', state: 'degraded', since },
      message: `the database does not answer the follower, so no block is stored: ${cause}`,
    }
  );
}

function troubleOf(
  failed: { fault: Fault; since: Date } | undefined,
  nodes: ChainNodes | undefined,
): KindOfTrouble | undefined {
  const quorum = nodes?.quorum();
  if (failed !== undefined) {
    const isHolding = failed.fault.code === 'inconsistent' || quorum?.isHeld === true;
    const state = isHolding ? 'holding' : 'degraded';
    return { kind: 'stopped', state, message: messageOf(failed.fault), since: failed.since };
  }
  const held = quorum?.dispute ?? quorum?.stalled;
  if (held !== undefined) return { kind: 'stopped', state: 'holding', ...held };
  if (quorum?.ahead !== undefined) return { kind: 'ahead', state: 'degraded', ...quorum.ahead };
  if (quorum?.silent === undefined) {
    const untraced = nodes?.untraced();
    return untraced && { kind: 'untraced', state: 'degraded', ...untraced };
  }
  const { name, since } = quorum.silent;
  return {
    kind: 'silent',
    state: 'degraded',
    message: `${name} gives no votes, so the other node is followed alone and could be wrong: repair it, add a third node, or set chain.quorum: 2 to hold instead`,
    since,
  };
}

/** The nodes' head is below the stored tip, as after a restore of a node from a backup. */
function rollbackOf(nodes: ChainNodes, tipNumber: number): KindOfTrouble | undefined {
  const [head, since] = [nodes.headNumber(), nodes.belowSince(tipNumber)];
  if (head === undefined || since === undefined) return undefined;
  const who = nodes.quorum().nodes === 1 ? 'the node is' : 'the nodes are';
  return {
    kind: 'stopped',
    state: 'holding',
    message: `${who} at block ${head}, and block ${tipNumber} is stored: following resumes above block ${tipNumber}. Wait if they are catching up; otherwise check why they went back, or add a node to chain.rpc that has block ${tipNumber}`,
    since,
  };
}
