/**
 * Nodes that follow a well-formed chain of their own and present it as the canonical one: the preferred node L lies, the other
 * nodes are honest (docs/explanation/quorum.md).
 */
import assert from 'node:assert/strict';
import { quantity } from '../../devnet/wallet.ts';
import { headerHash } from '../../src/chain/proof/roots.ts';
import { sql } from '../../src/store/db/sql.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { waitUntil } from '../kit/wait.ts';
import { down, type NodeFault } from './node-proxy.ts';
import { reorg } from './reorgs.ts';
import { block, both, change, changeLog, dropLog, heads, type Json, listOf, receipts } from './spoil.ts';
import type { Stage } from './stage.ts';
import { lieUntil, type Story } from './story.ts';

/** A branch that is longer than the honest one. */
const BRANCH_BLOCKS = 6;
const ABSURD_HEIGHT = 1_000_000_000;

type Early = Pick<Stage, 'chain' | 'nodes' | 'parts' | 'payOn'>;
type Source = Pick<Stage, 'parts' | 'chain'>;

/** Another chain with the same blocks so far. It diverges from here. */
async function copyOf({ parts, chain }: Source): Promise<Chain> {
  const copy = parts.use(await startChain());
  await copy.rpc('anvil_loadState', [await chain.rpc('anvil_dumpState')]);
  await copy.pauseMining();
  return copy;
}

/** Such a chain with payments to watched addresses that never happened on the canonical one. */
async function falseBranch(stage: Source & Pick<Stage, 'payOn'>, blocks = BRANCH_BLOCKS): Promise<Chain> {
  const copy = await copyOf(stage);
  for (let mined = 0; mined < blocks; mined += 1) await stage.payOn(copy);
  return copy;
}

const disagrees = async ({ status }: Stage) => (await status()).nodes[0]?.state === 'disagrees';
const votesFor = async ({ status }: Stage, { hash }: { hash: string }, node = 0) =>
  (await status()).nodes[node]?.vote?.hash === hash;

/** Both chains grow, with payments on both, until /status names the lying node. */
async function growUntilNamed(stage: Stage, liar: Chain): Promise<void> {
  await stage.payUntil(async () => {
    await stage.payOn(liar);
    return disagrees(stage);
  }, '/status to say that the first node disagrees');
  await stage.settled();
  assert.equal((await stage.status()).state, 'ok');
}

/** A story whose lying node has diverged before the first start of the service. */
function withEarlyLiar(
  story: Omit<Story, 'prepare' | 'tell'>,
  setUp: (early: Early) => Promise<Chain>,
  tell: (stage: Stage, liar: Chain) => Promise<void>,
): Story {
  let liar: Chain | undefined;
  return {
    ...story,
    async prepare(early) {
      liar = await setUp(early);
    },
    async tell(stage) {
      assert.ok(liar !== undefined);
      await tell(stage, liar);
    },
  };
}

const atFirstStart = (name: string, startBlock?: 'latest'): Story =>
  withEarlyLiar(
    {
      name: `a preferred node on its own branch at the first start, from ${name}`,
      nodes: 3,
      ...(startBlock !== undefined && { chain: { startBlock } }),
    },
    async (early) => {
      const liar = await falseBranch(early);
      early.nodes[0].turnTo(liar);
      for (let mined = 0; mined < 2; mined += 1) await early.payOn(early.chain);
      return liar;
    },
    async (stage, liar) => {
      stage.happened.injected += 1;
      await growUntilNamed(stage, liar);
    },
  );

const falseGenesis: Story = {
  name: 'a preferred node with another genesis block at the first start',
  nodes: 3,
  async prepare({ nodes: [node], parts }) {
    const other = parts.use(await startChain({ extraArguments: ['--timestamp', '1700000000'] }));
    await other.mine(50);
    node.turnTo(other);
  },
  async tell({ payUntil, settled, status, happened }) {
    happened.injected += 1;
    await payUntil(
      async () => (await status()).nodes[0]?.state === 'wrong_chain',
      '/status to name the node',
    );
    await settled();
    assert.equal((await status()).state, 'ok');
  },
};

/**
 * The service is down while both chains grow. The false chain has `paid` payments and more blocks than the true one. Before the
 * restart the preferred node starts to `lie`. Then all true blocks and transfers must be stored and notified.
 */
async function throughDowntime(
  stage: Stage,
  { blocks, paid = BRANCH_BLOCKS }: { blocks: number; paid?: number },
  lie: (node: Stage['nodes'][0], liar: Chain, tip: number) => void,
): Promise<Chain> {
  const { chain, nodes, service, payBlock, settled } = stage;
  const { number: tip } = await chain.head();
  await service.stop();
  const liar = await falseBranch(stage, paid);
  await liar.mine(blocks);
  await payBlock();
  await chain.mine(blocks - 2);
  await payBlock();
  lie(nodes[0], liar, tip);
  await stage.restart();
  await settled();
  return liar;
}

