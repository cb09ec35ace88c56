/**
 * Lets a quorum of nodes decide the results of contract calls.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { jsonText } from '../../core/json.ts';
import type { Quorum } from '../../domain/quorum.ts';
import { askAll } from '../blocks/bundle.ts';
import type { RpcAnswer, RpcCall } from '../rpc/rpc.ts';
import { poll } from './equal-answers.ts';
import { byReadiness, type Node } from './node.ts';
import type { NodeReader } from './node-reader.ts';
import { describeDisagreement, type OutvotedAnswers } from './poll-report.ts';

/**
 * Like `ChainNodes.ask`, but all nodes of a quorum must give equal answers. Two answers are equal if their
 * `keyOf` is equal.
 * @throws Fault `unavailable` with the votes of each node if fewer than the quorum agree
 */
export type Agree = <T>(
  calls: readonly RpcCall[],
  read: (answers: readonly RpcAnswer[], nodeName: string) => T,
  signal: AbortSignal,
  keyOf?: (value: T) => string,
) => Promise<T>;

type CallVotesOptions = {
  nodes: readonly Node[];
  quorum: Quorum<Node>;
  clock: Clock;
  read: NodeReader['read'];
  outvoted: OutvotedAnswers;
};

export function createAgree({ nodes, quorum, clock, read: exchange, outvoted }: CallVotesOptions): Agree {
  return async (calls, read, signal, keyOf) => {
    const outcome = await poll(
      { clock, signal, quorum: quorum.needed() },
      byReadiness(nodes, clock.now().getTime()),
      async (node, abort) => {
        const answers = await exchange(node, abort, (rpc, { batch }) => askAll(rpc, calls, batch, abort));
        const answer = read(answers, node.rpc.name);
        return { answer, key: keyOf?.(answer) ?? keyOfAnswers(answers) };
      },
    );
    const what = describeCalls(calls);
    outvoted.note(outcome, what);
    const [first] = outcome.agreed ?? [];
    if (first !== undefined) return first.answer;
    // A single node needs no agreement, so its Fault is passed on as it is.
    const [fault] = outcome.faults;
    if (nodes.length === 1 && fault !== undefined) throw fault;
    throw new Fault('unavailable', `${what}: ${describeDisagreement(outcome, quorum.needed())}`);
  };
}

/** Equal for equal answers. All errors are equal, because a revert is an answer and its text differs between clients. */
export function keyOfAnswers(answers: readonly RpcAnswer[]): string {
  const text = jsonText(answers.map((answer) => (answer.ok ? answer.result : 'error')));
  if (text === undefined) throw new Fault('inconsistent', 'an answer is nested too deeply');
  return text.toLowerCase();
}

/** The methods and the block, which `eth_getBlockByNumber` names first and calls name last. */
function describeCalls(calls: readonly RpcCall[]): string {
  const call = calls.find(({ method }) => method !== 'eth_getBlockByNumber');
  const block = call === undefined ? calls[0]?.params[0] : call.params.at(-1);
  return `${[...new Set(calls.map(({ method }) => method))].join(', ')} at ${JSON.stringify(block)}`;
}
