/**
 * Reports how nodes answered a poll: in errors, in the log and in `/status`.
 */
import type { Clock } from '../../core/clock.ts';
import { messageOf } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { Poll, Vote } from './equal-answers.ts';
import type { Node } from './node.ts';

/** A node whose answer a quorum contradicted. */
export type OutvotedAnswer = { node: string; message: string; at: Date };

export type OutvotedAnswers = {
  /** Notes the nodes that gave another answer than the quorum. `what` says what was polled. */
  note(outcome: Poll<Node, unknown>, what: string): void;
  /** The last time that each node was outvoted since the start. */
  list(): OutvotedAnswer[];
};

export function createOutvotedAnswers({ clock, log }: { clock: Clock; log: Log }): OutvotedAnswers {
  const outvoted = new Map<Node, OutvotedAnswer>();
  return {
    note({ agreed, votes }, what) {
      if (agreed === undefined) return;
      for (const { voter } of votes.filter(({ key }) => key !== agreed[0]?.key)) {
        const message = `${what}: ${namesOf(agreed)} agree on another answer`;
        outvoted.set(voter, { node: voter.rpc.name, message, at: clock.now() });
        log.warn(
          { node: voter.rpc.name, what, agreeing: agreed.map((vote) => vote.voter.rpc.name) },
          'node.outvoted',
        );
      }
    },
    list: () => [...outvoted.values()],
  };
}

export const namesOf = (votes: readonly Vote<Node, unknown>[]): string =>
  votes.map(({ voter }) => voter.rpc.name).join(', ');

/** Describes which nodes gave equal answers, and why others gave none. */
export function describeDisagreement({ votes, faults }: Poll<Node, unknown>, wanted: number): string {
  const groups = [...Map.groupBy(votes, ({ key }) => key).values()].map((group) => namesOf(group));
  const answered =
    groups.length > 1
      ? [`these answer differently: ${groups.join(' | ')}`]
      : groups.map((names) => `only ${names} answered`);
  return [`${wanted} nodes must give the same answer`, ...answered, ...faults.map(messageOf)].join('; ');
}