const afterDowntime = (blocks: number): Story => ({
  name: `a branch that only the preferred node has, from the stored tip, after ${blocks} blocks of downtime`,
  nodes: 3,
  async tell(stage) {
    const liar = await throughDowntime(stage, { blocks }, (node, other) => node.turnTo(other));
    await growUntilNamed(stage, liar);
  },
});

/** Heights above the tip, within the missing range, where the lying node has different blocks. */
const [MIDDLE_FROM, MIDDLE_TO, MISSING] = [20, 40, 60];

const midBackfill: Story = {
  name: 'a preferred node with a different range in the middle of a backfill',
  nodes: 3,
  async tell(stage) {
    await throughDowntime(stage, { blocks: MISSING, paid: MISSING }, (node, liar, tip) => {
      node.inject(byNumberOf(liar, (number) => number >= tip + MIDDLE_FROM && number <= tip + MIDDLE_TO));
    });
    const [node] = stage.nodes;
    assert.ok(node.struck() > 0);
    node.mend();
  },
};

/** Requests for these numbers get blocks of another chain, and so do later requests for the hashes of those blocks. */
function byNumberOf(other: Chain, isAffected: (number: number) => boolean): NodeFault {
  const told = new Set<unknown>();
  return {
    async answer({ method, params }) {
      const [reference] = params;
      const isNumber = typeof reference === 'string' && /^0x[0-9a-f]{1,16}$/.test(reference);
      if (isNumber ? !isAffected(Number(reference)) : !told.has(reference)) return undefined;
      const result = await other.alone(() => other.rpc(method, params));
      if (method === 'eth_getBlockByNumber') told.add((result as Json).hash);
      return { result };
    },
  };
}

const child: Story = {
  name: 'a preferred node with a false child of the true head that contains payments',
  nodes: 3,
  async tell(stage) {
    const { nodes, payBlock, settled } = stage;
    for (let time = 0; time < 3; time += 1) {
      const liar = await falseBranch(stage, 1);
      nodes[0].turnTo(liar);
      const head = await liar.head();
      await waitUntil(() => votesFor(stage, head), { describe: 'the vote for the child' });
      await payBlock();
      await settled();
    }
    nodes[0].turnTo(stage.chain);
  },
};

/** A head with a valid header hash to which no chain leads. */
const absurdHead = heads(async (head) => {
  const raised = { ...head, number: quantity(ABSURD_HEIGHT) };
  return { ...raised, hash: headerHash(raised) };
});

const absurd = (nodes?: 3): Story => ({
  name: `a head at block ${ABSURD_HEIGHT}, ${nodes === 3 ? 'at one of three nodes' : 'at the only node'}, and then the true one`,
  ...(nodes !== undefined && { nodes }),
  isPolled: true,
  async tell({ nodes: [node], payBlock, settled, status }) {
    node.inject(absurdHead);
    await waitUntil(async () => (await status()).nodes[0]?.head === ABSURD_HEIGHT);
    if (nodes === undefined) {
      await waitUntil(async () =>
        /no node has the block below it/.test((await status()).problem?.message ?? ''),
      );
      assert.doesNotMatch((await status()).problem?.message ?? '', /pruned|archive/);
    } else {
      await payBlock();
      await settled();
      assert.equal((await status()).state, 'ok');
    }
    node.mend();
    // No further block is needed: /status clears the problem when the lie ends.
    await waitUntil(async () => (await status()).state === 'ok', { describe: '/status to be ok again' });
  },
});

const sibling: Story = {
  name: 'a preferred node with a sibling of the head',
  nodes: 3,
  isPolled: true,
  async tell(stage) {
    const { nodes, payBlock, settled } = stage;
    const liar = await falseBranch(stage, 1);
    await payBlock();
    await settled();
    nodes[0].turnTo(liar);
    const head = await liar.head();
    await waitUntil(() => votesFor(stage, head), { describe: 'the vote for the sibling' });
    await settled();
    nodes[0].turnTo(stage.chain);
  },
};

const FLIPS = 8;

const flipping: Story = {
  name: 'a node that votes in turn for each of two real siblings',
  nodes: 3,
  isPolled: true,
  async tell(stage) {
    const { chain, nodes, service, settled } = stage;
    const other = await copyOf(stage);
    await other.rpc('evm_increaseTime', [7]);
    await other.mine();
    await chain.mine();
    await settled();
    const reorgs = () => service.metric('chainbell_chain_reorgs_total');
    const before = await reorgs();
    nodes[2]?.turnTo(other);
    for (let flip = 0; flip < FLIPS; flip += 1) {
      const turn = flip % 2 === 0 ? other : chain;
      nodes[0].turnTo(turn);
      const head = await turn.head();
      await waitUntil(() => votesFor(stage, head), { describe: 'the vote for the other sibling' });
    }
    assert.ok((await reorgs()) - before <= 1, 'one for the sibling');
    // The canonical branch is the one that a node leaves last.
    for (const node of nodes) node.turnTo(other);
    stage.chain = other;
    await stage.payBlock();
  },
};

