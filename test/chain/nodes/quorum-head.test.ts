import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blocks, complete, countOf, nodeAt, withNodes } from '../../kit/nodes.ts';
import {
  chainMethods,
  type Methods,
  makeHash,
  makeNodeBlock,
  type NodeBlock,
} from '../../kit/scripted-node.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();
const without = { internalTransfers: 'off' } as const;
const upTo = (number: number, branch = 0): NodeBlock[] => [
  ...blocks.slice(0, number),
  makeNodeBlock(number, { branch }),
];

const parent = makeNodeBlock(8);
const sibling = makeNodeBlock(9, { branch: 1 });
sibling.block.parentHash = parent.block.hash;
/** As `upTo(9)`, except for its last block. */
const siblingBranch = [...blocks.slice(0, 8), parent, sibling];

/** A node whose chain can be replaced. */
function changing(initial: NodeBlock[]): { methods: Methods; set(chain: NodeBlock[]): void } {
  const chain = [...initial];
  return { methods: chainMethods(1, chain), set: (next) => void chain.splice(0, chain.length, ...next) };
}

test('a node that hangs does not delay a head on which two others agree, and is not asked repeatedly', () =>
  withNodes([complete(), complete(), complete()], async ({ scripted, nodes, clock }) => {
    const hanging = nodeAt(scripted, 2);
    hanging.setHttp('hang');
    assert.equal((await nodes.head(signal)).number, 9);
    // Without a new head, the others wait for it once, for as long as a probe of a node may take.
    const waiting = nodes.head(signal);
    await waitUntil(() => clock.waits().includes(1_000));
    clock.advance(1_000);
    assert.equal((await waiting).number, 9);
    const asked = hanging.exchangeCount();
    for (let time = 0; time < 5; time += 1) assert.equal((await nodes.head(signal)).number, 9);
    assert.equal(hanging.exchangeCount(), asked);
    assert.deepEqual(
      nodes.status().map(({ state }) => state),
      ['ok', 'ok', 'slow'],
    );
  }));

test('one of two nodes that begins to hang delays the head once, for a tenth of a second', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, clock }) => {
    await nodes.head(signal);
    nodeAt(scripted, 1).setHttp('hang');
    const waiting = nodes.head(signal);
    await waitUntil(() => clock.waits().includes(100));
    clock.advance(100);
    assert.equal((await waiting).number, 9);
    assert.equal((await nodes.head(signal)).number, 9);
    assert.deepEqual(clock.waits(), []);
  }));

test('a chain whose block lasts a minute keeps its quorum, because each poll renews the votes', () =>
  withNodes(
    [complete(), complete(), complete()],
    async ({ nodes, clock }) => {
      for (let seconds = 0; seconds < 60; seconds += 2) {
        assert.equal((await nodes.head(signal)).number, 9);
        const votes = nodes.status().filter(({ vote }) => vote?.hash === makeHash(0, 9, 0));
        assert.ok(votes.length >= 2, `${votes.length} votes after ${seconds} s`);
        clock.advance(2_000);
      }
    },
    without,
  ));

test('the head waits for a node that is usually slow', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, clock }) => {
    await nodes.head(signal);
    const slow = nodeAt(scripted, 1);
    const { eth_getBlockByNumber } = slow.methods;
    slow.methods.eth_getBlockByNumber = (params) => {
      clock.advance(90);
      return eth_getBlockByNumber?.(params);
    };
    await nodes.head(signal);
    slow.setHttp('hang');
    const waiting = nodes.head(signal);
    await waitUntil(() => clock.waits().includes(180));
    clock.advance(180);
    await waiting;
  }));

test('two nodes that stay behind do not hide a head that the slower two have', () => {
  const old = chainMethods(1, upTo(8));
  return withNodes(
    [old, old, complete(), complete()],
    async ({ nodes }) => {
      await nodes.head(signal);
      assert.equal((await nodes.head(signal)).number, 9);
    },
    without,
  );
});

test('a lower head is served as it is, and rises when the chain has grown', () => {
  const chain = changing(upTo(9));
  return withNodes(
    [chain.methods],
    async ({ nodes }) => {
      assert.equal((await nodes.head(signal)).number, 9);
      chain.set(upTo(7));
      assert.equal(
        (await nodes.head(signal)).hash,
        makeHash(0, 7, 0),
        'the follower compares it with its tip',
      );
      chain.set([...upTo(8, 1), makeNodeBlock(9, { branch: 1 }), makeNodeBlock(10, { branch: 1 })]);
      assert.equal((await nodes.head(signal)).hash, makeHash(1, 10, 0));
    },
    without,
  );
});

