/**
 * Three nodes and their votes: the blocks that are accepted, the requests that they cost, and the treatment of a lying node.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { VOTE_MS_MAX } from '../../src/chain/nodes/head-votes.ts';
import { headerHash } from '../../src/chain/proof/roots.ts';
import type { Verifier } from '../../src/chain/proof/verifier.ts';
import type { Hash } from '../../src/core/hex.ts';
import { silentLog } from '../../src/core/log.ts';
import { createQuorum } from '../../src/domain/quorum.ts';
import { GAP_MS_MAX, SILENCE_MS } from '../../src/domain/silence.ts';
import { createReadAhead } from '../../src/ingest/read-ahead.ts';
import { extractNothing } from '../../src/ingest/read-block.ts';
import { createTestClock } from '../kit/clock.ts';
import { blocks, complete, nodeAt, withNodes } from '../kit/nodes.ts';
import {
  chainMethods,
  type Method,
  makeHash,
  makeNodeBlock,
  type ScriptedNode,
} from '../kit/scripted-node.ts';
import { waitUntil } from '../kit/wait.ts';

const { signal } = new AbortController();
const without = { internalTransfers: 'off' } as const;
const headHash = makeHash(0, 9, 0);

/** Treats every block as proved, as on a chain whose hashes cover the blocks. */
const proving: Verifier = {
  calibrate: async () => {},
  verify: async () => ({ proved: true, senders: undefined }),
  recover: async () => [],
  status: () => ({ mode: 'auto', checks: CALIBRATING, unprovedTypes: [] }),
  enforcedChecks: () => [],
  observedTypes: () => [],
  enforce() {},
  close: async () => {},
};
const CALIBRATING = {
  headerHash: 'calibrating',
  transactionsRoot: 'calibrating',
  transactionHashes: 'calibrating',
  withdrawalsRoot: 'calibrating',
  receiptsRoot: 'calibrating',
} as const;

/** Requests for headers by number, which only votes need. */
const headersAsked = (node: ScriptedNode) =>
  node.calls.filter(
    ({ method, params: [reference, isFull] }) =>
      method === 'eth_getBlockByNumber' && isFull === false && /^0x[1-9a-f]/.test(String(reference)),
  );

/** A node whose chain leaves the honest one above this block. */
const liarFrom = (leavesAt: number, length = 10) => {
  const blocksOfLiar = Array.from({ length }, (_, number) =>
    makeNodeBlock(number, { branch: number > leavesAt ? 1 : 0 }),
  );
  const first = blocksOfLiar[leavesAt + 1];
  if (first !== undefined) first.block.parentHash = makeHash(0, leavesAt, 0);
  return chainMethods(1, blocksOfLiar);
};

test('while three nodes agree, the head and the blocks next to it cost no request beyond the polls', () =>
  withNodes(
    [complete(), complete(), complete()],
    async ({ scripted, nodes }) => {
      await nodes.head(signal);
      await nodes.anchored([headHash], signal);
      const before = scripted.map((node) => node.calls.length);
      await nodes.head(signal);
      await nodes.anchored([8], signal);
      await nodes.anchored([headHash], signal);
      const calls = scripted.map((node, index) => node.calls.length - (before[index] ?? 0));
      assert.deepEqual(calls, [1 + 2 * 2, 1, 1], 'a poll of each, and block and receipts of one');
      assert.deepEqual(
        scripted.map((node) => headersAsked(node).length),
        [0, 0, 0],
      );
    },
    { ...without, verifier: proving },
  ));