const wrongBody: Story = {
  name: 'a preferred node that gives true hashes with false bodies and receipts',
  nodes: 3,
  async tell(stage) {
    const { settled, status } = stage;
    const [node] = stage.nodes;
    const spoilt = [
      block((one) => ({ ...one, transactions: change(listOf(one.transactions), 0, { value: '0x7' }) })),
      receipts((all) => changeLog(all, { data: `0x${'7'.padStart(64, '0')}` })),
      receipts(dropLog),
    ];
    for (const fault of spoilt) {
      await lieUntil(stage, fault, async () => node.struck() >= 1, 'the lie to be told');
      await settled();
      assert.equal((await status()).state, 'ok');
    }
    node.mend();
  },
};

/** The node returns headers, but withholds blocks with their transactions. */
const withheld: NodeFault = {
  answer: async ({ method, params }) =>
    method.startsWith('eth_getBlockBy') && params[1] === true ? { result: null } : undefined,
};

const withheldBody: Story = {
  name: 'a preferred node that announces heads and withholds their bodies, also during a reorg',
  nodes: 3,
  async tell(stage) {
    const { chain, payBlock, settled, oracle } = stage;
    const [node] = stage.nodes;
    await lieUntil(stage, withheld, async () => node.struck() >= 2, 'bodies to be withheld');
    const paid = await payBlock();
    await settled();
    await oracle.look();
    await reorg(chain, 1, paid);
    await chain.mine();
    await settled();
    node.mend();
  },
};

const withheldByAll: Story = {
  name: 'a reorg whose blocks no node gives for a while: no block is undone before they arrive',
  nodes: 3,
  async tell({ chain, nodes, service, payBlock, settled, status, oracle }) {
    const paid = await payBlock();
    await settled();
    await oracle.look();
    const removed = async () => (await service.database.query(sql`select from removed_block limit 1`)).length;
    for (const node of nodes) node.inject(withheld);
    await reorg(chain, 1, paid);
    await chain.mine();
    await waitUntil(async () => /does not have block/.test((await status()).problem?.message ?? ''));
    assert.equal(await removed(), 0);
    for (const node of nodes) node.mend();
    await settled();
  },
};

const oldBranch: Story = {
  name: 'a preferred node that stays on the old branch during a reorg, and builds on it',
  nodes: 3,
  async tell(stage) {
    const { chain, nodes, payBlock, settled, oracle } = stage;
    const paid = await payBlock();
    await chain.mine(2);
    await settled();
    await oracle.look();
    const old = await copyOf(stage);
    nodes[0].turnTo(old);
    await stage.payOn(old);
    await reorg(chain, 3, paid);
    await settled();
    await growUntilNamed(stage, old);
  },
};

const earlyFinality: Story = {
  name: 'a node that calls its own head final, and then a reorg',
  nodes: 3,
  async tell({ chain, nodes: [node], service, payBlock, restart, settled, status, oracle }) {
    node.inject({
      answer: async (call, ask) =>
        call.params[0] === 'finalized' ? ask({ ...call, params: ['latest', call.params[1]] }) : undefined,
    });
    // The follower requests the finalized block with the first commit after a start.
    await service.stop();
    const paid = await payBlock();
    await chain.mine();
    await restart();
    await settled();
    await waitUntil(() => node.struck() >= 2, { describe: 'the lie to be told' });
    await oracle.look();
    await reorg(chain, 2, paid);
    await chain.mine();
    await settled();
    assert.equal((await status()).state, 'ok');
    node.mend();
  },
};

const oneDown: Story = {
  name: 'one honest node is down, and the other one contradicts a liar',
  nodes: 3,
  isPolled: true,
  async tell(stage) {
    const { chain, nodes, payBlock, settled, status } = stage;
    const liar = await falseBranch(stage);
    nodes[0].turnTo(liar);
    const [, honest] = nodes;
    assert.ok(honest !== undefined);
    honest.inject(down);
    await waitUntil(() => honest.struck() >= 1);
    for (let paid = 0; paid < BRANCH_BLOCKS; paid += 1) await payBlock();
    const hashes = [await liar.head(), await chain.head()].map(({ hash }) => hash);
    await waitUntil(async () => {
      const { state, problem } = await status();
      return state === 'holding' && hashes.every((hash) => problem?.message.includes(hash) === true);
    });
    honest.mend();
    await settled();
    nodes[0].turnTo(chain);
  },
};

