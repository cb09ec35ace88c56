/**
 * A node that lies about the contents of blocks, about its head, or about its chain.
 */
import assert from 'node:assert/strict';
import { startChain } from '../kit/anvil.ts';
import { waitUntil } from '../kit/wait.ts';
import type { NodeFault } from './node-proxy.ts';
import {
  block,
  both,
  change,
  changeLog,
  dropLog,
  farAhead,
  finalAhead,
  heads,
  listOf,
  only,
  receipts,
} from './spoil.ts';
import { lieUntil, type Story } from './story.ts';

/** keccak256("Transfer(address,address,uint256)"), EIP-20. */
const TRANSFER = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';
const ANYBODY = `0x${'7'.repeat(40).padStart(64, '0')}`;
const NOBODYS = `0x${'9'.repeat(64)}`;
/** The id of another chain. */
const OTHER_CHAIN = 4_242;
/** The maximum depth of a reorg. */
const FINALITY_DEPTH = 3;

/** A lie about one kind of response. Undefined for a response that it cannot spoil. */
type Lie = {
  name: string;
  fault: NodeFault;
  /** The problem in /status while every such response is a lie. Undefined: the program recovers with the same node. */
  seen: [state: 'holding' | 'degraded', problem: RegExp] | undefined;
  /** It disproves no answer of its node, so beside other nodes /status shows it only until that node's next answer. */
  isBrief?: boolean;
};

const lies: readonly Lie[] = [
  {
    name: 'one log dropped',
    fault: receipts(dropLog),
    seen: ['holding', /receipts root/],
  },
  {
    name: 'the tail of the receipts dropped',
    fault: receipts((all) => all.slice(0, -2)),
    seen: undefined,
  },
  {
    name: 'a receipt of another block',
    fault: receipts((all) => change(all, 0, { blockHash: `0x${'5'.repeat(64)}` })),
    seen: ['holding', /receipt of .* is of block/],
  },
  { name: 'an empty list of receipts', fault: receipts(() => []), seen: undefined },
  {
    name: 'receipts repeated and empty in place of others',
    fault: receipts(([first, , ...others]) => [first, first, ...others.map(() => null)]),
    seen: undefined,
  },
  {
    name: 'a receipt that no answer contains',
    fault: both(
      receipts((all) => all.slice(0, -1)),
      {
        answer: async ({ method }) => (method === 'eth_getTransactionReceipt' ? { result: null } : undefined),
      },
    ),
    seen: [
      'holding',
      /has no receipt of transaction 0x[0-9a-f]{64} in block \d+ .* add another node to chain\.rpc/,
    ],
    isBrief: true,
  },
  {
    name: 'null receipts',
    fault: receipts(() => null),
    seen: ['degraded', /does not have the receipts yet/],
    isBrief: true,
  },
  {
    name: 'a null block',
    fault: block(() => null),
    seen: ['degraded', /does not have block/],
    isBrief: true,
  },
  {
    name: 'a block without its transactions',
    fault: block((one) => ({ ...one, transactions: [] })),
    seen: ['holding', /0 transactions and \d+ receipts/],
  },
  {
    name: 'a block without its transactions, and no receipts',
    fault: both(
      block((one) => ({ ...one, transactions: [] })),
      receipts(() => []),
    ),
    seen: ['holding', /transactions root/],
  },
  {
    name: 'the amount of a log altered',
    fault: receipts((all) => changeLog(all, { data: `0x${'7'.padStart(64, '0')}` })),
    seen: ['holding', /receipts root/],
  },
  {
    name: 'the token of a log altered',
    fault: receipts((all) => changeLog(all, { address: `0x${'7'.repeat(40)}` })),
    seen: ['holding', /receipts root/],
  },
  {
    name: 'a topic of a log altered',
    fault: receipts((all) => changeLog(all, { topics: [TRANSFER, ANYBODY, ANYBODY] })),
    seen: ['holding', /receipts root/],
  },
  {
    name: 'the status of a receipt altered',
    fault: receipts((all) => change(all, 0, { status: '0x0' })),
    seen: ['holding', /receipts root/],
  },
  {
    name: 'the value of a transaction altered',
    fault: block((one) => ({ ...one, transactions: change(listOf(one.transactions), 0, { value: '0x7' }) })),
    seen: ['holding', /transactions root/],
  },
  {
    name: 'the value of a transaction altered, and its type to one that cannot be encoded',
    fault: block((one) => ({
      ...one,
      transactions: change(listOf(one.transactions), 0, { type: '0x7d', value: '0x7' }),
    })),
    seen: ['holding', /of type 0x7d, .* set chain\.unprovedTypes/],
    isBrief: true,
  },
  {
    name: 'every transaction altered to a type that cannot be encoded',
    fault: block((one) => ({
      ...one,
      transactions: listOf(one.transactions).map((each) => ({ ...each, type: '0x7d', value: '0x7' })),
    })),
    seen: ['holding', /of type 0x7d, .* set chain\.unprovedTypes/],
    isBrief: true,
  },
  {
    name: 'the value of a transaction altered, and its signature removed',
    fault: block((one) => ({
      ...one,
      transactions: change(listOf(one.transactions), 0, { r: '0x0', s: '0x0', value: '0x7' }),
    })),
    seen: ['holding', /without a signature.* set chain\.unprovedTypes/],
    isBrief: true,
  },
  {
    name: 'the sender of a transaction altered',
    fault: block((one) => ({
      ...one,
      transactions: change(listOf(one.transactions), 0, { from: `0x${'7'.repeat(40)}` }),
    })),
    seen: ['holding', /and by its receipt/],
  },
  {
    name: 'the time of a block altered',
    fault: block((one) => ({ ...one, timestamp: '0x7' })),
    seen: ['holding', /header hash/],
  },
];