test('in a backfill, one header from one other node anchors each request: one call in 60 at 30 blocks a request', async () => {
  const [HISTORY, SMALL_MAX] = [1_000, 20];
  const history = Array.from({ length: HISTORY + 1 }, (_, number) =>
    makeNodeBlock(number, { transactions: 0 }),
  );
  const methods = () => chainMethods(1, history);
  await withNodes(
    [methods(), methods(), methods()],
    async ({ scripted, nodes }) => {
      const head = await nodes.head(signal);
      const requests: number[] = [];
      const readAhead = createReadAhead({
        nodes: {
          bundles: (references, abort, options) => {
            requests.push(references.length);
            return nodes.anchored(references, abort, options);
          },
        },
        ...{ clock: createTestClock(), extract: extractNothing },
      });
      let next = 1;
      while (next <= HISTORY) next += (await readAhead.next(next, head, signal)).length;
      const headers = scripted.reduce((sum, node) => sum + headersAsked(node).length, 0);
      assert.equal(Math.max(...requests), 30);
      assert.ok(headers <= requests.length, `${headers} headers for ${requests.length} requests`);
      // The first requests are small, until one has shown its cost.
      assert.ok(requests.length <= SMALL_MAX + HISTORY / 30, `${requests.length} requests`);
    },
    { ...without, verifier: proving },
  );
});

test('on a chain that honors header hashes, a head with a false hash has no vote', () => {
  const strict: Verifier = {
    ...proving,
    status: () => ({
      ...{ mode: 'strict', checks: { ...CALIBRATING, headerHash: 'enforced' } },
      unprovedTypes: [],
    }),
  };
  const { block: real } = makeNodeBlock(9);
  const zero = `0x${'0'.repeat(64)}`;
  const header = {
    ...{ number: '0x9', parentHash: real.parentHash, timestamp: '0x9', sha3Uncles: zero, stateRoot: zero },
    ...{ miner: `0x${'0'.repeat(40)}`, transactionsRoot: zero, receiptsRoot: zero, mixHash: zero },
    ...{ logsBloom: `0x${'0'.repeat(512)}`, difficulty: '0x0', gasLimit: '0x0', gasUsed: '0x0' },
    ...{ extraData: '0x', nonce: '0x0000000000000000', transactions: [] },
  };
  const proved = [...blocks.slice(0, 9), { block: { ...header, hash: headerHash(header) }, receipts: [] }];
  const made = [...blocks.slice(0, 9), { block: { ...header, hash: headHash }, receipts: [] }];
  return withNodes(
    [chainMethods(1, made), chainMethods(1, proved), chainMethods(1, proved)],
    async ({ nodes }) => {
      assert.equal((await nodes.head(signal)).hash, headerHash(header));
      assert.match(nodes.status()[0]?.error ?? '', /header hash does not hold/);
      assert.deepEqual(
        nodes.status().map(({ vote }) => vote?.number),
        [undefined, 9, 9],
      );
    },
    { ...without, verifier: strict },
  );
});

test('if no quorum names the blocks of the preferred node, the next node supplies them', () =>
  withNodes(
    [liarFrom(3), complete(), complete()],
    async ({ nodes }) => {
      await nodes.head(signal);
      const bundles = await nodes.anchored([5, 6], signal);
      assert.deepEqual(
        bundles.map(({ header }) => header.hash),
        [makeHash(0, 5, 0), makeHash(0, 6, 0)],
      );
      assert.match(nodes.status()[0]?.error ?? '', /which no 2 of 3 nodes name/);
    },
    without,
  ));

test('blocks without a quorum are held back, and the Fault names the block of each node', () =>
  withNodes(
    [liarFrom(3), complete(), { ...complete(), eth_getBlockByNumber: () => null }],
    async ({ nodes }) => {
      await assert.rejects(nodes.anchored([5, 6], signal), {
        ...{ name: 'Fault', code: 'inconsistent' },
        message: new RegExp(`${makeHash(1, 6, 0)}.*no answer`),
      });
    },
    without,
  ));

test('blocks that are not linked within a request are read from another node', () => {
  const mixed = [...blocks.slice(0, 5), makeNodeBlock(5, { branch: 1 }), ...blocks.slice(6)];
  return withNodes(
    [chainMethods(1, mixed), complete(), complete()],
    async ({ nodes }) => {
      const bundles = await nodes.anchored([4, 5, headHash], signal).catch((error: unknown) => error);
      assert.match(String(bundles), /do not follow one another/, 'a gap is not followed either');
      const [, five] = await nodes.anchored([4, 5, 6], signal);
      assert.equal(five?.header.hash, makeHash(0, 5, 0));
      assert.match(nodes.status()[0]?.error ?? '', /do not follow one another/);
    },
    without,
  );
});

