/**
 * The reason why this process doesn't follow the chain, or follows it with less certainty than configured, and since when.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { type Fault, messageOf } from '../core/fault.ts';
import type { QuorumStatus } from '../domain/quorum.ts';
import type { Trouble } from './deployment-status.ts';

/** Consecutive troubles of one kind count as one, even if their messages differ. */
type Kind = 'stopped' | 'ahead' | 'silent' | 'silent tracer' | 'untraced';
type KindOfTrouble = Trouble & { kind: Kind };

/** The Fault of a step. `isRecurring`: it came again soon after steps that had worked. `isOver`: the last step worked. */
type Failed = { fault: Fault; since: Date; at: Date; isRecurring: boolean; isOver: boolean };
/**
 * How soon that is, and how long such a Fault is shown after the last time. Some work of a step is done every 10 s only, such as asking what
 * is final.
 */
const RECURRING_MS = 30_000;

type FollowingTrouble = {
  /**
   * Notes the Fault of the follower's last step; undefined after a step that worked. A Fault that comes again and again between steps that
   * work stays the trouble.
   */
  noteStep(failed: Fault | undefined, now: Date): void;
  /** The present trouble. Without `tipNumber`, doesn't check whether the head is below the stored tip. */
  find(tipNumber: number | undefined): Trouble | undefined;
};

type TroubleSources = {
  /** Since when the database has held up the follower. */
  heldUpSince(): Date | undefined;
  isEmbedded: boolean;
  /** With two tracing nodes, the silent one while the other one is believed alone. */
  silentTracer(): QuorumStatus['silent'];
};

export function createFollowingTrouble(
  nodes: ChainNodes | undefined,
  { heldUpSince, isEmbedded, silentTracer }: TroubleSources,
): FollowingTrouble {
  let failed: Failed | undefined;
  /** The last Fault that is no longer shown. */
  let ended: Failed | undefined;
  let shown: { kind: Kind; since: Date } | undefined;
  const own = () =>
    heldUp(heldUpSince(), isEmbedded) ?? troubleOf(failed, nodes) ?? untracedBy(silentTracer(), nodes);

  return {
    noteStep(fault, now) {
      const before = failed ?? ended;
      // The clock may have been set back.
      const isSoon = before !== undefined && Math.abs(now.getTime() - before.at.getTime()) < RECURRING_MS;
      if (fault !== undefined) {
        const isAgain = isSoon && before.isOver && messageOf(fault) === messageOf(before.fault);
        const lasting = failed?.isOver === false ? failed : undefined;
        const isRecurring = isAgain || lasting?.isRecurring === true;
        const since = isAgain ? before.since : (lasting?.since ?? now);
        failed = { fault, since, at: now, isRecurring, isOver: false };
      } else if (failed !== undefined) {
        const over = { ...failed, isOver: true };
        if (failed.isRecurring && isSoon) failed = over;
        else [failed, ended] = [undefined, over];
      }
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

function troubleOf(failed: Failed | undefined, nodes: ChainNodes | undefined): KindOfTrouble | undefined {
  const quorum = nodes?.quorum();
  if (failed !== undefined) {
    const isHolding = (!failed.isOver && failed.fault.code === 'inconsistent') || quorum?.isHeld === true;
    const state = isHolding ? 'holding' : 'degraded';
    return { kind: 'stopped', state, message: messageOf(failed.fault), since: failed.since };
  }
  const held = quorum?.dispute ?? quorum?.stalled;
  if (held !== undefined) return { kind: 'stopped', state: 'holding', ...held };
  if (quorum?.ahead !== undefined) return { kind: 'ahead', state: 'degraded', ...quorum.ahead };
  if (quorum?.silent === undefined) return undefined;
  const { name, since } = quorum.silent;
  return {
    kind: 'silent',
    state: 'degraded',
    message: `${name} gives no votes, so the other node is followed alone and could be wrong: repair it, add a third node, or set chain.quorum: 2 to hold instead`,
    since,
  };
}

/** Too few nodes trace, or none. */
function untracedBy(
  silent: QuorumStatus['silent'],
  nodes: ChainNodes | undefined,
): KindOfTrouble | undefined {
  const untraced = nodes?.untraced();
  if (untraced !== undefined) return { kind: 'untraced', state: 'degraded', ...untraced };
  return (
    silent && {
      ...{ kind: 'silent tracer', state: 'degraded', since: silent.since },
      message: `${silent.name} gives no traces, so the other node that can trace is believed alone about internal transfers, and could be wrong: repair it, add a third node that can trace, or set chain.quorum to hold instead`,
    }
  );
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