/** Each story tells the lie once, which has no effect, and then until /status shows it. */
const aboutBlocks: Story[] = lies.map(({ name, fault, seen }) => ({
  name,
  async tell({ nodes: [node], payUntil, settled, status }) {
    node.inject(fault, 1);
    await payUntil(() => node.struck() >= 1, 'the lie to be told');
    await settled();
    node.inject(fault);
    const isSeen = async () => {
      if (seen === undefined) return node.struck() >= 3;
      const { state, problem } = await status();
      return state === seen[0] && seen[1].test(problem?.message ?? '');
    };
    await payUntil(isSeen, `/status to say ${seen?.join(' ')}`);
    node.mend();
  },
}));

/** The proof rejects every lie about a block, so two nodes that trace can follow without a third one. */
const among = (nodes: 2 | 3, count: string): Story => ({
  name: `the first of ${count} nodes lies in every way`,
  nodes,
  async tell(stage) {
    const { nodes, settled, status } = stage;
    for (const { fault, seen, isBrief } of lies) {
      if (seen === undefined) continue;
      const isTold = async () => {
        const { state, problem, nodes } = await status();
        assert.equal(state, 'ok', problem?.message);
        return isBrief === true ? stage.nodes[0].struck() >= 3 : seen[1].test(JSON.stringify(nodes[0]));
      };
      await lieUntil(stage, fault, isTold, `/status to say of the first node ${seen[1]}`);
      await settled();
      nodes[0].mend();
    }
  },
});

const aboutHeads: Story[] = [
  {
    name: 'every third head is one block old',
    isPolled: true,
    async tell({ nodes: [node], payUntil }) {
      let asked = 0;
      node.inject(
        heads(async (head, ask) => {
          asked += 1;
          return asked % 3 === 0 ? ask(Number(head.number) - 1) : undefined;
        }),
      );
      await payUntil(() => node.struck() >= 3, 'three old heads');
      node.mend();
    },
  },
  {
    name: 'a head that was never mined, at the height of the stored tip',
    isPolled: true,
    async tell({ nodes: [node], settled, status }) {
      await settled();
      node.inject(heads(async (head) => ({ ...head, hash: NOBODYS })));
      await waitUntil(async () => /header hash does not hold/.test((await status()).problem?.message ?? ''));
      node.mend();
    },
  },
  {
    name: 'a head far ahead, while transfers wait for confirmations',
    isPolled: true,
    chain: { confirmations: 3 },
    async tell({ chain, nodes: [node], service, payBlock, status }) {
      node.inject(farAhead);
      await waitUntil(() => node.struck() >= 1);
      const hashes = await payBlock();
      const { number } = await chain.head();
      await waitUntil(async () => (await status()).cursor?.number === number, {
        describe: 'the block to be stored',
      });
      await waitUntil(async () => /does not have block/.test((await status()).problem?.message ?? ''));
      // No block builds upon this one yet, whatever the node says.
      const rows = await Promise.all(hashes.map((hash) => service.notifications({ hash })));
      assert.deepEqual(new Set(rows.flat().map(({ state }) => state)), new Set(['held']));
      node.mend();
    },
  },
  {
    name: 'a head far ahead, at one of three nodes',
    nodes: 3,
    isPolled: true,
    async tell({ chain, nodes: [node], service, payUntil, settled, status }) {
      node.inject(farAhead);
      await payUntil(() => node.struck() >= 2, 'the node to be asked');
      await settled();
      const { state, nodes } = await status();
      assert.equal(state, 'ok');
      // One node's response does not set the head of the chain.
      const head = await service.metric('chainbell_chain_block_number{stage="head"}');
      assert.equal(head, (await chain.head()).number);
      assert.ok((nodes[0]?.head ?? 0) > (await chain.head()).number);
      node.mend();
    },
  },
  {
    name: 'a head 1,000 blocks behind the previous one',
    isPolled: true,
    async tell({ chain, nodes: [node], settled, status }) {
      await chain.mine(1000);
      await settled();
      const { number } = await chain.head();
      node.inject(only(number - 1000));
      await waitUntil(async () => (await status()).nodes[0]?.head === number - 1000 && node.struck() >= 3);
      assert.equal((await status()).cursor?.number, number);
      node.mend();
    },
  },
  // The follower requests the finalized block every ten seconds.
  {
    isSlow: true,
    name: 'a finalized tag far above all stored blocks, and then a reorg',
    isPolled: true,
    chain: { finalityDepth: FINALITY_DEPTH },
    async tell({ chain, nodes: [node], service, startBlock, payUntil, settled, status, oracle }) {
      node.inject(finalAhead);
      await payUntil(() => node.struck() >= 2, 'the tag to be asked for twice');
      await settled();
      // The lie has no effect: the finalized block is at the same depth below the stored tip as without a tag.
      const final = await service.metric('chainbell_chain_block_number{stage="finalized"}');
      const { number } = await chain.head();
      assert.ok(final > startBlock && final <= number - FINALITY_DEPTH, `${final} below ${number}`);
      assert.equal((await status()).state, 'ok');
      await oracle.look();
      await chain.reorg(FINALITY_DEPTH);
      await chain.mine();
      await settled();
      node.mend();
    },
  },
];

