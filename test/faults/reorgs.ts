/**
 * Reorgs of every depth, in the middle of a response, and below the finalized block.
 */
import assert from 'node:assert/strict';
import { encodeCall } from '../../devnet/contracts.ts';
import { findBlock, quantity } from '../../devnet/wallet.ts';
import { list, record } from '../../src/chain/rpc/parse.ts';
import { encodeWord } from '../../src/core/abi.ts';
import type { Hash, Hex } from '../../src/core/hex.ts';
import { sql } from '../../src/store/db/sql.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createWatcher, freshAddress } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';
import { heads } from './spoil.ts';
import type { Story } from './story.ts';

/**
 * Replaces the newest blocks. All transactions of a paid block except the first are mined again, in another order and after an
 * additional log, so each transaction and each log has a new position. `place` counts the new blocks from 0.
 */
export async function reorg(
  chain: Chain,
  depth: number,
  paid: readonly Hash[],
  place = depth - 1,
): Promise<void> {
  const before = await notificationKeysOf(chain, paid.slice(1));
  const raw: unknown[] = [];
  for (const hash of paid) raw.push(await chain.rpc('eth_getRawTransactionByHash', [hash]));
  const [, transfer, split, second, other] = raw;
  const [, spender] = chain.accounts;
  const input = encodeCall({ contract: 'DemoToken', method: 'approve', values: [spender, 1n] });
  const approval = { from: spender, to: before[0]?.to, input };
  // Each sender's transactions keep their order.
  const again = [approval, split, transfer, other, second].map((one) => [one, place]);
  await chain.alone(() => chain.rpc('anvil_reorg', [depth, again]));
  const after = await notificationKeysOf(chain, paid.slice(1));
  for (const [index, { place, logs }] of before.entries()) {
    assert.notEqual(after[index]?.place, place);
    for (const log of logs) assert.ok(after[index]?.logs.includes(log) === false);
  }
}

/** The number of payments in a paid block. */
const PAYMENTS = 5;
const isHash = (value: unknown): value is Hash => typeof value === 'string' && value.length === 66;

/** The positions of transactions and their logs in their blocks. */
async function notificationKeysOf(chain: Chain, hashes: readonly Hash[]) {
  const places: { to: unknown; place: number; logs: string[] }[] = [];
  for (const hash of hashes) {
    const receipt = record(await chain.rpc('eth_getTransactionReceipt', [hash]), 'receipt');
    const logs = list(receipt.logs, 'logs').map((log) => String(record(log, 'log').logIndex));
    places.push({ to: receipt.to, place: Number(receipt.transactionIndex), logs });
  }
  return places;
}

const deep = (depth: number, confirmations: number): Story => ({
  name: `a reorg ${depth} deep under ${confirmations} confirmations, with the same transactions in other positions`,
  ...(confirmations > 0 && { chain: { confirmations } }),
  async tell({ chain, payBlock, settled, oracle, happened }) {
    const paid = await payBlock();
    await chain.mine(depth - 1);
    await settled();
    // A transfer that waits for confirmations must not have been notified.
    if (confirmations === 0) await oracle.look();
    await reorg(chain, depth, paid);
    happened.injected += 1;
    await settled();
  },
});

/** The follower learns of the reorg only when the new branch is longer: from the parent of the next block. */
const grown: Story = {
  name: 'a reorg 3 deep that the nodes show only from two blocks above it',
  isPolled: true,
  async tell({ chain, nodes: [node], payBlock, settled, oracle }) {
    const paid = await payBlock();
    await chain.mine(2);
    await settled();
    await oracle.look();
    const head = await chain.rpc('eth_getBlockByNumber', ['latest', false]);
    node.inject(heads(async () => head));
    await waitUntil(() => node.struck() >= 1);
    await reorg(chain, 3, paid);
    await chain.mine(2);
    node.mend();
    await settled();
  },
};

/** The reorg happens between two responses: the block is the old one, the receipts are those of its transactions afterwards. */
const torn = (word: 'hash' | 'number'): Story => ({
  name: `a reorg between the requests of a block and of its receipts, by ${word}`,
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
          const number = isByHash ? head.number : Number(reference);
          const paid = await chain.rpc('eth_getBlockByNumber', [quantity(number), false]);
          const hashes = list(record(paid, 'block').transactions, 'transactions').filter(isHash);
          if (hashes.length !== PAYMENTS) return undefined;
          await reorg(chain, head.number - number + 1, hashes, 0);
          return ask(call);
        },
      },
      1,
    );
    await payUntil(() => node.struck() >= 1, 'the chain to turn over inside an answer');
  },
});