test('an absurd head of the only node is forgotten with its next answer', () => {
  const chain = changing([...upTo(9), makeNodeBlock(1_000_000_000)]);
  return withNodes(
    [chain.methods],
    async ({ nodes }) => {
      assert.equal((await nodes.head(signal)).number, 1_000_000_000);
      chain.set(upTo(9));
      assert.equal((await nodes.head(signal)).number, 9);
    },
    without,
  );
});

test('after a reorg, another block at the height of the served head becomes the head', () => {
  const chain = changing(upTo(9));
  return withNodes(
    [chain.methods],
    async ({ nodes }) => {
      await nodes.head(signal);
      chain.set(upTo(9, 1));
      assert.equal((await nodes.head(signal)).hash, makeHash(1, 9, 0));
    },
    without,
  );
});

test('another block at the height of the served head is the head as soon as two nodes name it, without a third that hangs', () => {
  const chains = [changing(upTo(9)), changing(upTo(9)), changing(upTo(9))];
  return withNodes(
    chains.map(({ methods }) => methods),
    async ({ scripted, nodes }) => {
      await nodes.head(signal);
      for (const chain of chains.slice(0, 2)) chain.set(upTo(9, 1));
      nodeAt(scripted, 2).setHttp('hang');
      assert.equal((await nodes.head(signal)).hash, makeHash(1, 9, 0));
      assert.equal(nodes.status()[2]?.throttle.inFlight, 1, 'the third was waited for');
    },
    without,
  );
});

test('a served head that no node names any more does not block a shorter chain', () => {
  const chain = changing(upTo(9));
  return withNodes(
    [chain.methods],
    async ({ nodes }) => {
      const { hash } = await nodes.head(signal);
      chain.set(upTo(8, 1));
      await assert.rejects(nodes.bundles([hash], signal), { name: 'Fault', code: 'unavailable' });
      assert.equal((await nodes.head(signal)).hash, makeHash(1, 8, 0));
    },
    without,
  );
});

test('with two nodes on different branches no branch is followed until a third node decides', () => {
  const first = changing(upTo(9));
  const second = changing(upTo(9, 1));
  const third = changing(upTo(7));
  return withNodes(
    [first.methods, second.methods, third.methods],
    async ({ nodes, clock }) => {
      const held = { name: 'Fault', code: 'inconsistent', message: /no 2 of 3 nodes name the same block/ };
      await assert.rejects(nodes.head(signal), held);
      for (const branch of [1, 0]) {
        third.set(upTo(9, branch));
        assert.equal((await nodes.head(signal)).hash, makeHash(branch, 9, 0));
        const [votes] = [nodes.status().map(({ vote }) => vote?.hash)];
        assert.deepEqual(
          votes,
          [0, 1, branch].map((one) => makeHash(one, 9, 0)),
        );
      }
      // The last head that a quorum named doesn't count more than the current votes.
      third.set(upTo(7));
      await assert.rejects(nodes.head(signal), held);
      clock.advance(2_000);
      assert.match(
        nodes.quorum().dispute?.message ?? '',
        new RegExp(`${makeHash(0, 9, 0)}.*${makeHash(1, 9, 0)}`),
      );
      third.set(upTo(9));
      await nodes.head(signal);
      assert.equal(nodes.quorum().dispute, undefined);
      assert.deepEqual(
        nodes.status().map(({ outvotedCount }) => outvotedCount),
        [1, 1, 0],
      );
    },
    without,
  );
});

test('a node whose last head a quorum has passed with another block is outvoted, once for each block', () => {
  const left = [...upTo(8), makeNodeBlock(9, { branch: 1 })];
  const [ahead, other] = [changing(upTo(8)), changing(upTo(8))];
  return withNodes(
    [chainMethods(1, left), ahead.methods, other.methods],
    async ({ nodes, clock }) => {
      for (const chain of [ahead, other]) chain.set([...upTo(9), makeNodeBlock(10)]);
      for (let time = 0; time < 3; time += 1) {
        await nodes.head(signal);
        clock.advance(1_000);
      }
      const [{ outvotedCount, outvoted } = {}, ...others] = nodes.status();
      assert.equal(outvotedCount, 1);
      assert.deepEqual(
        [outvoted?.number, outvoted?.hash, outvoted?.corroboratedHash],
        [9, makeHash(1, 9, 0), makeHash(0, 9, 0)],
      );
      assert.deepEqual(
        others.map((node) => node.outvotedCount),
        [0, 0],
      );
    },
    without,
  );
});