test('a quorum of the nodes must give the same contents where no proof covers them', () => {
  const spoilt: Method = ([reference]) => {
    const found =
      blocks.find(({ block }) => block.hash === reference || block.number === reference) ?? blocks.at(-1);
    if (found === undefined) return null;
    const transactions = found.block.transactions as object[];
    return { ...found.block, transactions: transactions.map((one) => ({ ...one, value: '0x77' })) };
  };
  return withNodes(
    [{ ...complete(), eth_getBlockByNumber: spoilt, eth_getBlockByHash: spoilt }, complete(), complete()],
    async ({ nodes }) => {
      await nodes.head(signal);
      const [bundle] = await nodes.anchored([headHash], signal);
      assert.deepEqual(
        bundle?.transactions.map(({ value }) => value),
        [16n, 16n],
      );
      assert.match(nodes.status()[0]?.error ?? '', /contents that no 2 of 3 nodes have/);
    },
    without,
  );
});

test('a quorum decides the genesis block, and without a quorum the start waits', async () => {
  const genesisOf = (branch: number) => {
    const { eth_getBlockByNumber: _, ...methods } = complete();
    const chain = [makeNodeBlock(0, { branch }), ...blocks.slice(1)];
    return { ...methods, eth_getBlockByNumber: chainMethods(1, chain).eth_getBlockByNumber ?? (() => null) };
  };
  await withNodes([genesisOf(1), genesisOf(0), genesisOf(0)], async ({ nodes }) => {
    const identity = await nodes.identify(signal);
    assert.equal(identity.genesisHash, makeHash(0, 0, 0));
    nodes.pin(identity);
    await nodes.head(signal);
    assert.equal(nodes.status()[0]?.state, 'wrong_chain');
  });
  await withNodes([genesisOf(1), genesisOf(0), genesisOf(2)], async ({ nodes }) => {
    await assert.rejects(nodes.identify(signal), {
      ...{ name: 'Fault', code: 'inconsistent' },
      message: new RegExp(`no 2 of 3 nodes name the same genesis block: .*${makeHash(1, 0, 0)}`),
    });
  });
});

test('one node alone can neither make a block final nor deny finality', () => {
  const finalAt = (number: number) => {
    const { eth_getBlockByNumber } = complete();
    const byTag: Method = ([reference, isFull]) =>
      eth_getBlockByNumber?.([reference === 'finalized' ? blocks[number]?.block.number : reference, isFull]);
    return { ...complete(), eth_getBlockByNumber: byTag };
  };
  return withNodes([finalAt(9), finalAt(4), finalAt(4)], async ({ nodes, scripted }) => {
    assert.deepEqual(await nodes.finalized(signal), { number: 4, hash: makeHash(0, 4, 0) });
    nodeAt(scripted, 0).methods.eth_getBlockByNumber = finalAt(0).eth_getBlockByNumber;
    nodeAt(scripted, 1).methods.eth_getBlockByNumber = finalAt(5).eth_getBlockByNumber;
    assert.deepEqual(await nodes.finalized(signal), { number: 4, hash: undefined }, 'two have come that far');
  });
});

