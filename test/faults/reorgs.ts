/**
 * A chain that changes: forks of every depth, in the middle of an answer, and below what is final.
 */
import assert from 'node:assert/strict';
import { findBlock } from '../../devnet/wallet.ts';
import type { Hash } from '../../src/core/hex.ts';
import { sql } from '../../src/store/sql.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createWatcher, freshAddress } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';
import type { Story } from './story.ts';

/** Replaces the newest blocks. Of a paid block all but the first transaction are mined again, elsewhere and in another order. */
export async function reorg(chain: Chain, depth: number, paid: readonly Hash[]): Promise<void> {
  const raw: unknown[] = [];
  for (const hash of paid) raw.push(await chain.rpc('eth_getRawTransactionByHash', [hash]));
  const [, transfer, split, second, other] = raw;
  // Each sender's own order stays.
  const again = [split, transfer, other, second].map((one) => [one, depth - 1]);
  await chain.alone(() => chain.rpc('anvil_reorg', [depth, again]));
}

const deep = (depth: number, confirmations: number): Story => ({
  name: `a reorg ${depth} deep under ${confirmations} confirmations, with the same transactions in other places`,
  ...(confirmations > 0 && { chain: { confirmations } }),
  async tell({ chain, payBlock, settled, oracle, happened }) {
    const paid = await payBlock();
    await chain.mine(depth - 1);
    await settled();
    // What waits for confirmations must not have been told.
    if (confirmations === 0) await oracle.look();
    await reorg(chain, depth, paid);
    happened.injected += 1;
    happened.forks += 1;
    await settled();
  },
});

/** The chain turns over while a node answers: the block is of before, the receipts are of after. */
const torn = (word: 'hash' | 'number'): Story => ({
  name: `a reorg between the block and its receipts, asked for by ${word}`,
  isPolled: true,
  async tell({ chain, nodes: [node], payUntil }) {
    node.inject(
      {
        async answer(call, ask) {
          const [reference] = call.params;
          if (call.method !== 'eth_getBlockReceipts' || typeof reference !== 'string') return undefined;
          const isByHash = reference.length === 66;
          const head = await chain.head();
          if (isByHash !== (word === 'hash') || (isByHash && reference !== head.hash)) return undefined;
          await chain.reorg(isByHash ? 1 : head.number - Number(reference) + 1);
          return ask(call);
        },
      },
      1,
    );
    await payUntil(() => node.struck() >= 1, 'the chain to turn over inside an answer');
  },
});

const belowFinality: Story = {
  name: 'a reorg below what is final, until the chain of before is back',
  isSlow: true,
  isPolled: true,
  mayRepeat: true,
  chainOptions: { extraArguments: ['--slots-in-an-epoch', '1'] },
  async tell(stage) {
    const { chain, receiver, service, startBlock, payBlock, payUntil, status } = stage;
    const [node] = stage.nodes;
    const readFinal = () => service.metric('chainbell_chain_block_number{stage="finalized"}');
    await payUntil(async () => (await readFinal()) > startBlock, 'something to be final');
    // What is due then must be told all the same.
    receiver.setAnswer({ status: 503 });
    await payBlock();
    const { number, hash } = await chain.head();
    await waitUntil(async () => (await status()).cursor?.number === number);
    const before = stage.parts.use(await startChain());
    await before.rpc('anvil_loadState', [await chain.rpc('anvil_dumpState')]);
    await before.pauseMining();
    assert.deepEqual(await findBlock(before, number), { number, hash });

    await chain.reorg(number - (await readFinal()) + 1);
    await chain.mine();
    await waitUntil(async () => (await status()).state === 'holding', { describe: 'the follower to hold' });
    assert.match((await status()).problem?.message ?? '', /fork from below the final block/);
    receiver.setAnswer({});
    const countWaiting = async () =>
      (await service.database.query(sql`select 1 from notification where state = 'waiting' limit 1`)).length;
    await waitUntil(async () => (await countWaiting()) === 0, { describe: 'what is due to be told' });
    await (await createWatcher(service, 'later')).watch({
      address: freshAddress(),
      webhookUrl: receiver.url,
    });
    assert.equal((await status()).state, 'holding');
    assert.equal((await status()).cursor?.number, number);

    node.turnTo(before);
    stage.chain = before;
  },
};

export const reorgStories: readonly Story[] = [
  ...[1, 3, 30].map((depth) => deep(depth, 0)),
  deep(3, 5),
  torn('hash'),
  torn('number'),
  belowFinality,
];