test('if nodes name siblings, their common parent is the head', () => {
  return withNodes(
    [chainMethods(1, upTo(9)), chainMethods(1, siblingBranch), chainMethods(1, upTo(8))],
    async ({ nodes }) => {
      assert.equal((await nodes.head(signal)).hash, makeHash(0, 8, 0));
    },
    without,
  );
});

test('a node on another chain that is far ahead changes nothing and has the state wrong_chain', () => {
  const far = chainMethods(2, [makeNodeBlock(30_000_000, { branch: 9 })]);
  return withNodes(
    [far, complete(), complete()],
    async ({ nodes }) => {
      for (let time = 0; time < 2; time += 1) assert.equal((await nodes.head(signal)).number, 9);
      assert.equal((await nodes.bundles([makeHash(0, 9, 0)], signal)).length, 1);
      const [{ state, head, error } = {}] = nodes.status();
      assert.deepEqual([state, head], ['wrong_chain', undefined]);
      assert.match(error ?? '', /is on chain 2, chain.id says 1/);
    },
    without,
  );
});

test('a node that rests or is limited is not asked for its head as long as the others are a quorum', () =>
  withNodes(
    [complete(), complete(), complete()],
    async ({ scripted, nodes, clock }) => {
      await nodes.head(signal);
      nodeAt(scripted, 0).setHttp('reset');
      nodeAt(scripted, 1).setHttp({ status: 429, headers: { 'retry-after': '9' } });
      await nodes.head(signal);
      const before = scripted.map((node) => node.exchangeCount());
      await nodes.head(signal);
      assert.deepEqual(
        scripted.map((node, index) => node.exchangeCount() - (before[index] ?? 0)),
        [0, 0, 1],
      );
      for (const node of scripted) node.setHttp(undefined);
      clock.advance(9_000);
      await nodes.head(signal);
      assert.deepEqual(
        nodes.status().map(({ state }) => state),
        ['ok', 'ok', 'ok'],
      );
    },
    { quorum: 1 },
  ));

test('a resting node is asked too while the others disagree', () => {
  const second = changing(upTo(9));
  return withNodes(
    [chainMethods(1, upTo(9)), second.methods, chainMethods(1, upTo(9))],
    async ({ scripted, nodes }) => {
      await nodes.head(signal);
      nodeAt(scripted, 2).setHttp('reset');
      await nodes.head(signal);
      nodeAt(scripted, 2).setHttp(undefined);
      const before = nodeAt(scripted, 2).exchangeCount();
      assert.equal((await nodes.head(signal)).number, 9);
      assert.equal(nodeAt(scripted, 2).exchangeCount(), before, 'it rests');
      second.set(siblingBranch);
      assert.equal((await nodes.head(signal)).number, 8);
      assert.equal((await nodes.head(signal)).hash, makeHash(0, 9, 0));
      assert.ok(nodeAt(scripted, 2).exchangeCount() > before);
    },
    without,
  );
});

test('a head costs one request to each node', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes }) => {
    await nodes.head(signal);
    const before = scripted.map((node) => node.calls.length);
    await nodes.head(signal);
    for (const [index, node] of scripted.entries()) {
      assert.equal(node.calls.length - (before[index] ?? 0), 1);
      assert.equal(countOf(node, 'eth_chainId'), 3, 'who it is was asked once, and whether it can batch');
    }
  }));

test('a node that gives the right hash with a made-up parent does not decide which block a quorum names', () => {
  const parentHash = `0x${'fa'.repeat(32)}`;
  const honest = complete();
  const lying: Methods[string] = (params) =>
    params[0] === '0x9' ? { ...blocks[9]?.block, parentHash } : honest.eth_getBlockByNumber?.(params);
  return withNodes(
    [{ ...honest, eth_getBlockByNumber: lying }, complete(), complete()],
    async ({ nodes }) => {
      // Which node answers first differs.
      for (let count = 0; count < 20; count += 1) {
        const header = await nodes.corroborated(9, signal);
        assert.deepEqual(
          [header?.hash, header?.parentHash],
          [blocks[9]?.block.hash, blocks[9]?.block.parentHash],
        );
      }
    },
  );
});