test('a node on another branch is reported with its first different block, is asked last, and can recover', () => {
  const LENGTH = 1_000;
  const LEAVES = 700;
  const honest = Array.from({ length: LENGTH }, (_, number) => makeNodeBlock(number, { transactions: 0 }));
  const hashAt = async (number: number): Promise<Hash> => makeHash(0, number, 0);
  const stored = async () => ({ from: 1, to: LENGTH - 1, hashAt });
  return withNodes(
    [liarFrom(LEAVES, LENGTH), chainMethods(1, honest), chainMethods(1, honest)],
    async ({ scripted, nodes, clock }) => {
      await nodes.head(signal);
      const liar = nodeAt(scripted, 0);
      const before = headersAsked(liar).length;
      await nodes.compareWith(stored, signal);
      assert.deepEqual(nodes.status()[0]?.disagreement, {
        ...{ number: LEAVES + 1, hash: makeHash(1, LEAVES + 1, 0), storedHash: makeHash(0, LEAVES + 1, 0) },
        since: clock.now(),
      });
      assert.equal(nodes.status()[0]?.state, 'disagrees');
      assert.ok(headersAsked(liar).length - before <= 21, `${headersAsked(liar).length - before} headers`);
      assert.deepEqual(
        scripted.slice(1).map((node) => headersAsked(node).length),
        [0, 0],
        'nodes that agree are not compared',
      );
      const asked = liar.calls.length;
      await nodes.anchored([5], signal);
      assert.equal(liar.calls.length, asked, 'it is only polled');
      liar.methods = chainMethods(1, honest);
      Object.assign(liar.methods, chainMethods(1, honest));
      await nodes.head(signal);
      await nodes.compareWith(stored, signal);
      assert.equal(nodes.status()[0]?.state, 'ok');
    },
    without,
  );
});

test('a node that never says which blocks it has delays nothing, and is compared again after a pause', () => {
  const warnings: unknown[] = [];
  const log = { ...silentLog(), warn: (...warned: unknown[]) => void warnings.push(warned) };
  return withNodes(
    [liarFrom(3), complete(), complete()],
    async ({ nodes, scripted, clock }) => {
      const liar = nodeAt(scripted, 0);
      const hashAt = async (number: number): Promise<Hash> => makeHash(0, number, 0);
      const stored = async () => ({ from: 0, to: 9, hashAt });
      await nodes.head(signal);
      const released = Promise.withResolvers<void>();
      liar.setHttp(async () => {
        await released.promise;
        return { status: 503 };
      });
      const first = nodes.compareWith(stored, signal);
      await waitUntil(() => clock.waits().includes(250));
      clock.advance(250);
      await first;
      const asked = liar.exchangeCount();
      await nodes.compareWith(stored, signal);
      assert.equal(liar.exchangeCount(), asked, 'one comparison at a time');
      await waitUntil(() => warnings.length > 0);
      liar.setHttp(undefined);
      released.resolve();
      clock.advance(31_000);
      await waitUntil(async () => {
        await nodes.head(signal);
        await nodes.compareWith(stored, signal);
        return nodes.status()[0]?.state === 'disagrees';
      });
    },
    { ...without, log },
  );
});

test('a difference close to the tip counts as an ordinary reorg', () =>
  withNodes(
    [liarFrom(6), complete(), complete()],
    async ({ nodes }) => {
      await nodes.head(signal);
      const hashAt = async (number: number): Promise<Hash> => makeHash(0, number, 0);
      await nodes.compareWith(async () => ({ from: 0, to: 9, hashAt }), signal);
      assert.equal(nodes.status()[0]?.disagreement, undefined);
    },
    without,
  ));

test('with two nodes, one is followed alone after the other has been silent for 30 s, unless chain.quorum is 2', () => {
  const clock = createTestClock();
  const [auto, strict, three] = [
    createQuorum(['a', 'b'], 'auto', clock),
    createQuorum(['a', 'b'], 2, clock),
    createQuorum(['a', 'b', 'c'], 'auto', clock),
  ];
  const miss = (voter: string) => {
    for (const quorum of [auto, strict, three]) quorum.noteMiss(voter);
  };
  const since = clock.now();
  for (const waitMs of [0, GAP_MS_MAX, SILENCE_MS - GAP_MS_MAX - 1]) {
    clock.advance(waitMs);
    miss('b');
    assert.equal(auto.needed(), 2);
  }
  clock.advance(1);
  miss('b');
  assert.deepEqual([auto.needed(), strict.needed(), three.needed()], [1, 2, 2]);
  assert.deepEqual(auto.silent(), { voter: 'b', since });
  auto.noteAnswer('b');
  assert.deepEqual([auto.needed(), auto.silent()], [2, undefined]);
  for (const waitMs of [0, GAP_MS_MAX, GAP_MS_MAX]) {
    clock.advance(waitMs);
    for (const voter of ['a', 'b']) miss(voter);
  }
  assert.equal(auto.needed(), 2, 'if both are silent, neither can be followed');
});

