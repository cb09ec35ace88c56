/**
 * A node that lies about what no hash covers: senders and internal transfers. It gives the right block otherwise, and is
 * preferred to two honest nodes.
 */
import assert from 'node:assert/strict';
import type { NodeFault } from './node-proxy.ts';
import { block, both, change, type Json, listOf, receipts } from './spoil.ts';
import type { Stage } from './stage.ts';
import type { Story } from './story.ts';

const STRANGER = `0x${'7'.repeat(40)}`;
/** Blocks that a restart must catch up with: more than are looked at in full. */
const BACKFILL_BLOCKS = 30;

/** The sender of the first payment, in block and receipts alike. */
const forgedSender = both(
  block((one) => ({ ...one, transactions: change(listOf(one.transactions), 0, { from: STRANGER }) })),
  receipts((all) => change(all, 0, { from: STRANGER })),
);

/** The frames below the transactions' own are changed, in whichever shape the node gives traces. */
function traces(spoilCalls: (calls: Json[]) => Json[]): NodeFault {
  return {
    async answer(call, ask) {
      if (!call.method.startsWith('debug_trace') && call.method !== 'trace_block') return undefined;
      const { result } = await ask(call);
      const all = listOf(result);
      if (call.method === 'trace_block') {
        const inner = all.filter(isInner);
        return inner.length === 0
          ? undefined
          : { result: [...all.filter((one) => !isInner(one)), ...spoilCalls(inner)] };
      }
      const index = all.findIndex(({ result: root }) => listOf(root && (root as Json).calls).length > 0);
      const root = all[index]?.result as Json | undefined;
      if (root === undefined) return undefined;
      return { result: change(all, index, { result: { ...root, calls: spoilCalls(listOf(root.calls)) } }) };
    },
  };
}

const isInner = ({ traceAddress }: Json) => Array.isArray(traceAddress) && traceAddress.length > 0;

const omitted = traces(() => []);
/** One wei more than was paid. */
const invented = traces((calls) =>
  calls.map((call) => {
    const raised = (value: unknown) => `0x${(BigInt(String(value)) + 1n).toString(16)}`;
    const { action } = call;
    return action === undefined
      ? { ...call, value: raised(call.value) }
      : { ...call, action: { ...(action as Json), value: raised((action as Json).value) } };
  }),
);

/** Told at the head, and again in a backfill. */
const lies: { name: string; fault: NodeFault }[] = [
  { name: 'a sender forged in block and receipt', fault: forgedSender },
  { name: 'an internal transfer altered', fault: invented },
  { name: 'an internal transfer omitted', fault: omitted },
];

export const unhashedStories: readonly Story[] = lies.flatMap(({ name, fault }) => [
  {
    name: `${name}, at the head, by the first of three nodes`,
    nodes: 3,
    isPolled: true,
    async tell(stage: Stage) {
      const [node] = stage.nodes;
      node.inject(fault);
      const isNamed = async () =>
        node.struck() >= 3 && /false sender|other internal transfers/.test(await errorOfFirst(stage));
      await stage.payUntil(isNamed, '/status to say of the first node that it lies');
      await stage.settled();
      assert.equal((await stage.status()).state, 'ok');
      node.mend();
    },
  },
  {
    name: `${name}, in a backfill, by the first of three nodes`,
    nodes: 3,
    isPolled: true,
    async tell(stage: Stage) {
      const [node] = stage.nodes;
      await stage.settled();
      await stage.service.stop();
      for (let count = 0; count < BACKFILL_BLOCKS; count += 1) await stage.payBlock();
      node.inject(fault);
      await stage.restart();
      await stage.settled();
      node.mend();
    },
  },
]);

async function errorOfFirst(stage: Stage): Promise<string> {
  return JSON.stringify((await stage.status()).nodes[0] ?? null);
}
