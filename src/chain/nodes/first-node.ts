/**
 * Asks the nodes in order of readiness until one of them answers. While a node is slow, it asks another one too.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Metrics } from '../../core/metrics.ts';
import { UnprovedFault } from '../proof/false-answer.ts';
import type { ObservedRpc } from '../rpc/rpc.ts';
import { createBudget, firstAnswer, type Hedging } from './hedge.ts';
import { attempt, byReadiness, isReady, type Node, noteLost, overdueMs } from './node.ts';
import type { NodeReader } from './node-reader.ts';

type FirstNodeOptions = {
  nodes: readonly Node[];
  clock: Clock;
  metrics: Metrics;
  rpcFor: NodeReader['rpcFor'];
};

/**
 * The first answer that is not undefined. `hedgeBy` names the measured times that decide when a node counts as
 * slow. Without it, one node is asked at a time. By default, `candidates` are all nodes.
 * @throws Fault with the message of each node if none answers
 */
type FirstNode = <T>(
  signal: AbortSignal,
  work: (node: Node, rpc: ObservedRpc, signal: AbortSignal) => Promise<T>,
  options?: { hedgeBy?: 'headTimes' | 'bundleTimes' | undefined; candidates?: readonly Node[] },
) => Promise<T>;

export function createFirstNode({ nodes, clock, metrics, rpcFor }: FirstNodeOptions): FirstNode {
  const budget = createBudget();
  const nowMs = () => clock.now().getTime();

  const hedging = (times: 'headTimes' | 'bundleTimes'): Hedging<Node> => ({
    // Ask an unmeasured node early. Otherwise a first node that is always slow would keep its place.
    afterMs: (slow, next) => overdueMs(next[times].count() === 0 ? undefined : slow[times]),
    start(next) {
      const isAffordable = isReady(next, nowMs()) && budget.take();
      if (!isAffordable) return false;
      metrics.rpcHedges.inc({ node: next.rpc.name });
      next.hedges += 1;
      return true;
    },
    lost: (slow) => noteLost(slow, nowMs()),
  });
  const hedgings = { headTimes: hedging('headTimes'), bundleTimes: hedging('bundleTimes') };

  return async (signal, work, { hedgeBy, candidates = nodes } = {}) => {
    budget.earn();
    const names = new Map<Fault, string>();
    const found = await firstAnswer(
      { clock, signal, hedging: hedgeBy && hedgings[hedgeBy] },
      byReadiness(candidates, nowMs()),
      (node, abort) =>
        attempt(node, clock, abort, () => work(node, rpcFor(node), abort)).catch((error: unknown) => {
          if (error instanceof Fault) names.set(error, node.rpc.name);
          throw error;
        }),
    );
    if ('answer' in found) return found.answer;
    throw joinFaults(found.faults, names);
  };
}

const UNPROVED_ADVICE =
  'No node in chain.rpc gives this block with data that proves it. If the chain has just had an upgrade, update Chainbell; until then, chain.verify: off follows it without proof. Otherwise the nodes give wrong or incomplete data: add a node of another operator to chain.rpc';

/** One Fault for all nodes. `inconsistent` and `unavailable` take precedence over other codes. */
function joinFaults(faults: readonly Fault[], names: ReadonlyMap<Fault, string>): Fault {
  const code = (['inconsistent', 'unavailable'] as const).find((one) =>
    faults.some((fault) => fault.code === one),
  );
  // What parses an answer doesn't know whose it is.
  const told = (fault: Fault) =>
    fault.message.startsWith('the node') ? `${names.get(fault)}: ${messageOf(fault)}` : messageOf(fault);
  const messages = [...new Set(faults.map(told))].join('; ');
  const needsAdvice = faults.some((fault) => fault instanceof UnprovedFault && !fault.isAdvised);
  return new Fault(
    code ?? faults[0]?.code ?? 'unavailable',
    needsAdvice ? `${messages}. ${UNPROVED_ADVICE}` : messages,
  );
}