const belowFinality: Story = {
  name: 'a reorg from below the final block, until the former chain is back',
  isSlow: true,
  isPolled: true,
  mayRepeat: true,
  chainOptions: { extraArguments: ['--slots-in-an-epoch', '1'] },
  async tell(stage) {
    const { chain, receiver, service, startBlock, payBlock, payUntil, status } = stage;
    const [node] = stage.nodes;
    const readFinal = () => service.metric('chainbell_chain_block_number{stage="finalized"}');
    await payUntil(async () => (await readFinal()) > startBlock, 'something to be final');
    // Webhooks that become due now must be delivered nevertheless.
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
    assert.match((await status()).problem?.message ?? '', /reorg from below the final block/);
    receiver.setAnswer({});
    const countWaiting = async () =>
      (await service.database.query(sql`select 1 from notification_status where state = 'waiting' limit 1`))
        .length;
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

/**
 * Emits Transfer(caller, the address in the input, block number). When the same transaction is mined again in another block,
 * it moves a different amount.
 */
const TRANSFER_TOPIC = 'ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';
const NUMBER_TOKEN: Hex = `0x602c8060095f395ff3435f525f35337f${TRANSFER_TOPIC}60205fa300`;

const otherOutcome = (confirmations: number): Story => ({
  name: `a transaction mined again with another amount, under ${confirmations} confirmations`,
  ...(confirmations > 0 && { chain: { confirmations } }),
  async tell({ chain, receiver, watched, payBlock, settled, oracle, happened }) {
    const [from] = chain.accounts;
    const deployed = await chain.send({ from, input: NUMBER_TOKEN });
    await chain.mine();
    const to = (await chain.receiptOf(deployed)).contractAddress;
    assert.ok(to !== undefined);
    const hash = await chain.send({ from, to, input: `0x${encodeWord(watched[0])}` });
    await chain.mine();
    const { blockNumber } = await chain.receiptOf(hash);
    await payBlock();
    await settled();
    if (confirmations === 0) await oracle.look();
    const raw = await chain.rpc('eth_getRawTransactionByHash', [hash]);
    await chain.alone(() => chain.rpc('anvil_reorg', [2, [[raw, 1]]]));
    assert.equal((await chain.receiptOf(hash)).blockNumber, blockNumber + 1);
    happened.injected += 1;
    await payBlock();
    await chain.mine(confirmations + 1);
    await settled();
    const received = receiver.requests.map(({ json }) => record(json, 'webhook'));
    const told = received.filter((one) => one.hash === hash);
    const amounts = new Map(told.map(({ id, amount }) => [id, Number(amount)]));
    const canonical = [blockNumber + 1];
    assert.deepEqual([...amounts.values()], confirmations === 0 ? [blockNumber, ...canonical] : canonical);
  },
});

const orphanedRetries: Story = {
  name: 'failed webhooks whose transfers a reorg orphans',
  mayRepeat: true,
  async tell({ chain, receiver, service, payBlock, settled, oracle, happened }) {
    receiver.setAnswer({ status: 503 });
    const hashes = new Set<unknown>(await payBlock());
    const countFailed = async () =>
      (
        await service.database.query(
          sql`select from notification_status where retry_count > 0 and state = 'waiting' limit 10`,
        )
      ).length;
    await waitUntil(async () => (await countFailed()) >= 4, { describe: 'the webhooks to fail' });
    await oracle.look();
    await chain.reorg(1);
    happened.injected += 1;
    await settled();
    const before = receiver.requests.length;
    receiver.setAnswer({});
    await payBlock();
    await settled();
    const after = receiver.requests.slice(before).map(({ json }) => record(json, 'webhook'));
    assert.ok(after.length > 0);
    assert.deepEqual(
      after.filter(({ hash }) => hashes.has(hash)),
      [],
    );
  },
};

export const reorgStories: readonly Story[] = [
  ...[1, 3, 30].map((depth) => deep(depth, 0)),
  deep(3, 5),
  grown,
  otherOutcome(0),
  otherOutcome(3),
  orphanedRetries,
  torn('hash'),
  torn('number'),
  belowFinality,
];