/** One poll, one round of votes and the blocks. Far below the longest rest of a failing node, which is 30 s. */
const RESUME_MS_MAX = 6_000;

const mostDown: Story = {
  name: 'both honest nodes are down for a while, and the liar continues',
  nodes: 3,
  isPolled: true,
  async tell(stage) {
    const { chain, nodes, payBlock, settled, status } = stage;
    const liar = await falseBranch(stage);
    nodes[0].turnTo(liar);
    for (const node of nodes.slice(1)) node.inject(down);
    await waitUntil(async () => (await status()).state === 'holding', { describe: '/status to say holding' });
    assert.match((await status()).problem?.message ?? '', /no 2 of 3 nodes name the same block/);
    await payBlock();
    await stage.payOn(liar);
    for (const node of nodes.slice(1)) node.mend();
    const startedAt = performance.now();
    await settled();
    const tookMs = performance.now() - startedAt;
    assert.ok(tookMs < RESUME_MS_MAX, `it took ${Math.round(tookMs)} ms`);
    nodes[0].turnTo(chain);
  },
};

const falseByNumber: Story = {
  name: 'a preferred node whose votes are true and whose answers by number are false',
  nodes: 3,
  async tell(stage) {
    await throughDowntime(stage, { blocks: MIDDLE_FROM, paid: MIDDLE_FROM }, (node, liar, tip) => {
      node.inject(byNumberOf(liar, (number) => number > tip && number <= tip + MIDDLE_FROM));
    });
    await waitUntil(() => disagrees(stage), { describe: '/status to say that it disagrees' });
    stage.nodes[0].mend();
  },
};

const belowFirst = withEarlyLiar(
  { name: 'a longer branch of one node from below the first stored block', nodes: 3 },
  async (early) => {
    const liar = await falseBranch(early, 1);
    await early.payOn(early.chain);
    return liar;
  },
  async (stage, liar) => {
    while ((await liar.head()).number < (await stage.chain.head()).number + 2) await stage.payOn(liar);
    stage.nodes[0].turnTo(liar);
    await growUntilNamed(stage, liar);
  },
);

const twoOfFive: Story = {
  name: 'two of five nodes on the same false branch',
  nodes: 5,
  async tell(stage) {
    const liar = await falseBranch(stage);
    for (const node of stage.nodes.slice(0, 2)) node.turnTo(liar);
    await growUntilNamed(stage, liar);
  },
};

const breakers = both(
  receipts((all) => changeLog(all, { data: `0x${'7'.padStart(64, '0')}` })),
  block((one: Json) => ({ ...one, transactionsRoot: `0x${'7'.repeat(64)}` })),
);

const brokenCheck: Story = {
  name: 'two of five nodes break a check in the samples that decide about it',
  nodes: 5,
  async prepare({ nodes, chain, payOn }) {
    for (let paid = 0; paid < 4; paid += 1) await payOn(chain);
    for (const node of nodes.slice(0, 2)) node.inject(breakers);
  },
  async tell({ nodes, payUntil, settled, status, happened }) {
    // Most faults struck before the service had started.
    await payUntil(() => nodes[0].struck() >= 1, 'the lie to be told');
    happened.injected += 1;
    await settled();
    const { state, proof } = await status();
    assert.equal(state, 'ok');
    assert.equal(proof?.checks.receipts_root, 'enforced');
    assert.equal(proof?.checks.header_hash, 'enforced');
    for (const node of nodes) node.mend();
  },
};

const comesBackLower: Story = {
  name: 'the only node comes back with a lower, different chain',
  isPolled: true,
  async tell(stage) {
    const { chain, nodes, payBlock, settled, status } = stage;
    const other = await copyOf(stage);
    await stage.payOn(other);
    for (let paid = 0; paid < 3; paid += 1) await payBlock();
    await settled();
    nodes[0].turnTo(other);
    await waitUntil(async () => (await status()).state === 'holding', { describe: '/status to say holding' });
    assert.ok((await status()).problem?.message.includes((await other.head()).hash));
    nodes[0].turnTo(chain);
    await waitUntil(async () => (await status()).state === 'ok', { describe: '/status to be ok again' });
  },
};

export const quorumStories: readonly Story[] = [
  atFirstStart('latest', 'latest'),
  atFirstStart('a block number'),
  falseGenesis,
  afterDowntime(5),
  { ...afterDowntime(1_000), isSlow: true },
  midBackfill,
  child,
  absurd(3),
  absurd(),
  sibling,
  flipping,
  wrongBody,
  withheldBody,
  withheldByAll,
  oldBranch,
  earlyFinality,
  oneDown,
  mostDown,
  falseByNumber,
  belowFirst,
  twoOfFive,
  brokenCheck,
  comesBackLower,
];