const aboutChains: Story[] = [
  {
    name: 'a node of another chain, among three',
    nodes: 3,
    isPolled: true,
    async tell({ chain, nodes: [node], payUntil, settled, status }) {
      await using other = await startChain({ chainId: OTHER_CHAIN });
      await other.mine((await chain.head()).number + 50);
      node.turnTo(other);
      await payUntil(async () => (await status()).nodes[0]?.state !== 'ok', '/status to name the node');
      await settled();
      assert.equal((await status()).state, 'ok');
      node.turnTo(chain);
    },
  },
  {
    name: 'the only node is of another chain for a while',
    isPolled: true,
    async tell({ chain, nodes: [node], payUntil, status }) {
      await using other = await startChain({ chainId: OTHER_CHAIN });
      await other.mine((await chain.head()).number + 50);
      node.turnTo(other);
      const isNamed = async () => /is on chain 4242/.test((await status()).problem?.message ?? '');
      await payUntil(isNamed, '/status to say so');
      node.turnTo(chain);
    },
  },
];

/** No lie: the chain has this type, and neither the transactions nor the receipts of the blocks can be encoded. */
const exotic: NodeFault = block((one) => ({
  ...one,
  transactions: change(listOf(one.transactions), 4, { type: '0x7d' }),
}));

const aboutTypes: Story[] = [
  {
    name: 'a chain that has had a transaction type that cannot be encoded from the start on',
    nodes: 1,
    async prepare({ chain, nodes: [node], payOn }) {
      await payOn(chain);
      node.inject(exotic);
    },
    async tell(stage) {
      const [node] = stage.nodes;
      const isOk = async () => {
        const { state, proof, problem } = await stage.status();
        assert.equal(state, 'ok', problem?.message);
        return proof?.checks.receipts_root === 'enforced';
      };
      await stage.payUntil(() => node.struck() >= 3, 'the type to be seen');
      node.mend();
      await stage.payUntil(isOk, 'the roots to be enforced');
      node.inject(exotic);
      await stage.payUntil(() => node.struck() >= 2, 'the type to be seen again');
      await stage.settled();
      assert.deepEqual((await stage.status()).proof?.unproved_types, ['0x7d']);
      await stage.service.stop();
      await stage.restart();
      await stage.payUntil(() => node.struck() >= 4, 'the type to be seen after a restart');
      await stage.settled();
      assert.equal((await stage.status()).state, 'ok');
      node.mend();
    },
  },
  {
    name: 'a chain that gets a transaction type that cannot be encoded',
    nodes: 1,
    async tell(stage) {
      const [node] = stage.nodes;
      node.inject(exotic);
      const isHeld = async () => {
        const { state, problem } = await stage.status();
        return (
          state === 'holding' &&
          /^block \d+ .* of type 0x7d, .* set chain\.unprovedTypes: \["0x7d"\]/.test(problem?.message ?? '')
        );
      };
      await stage.payUntil(isHeld, '/status to say what to do');
      await stage.service.stop();
      await stage.restart(undefined, { unprovedTypes: ['0x7d'] });
      await stage.payBlock();
      await stage.settled();
      assert.equal((await stage.status()).state, 'ok');
      node.mend();
    },
  },
  {
    name: 'a chain of three nodes that gets a transaction type that cannot be encoded',
    nodes: 3,
    async tell(stage) {
      for (const node of stage.nodes) node.inject(exotic);
      await stage.payUntil(() => stage.nodes.every((node) => node.struck() >= 2), 'the type to be seen');
      const isObserved = async () => {
        const { proof } = await stage.status();
        return proof?.unproved_types.includes('0x7d') === true;
      };
      await stage.payUntil(isObserved, 'a quorum to show the type');
      await stage.settled();
      for (const node of stage.nodes) node.mend();
    },
  },
];

export const lieStories: readonly Story[] = [
  ...aboutBlocks,
  ...aboutTypes,
  among(2, 'two'),
  among(3, 'three'),
  ...aboutHeads,
  ...aboutChains,
];
