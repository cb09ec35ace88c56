/**
 * Two followers on one database, both behind the same node, which sometimes lies and refuses.
 */
import assert from 'node:assert/strict';
import { startProgram } from '../kit/program.ts';
import type { NodeFault } from './node-proxy.ts';
import { dropLog, heads, receipts } from './spoil.ts';
import type { Story } from './story.ts';

/** The number of faults that must strike, and of blocks that must be stored, under each leader. */
const STRIKES = 20;
const BLOCKS = 5;

/** Every third head is one block old, every third list of receipts lacks a log, and some requests are refused. */
function liesAndRefuses(): NodeFault {
  let [headCount, receiptCount, sentCount, refusedCount] = [0, 0, 0, 0];
  const old = heads(async (head, ask) => {
    headCount += 1;
    return headCount % 3 === 0 ? ask(Number(head.number) - 1) : undefined;
  });
  const torn = receipts((all) => {
    receiptCount += 1;
    return receiptCount % 3 === 0 ? dropLog(all) : undefined;
  });
  return {
    answer: async (call, ask) => (await old.answer?.(call, ask)) ?? torn.answer?.(call, ask),
    send(response) {
      sentCount += 1;
      // Refuses less and less often. A follower that restarts after each refusal would meet regular ones at the same point.
      if (sentCount < (refusedCount * (refusedCount + 1)) / 2) return false;
      refusedCount += 1;
      response.writeHead(503).end();
      return true;
    },
  };
}

export const followerStories: readonly Story[] = [
  {
    name: 'two followers behind a node that lies and refuses requests, and the leading one is killed',
    isPolled: true,
    mayRepeat: true,
    async tell(stage) {
      const { database, happened, nodes, payUntil, receiver, startBlock } = stage;
      const [node] = nodes;
      await stage.service.stop();
      const leader = startProgram({ database, rpc: [node.url], startBlock, receiver });
      stage.parts.defer(() => void leader.child.kill('SIGKILL'));
      const committed = () => leader.log.split('"blocks.committed"').length - 1;
      await payUntil(() => committed() > 0, 'the first follower to lead');
      await stage.restart();
      const taken = () => stage.service.metric('chainbell_ingest_blocks_total');

      node.inject(liesAndRefuses());
      const before = committed();
      const isLed = () => node.struck() >= STRIKES && committed() >= before + BLOCKS;
      await payUntil(isLed, 'blocks and faults under the first leader');
      assert.equal(await taken(), 0);
      leader.child.kill('SIGKILL');
      happened.injected += 1;
      await leader.ended;
      const struck = node.struck();
      const isTakenOver = async () => node.struck() >= struck + STRIKES && (await taken()) >= BLOCKS;
      await payUntil(isTakenOver, 'blocks and faults under the second leader');
      node.mend();
    },
  },
];