test('a process that is paused asks no node, so a pause between misses is no silence', () => {
  const clock = createTestClock();
  const quorum = createQuorum(['a', 'b'], 'auto', clock);
  for (let round = 1; round <= 5; round += 1) quorum.noteMiss('b');
  clock.advance(3_600_000);
  quorum.noteMiss('b');
  assert.equal(quorum.needed(), 2);
});

test('an outage of all nodes counts for none of them, whichever missed a poll before it', () => {
  const clock = createTestClock();
  const quorum = createQuorum(['a', 'b'], 'auto', clock);
  quorum.noteMiss('b');
  clock.advance(GAP_MS_MAX);
  quorum.noteMiss('b');
  clock.advance(3_600_000);
  quorum.noteOutage();
  clock.advance(1_000);
  quorum.noteMiss('b');
  assert.deepEqual([quorum.needed(), quorum.silent()], [2, undefined]);
  clock.advance(SILENCE_MS - GAP_MS_MAX - 1_000);
  quorum.noteMiss('b');
  assert.equal(quorum.needed(), 1);
});

test('with two nodes, a silent one stops the follower for 30 s, and then the other one is followed alone', () =>
  withNodes(
    [complete(), complete()],
    async ({ scripted, nodes, clock }) => {
      await nodes.head(signal);
      nodeAt(scripted, 1).setHttp('reset');
      for (let misses = 1; misses < 3; misses += 1) {
        await assert.rejects(nodes.head(signal), { code: 'inconsistent', message: /no 2 of 2 nodes/ });
        clock.advance(GAP_MS_MAX);
      }
      assert.equal((await nodes.head(signal)).number, 9);
      assert.equal(nodes.quorum().silent?.name, new URL(nodeAt(scripted, 1).url).origin);
      assert.equal(nodes.quorum().stalled, undefined);
      nodeAt(scripted, 0).setHttp('hang');
      const [asked, since] = [nodeAt(scripted, 0).exchangeCount(), clock.now()];
      const stopping = new AbortController();
      const head = nodes.head(stopping.signal);
      await waitUntil(() => nodeAt(scripted, 0).exchangeCount() > asked);
      clock.advance(VOTE_MS_MAX + 1);
      assert.deepEqual(nodes.quorum().stalled?.since, since, 'nothing is followed, not even one alone');
      stopping.abort();
      await assert.rejects(head);
      nodeAt(scripted, 0).setHttp(undefined);
      nodeAt(scripted, 1).setHttp(undefined);
      clock.advance(30_000);
      await nodes.head(signal);
      assert.equal(nodes.quorum().silent, undefined);
    },
    without,
  ));

test('after an outage of the network between Chainbell and both nodes, the first one to answer is not followed alone', () =>
  withNodes(
    [complete(), complete()],
    async ({ scripted, nodes, clock }) => {
      await nodes.head(signal);
      for (const node of scripted) node.setHttp('reset');
      for (let round = 1; round <= 4; round += 1) {
        await assert.rejects(nodes.head(signal), { code: 'unavailable' });
        clock.advance(GAP_MS_MAX);
      }
      nodeAt(scripted, 0).setHttp(undefined);
      await assert.rejects(nodes.head(signal), { code: 'inconsistent', message: /no 2 of 2 nodes/ });
      nodeAt(scripted, 1).setHttp(undefined);
      assert.equal((await nodes.head(signal)).number, 9);
    },
    without,
  ));
