/**
 * Blocks pass through the worker threads, and the outcome decides what happens to them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Bundle } from '../../../src/chain/blocks/bundle.ts';
import { type ChainNodes, createNodes } from '../../../src/chain/nodes/nodes.ts';
import type { RawBlock } from '../../../src/chain/proof/block-checks.ts';
import { createProver } from '../../../src/chain/proof/proof-pool.ts';
import { createVerifier, type Sampling, type Verifier } from '../../../src/chain/proof/verifier.ts';
import { Fault } from '../../../src/core/fault.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { createTestClock, type TestClock } from '../../kit/clock.ts';
import { type RealBlock, readMainnetBlocks } from '../../kit/real-blocks.ts';
import { startReceiver } from '../../kit/receiver.ts';
import { testWithRealchain } from '../../kit/replay.ts';
import {
  chainMethods,
  makeNodeBlock,
  type NodeBlock,
  type ScriptedNode,
  startScriptedNode,
} from '../../kit/scripted-node.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();
const rawOf = ({ block, receipts }: NodeBlock): RawBlock => ({ block, receipts });

/** The run of twelve consecutive blocks. */
const readRun = (folder: string): RealBlock[] =>
  readMainnetBlocks(folder).filter(({ name }) => name.startsWith('semiotic/'));

test('each of many concurrent blocks gets its own outcome', async () => {
  const prover = createProver();
  const raws = Array.from({ length: 60 }, (_, number) =>
    rawOf(makeNodeBlock(number, { transactions: number % 2 })),
  );
  const outcomes = await Promise.all(raws.map((raw) => prover.prove(raw)));
  assert.deepEqual(
    outcomes.map(({ isEmpty }) => isEmpty),
    raws.map((_, number) => number % 2 === 0),
  );
  assert.ok(outcomes.every(({ headerHash }) => headerHash === 'fails'));
  await prover.close();
});

test('a block that kills workers is given up, and every other block is proved', async () => {
  const program = programOf(`import { parentPort } from 'node:worker_threads';
    parentPort.on('message', ({ id, raw }) => {
      if (raw.block === 'poison') process.exit(1);
      parentPort.postMessage({ id, answer: { isEmpty: true } });
    });`);
  const prover = createProver({ program });
  const raws = [1, 2, 'poison', 4, 5].map((block) => ({ block, receipts: [] }));
  const outcomes = await Promise.allSettled(raws.map((raw) => prover.prove(raw)));
  assert.deepEqual(
    outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value.isEmpty : outcome.reason.code)),
    [true, true, 'inconsistent', true, true],
  );
  await prover.close();
});

test('a block nested too deeply to be copied is refused, and the next one is proved', async () => {
  const prover = createProver();
  const depth = 100_000;
  const nested: unknown = JSON.parse('['.repeat(depth) + ']'.repeat(depth));
  await assert.rejects(prover.prove({ block: { nested }, receipts: [] }), {
    name: 'Fault',
    code: 'inconsistent',
  });
  assert.equal((await prover.prove(rawOf(makeNodeBlock(7)))).isEmpty, false);
  await prover.close();
});

test('a proof that is pending at close ends with a Fault, and the threads end', async () => {
  const prover = createProver({ program: programOf('setTimeout(() => {}, 3_600_000);') });
  const waiting = Array.from({ length: 10 }, () => prover.prove({ block: {}, receipts: [] }));
  const outcomes = Promise.allSettled(waiting);
  await prover.close();
  for (const outcome of await outcomes) {
    assert.ok(outcome.status === 'rejected' && outcome.reason.code === 'unavailable');
  }
  await assert.rejects(prover.prove({ block: {}, receipts: [] }), { code: 'unavailable' });
});

/** An unknown chain with one node. */
const fresh = { mode: 'auto', chainId: 31_337, nodeCount: 1, enforced: [], log: silentLog() } as const;

test('off requests no proof', async () => {
  const verifier = createVerifier({ ...fresh, mode: 'off' });
  const { proved } = await verifier.verify({ number: 7, hash: '0x' }, { block: {}, receipts: [] });
  assert.equal(proved, false);
  await verifier.close();
});

for (const mode of ['auto', 'strict'] as const) {
  testWithRealchain(
    `a block that one node spoils comes from another node, or else the follower holds (${mode})`,
    async (folder) => {
      const good = readRun(folder);
      const bad = readRun(folder);
      bad[8]?.receipts.findLast(({ logs }) => logs.length > 0)?.logs.pop();
      await using spoiling = await startScriptedNode(chainMethods(1, bad));
      await using honest = await startScriptedNode(chainMethods(1, good));
      const verifier = createVerifier({ ...fresh, mode, nodeCount: 2 });
      const optionsFor = (urls: string[]) => ({
        ...({ urls, chainId: 1, internalTransfers: 'off', verifier, onHead() {} } as const),
        ...{ clock: createTestClock(), log: silentLog(), metrics: createMetrics('test') },
      });
      const both = createNodes(optionsFor([spoiling.url, honest.url]));
      const single = createNodes(optionsFor([spoiling.url]));
      const spoiled = Number(bad[8]?.block.number);
      const [before] = await both.bundles([spoiled - 1], signal);
      const [bundle] = await both.bundles([spoiled], signal);
      assert.deepEqual([before?.proved, bundle?.proved], [true, true]);
      assert.equal(
        bundle?.transactions.flatMap(({ logs }) => logs).length,
        good[8]?.receipts.flatMap(({ logs }) => logs).length,
      );
      await assert.rejects(single.bundles([spoiled], signal), {
        code: 'inconsistent',
        message: /receipts root/,
      });
      assert.equal((await single.bundles([spoiled + 1], signal))[0]?.proved, true);
      const {
        withdrawalsRoot: _noneAreListed,
        transactionHashes: _noneIsUnknown,
        ...checks
      } = verifier.status().checks;
      assert.deepEqual(new Set(Object.values(checks)), new Set(['enforced']));
      await Promise.all([both.close(), single.close(), verifier.close()]);
    },
  );
}

test('made-up blocks turn every check off, and are still followed', async () => {
  const blocks = Array.from({ length: 10 }, (_, number) => makeNodeBlock(number));
  await using node = await startScriptedNode(chainMethods(1, blocks));
  const verifier = createVerifier(fresh);
  const nodes = openNodes(verifier, [node]);
  const [bundle] = await nodes.bundles([1], signal);
  assert.equal(bundle?.proved, false);
  assert.deepEqual(verifier.status().checks, {
    ...{ headerHash: 'off', transactionsRoot: 'off', receiptsRoot: 'off' },
    // None are listed, and all types are known.
    ...{ withdrawalsRoot: 'calibrating', transactionHashes: 'calibrating' },
  });
  await Promise.all([nodes.close(), verifier.close()]);
});

test('recent blocks are requested four at a time, and no further ones from a slow node', async () => {
  const blocks = Array.from({ length: 40 }, (_, number) => makeNodeBlock(number));
  await using node = await startScriptedNode(chainMethods(1, blocks));
  const held: (() => void)[] = [];
  await using slow = await startReceiver({
    async answer({ body }) {
      if (body.includes('eth_getBlockReceipts')) await new Promise<void>((resolve) => held.push(resolve));
      const answer = await fetch(node.url, { method: 'POST', body });
      return { body: await answer.text() };
    },
  });
  const clock = createTestClock();
  await using own = new AsyncDisposableStack();
  const verifier = own.adopt(createVerifier(fresh), ({ close }) => close());
  const nodes = own.adopt(openNodes(verifier, [slow], clock), ({ close }) => close());
  let bundle: Bundle | undefined;
  const asking = nodes.bundles([30], signal).then(([found]) => {
    bundle = found;
  });
  const releaseOne = async (requestCount: number) => {
    await waitUntil(() => held.length >= requestCount);
    assert.equal(held.length, requestCount);
    held.shift()?.();
  };
  // The probe asks for receipts, too.
  await releaseOne(1);
  for (let count = 0; count < 8; count += 1) await releaseOne(4);
  await waitUntil(() => held.length === 4);
  clock.advance(5_001);
  for (const requestCount of [4, 3, 2, 1]) await releaseOne(requestCount);
  // The block itself.
  await releaseOne(1);
  await asking;
  assert.equal(bundle?.header.number, 30);
  assert.equal(slow.requests.filter(({ body }) => body.includes('eth_getBlockReceipts')).length, 1 + 12 + 1);
});

test('two callers at once share one sampling', async () => {
  const verifier = createVerifier({ ...fresh, nodeCount: 2 });
  const reached = Promise.withResolvers<void>();
  const away = Promise.withResolvers<void>();
  let readCount = 0;
  const breaking: Sampling = {
    node: 1,
    async read(verify) {
      readCount += 1;
      await verify({ number: 1, hash: '0x' }, rawOf(makeNodeBlock(1)));
    },
  };
  const failing: Sampling = {
    node: 2,
    async read() {
      reached.resolve();
      await away.promise;
      throw new Fault('unavailable', 'it is away');
    },
  };
  const first = verifier.calibrate([breaking, failing]);
  await reached.promise;
  const second = verifier.calibrate([breaking]);
  // Enough time for the second caller to calibrate once more, if it did.
  for (let count = 0; count < 10; count += 1) {
    await assert.rejects(verifier.verify({ number: 2, hash: '0x' }, rawOf(makeNodeBlock(2))));
  }
  away.resolve();
  await Promise.all([first, second]);
  assert.equal(readCount, 1);
  assert.equal(verifier.status().checks.receiptsRoot, 'calibrating');
  await verifier.close();
});

testWithRealchain(
  'a node that drops data is not believed while the other one is unreachable',
  async (folder) => {
    const good = readRun(folder);
    const dropping = readRun(folder);
    for (const { receipts } of dropping) for (const receipt of receipts) receipt.logs = [];
    await using first = await startScriptedNode(chainMethods(1, dropping));
    await using second = await startScriptedNode(chainMethods(1, good));
    second.setHttp({ status: 503 });
    const verifier = createVerifier({ ...fresh, nodeCount: 2 });
    const nodes = openNodes(verifier, [first, second]);
    const asked = [Number(good[3]?.block.number)];
    for (let attempt = 0; attempt < 5; attempt += 1) {
      await assert.rejects(nodes.bundles(asked, signal), { code: 'inconsistent', message: /receipts root/ });
    }
    assert.equal(verifier.status().checks.receiptsRoot, 'calibrating');
    second.setHttp(undefined);
    const [bundle] = await nodes.bundles(asked, signal);
    // One of two nodes keeps the check and one breaks it, so it stays open; until it is decided, blocks must keep it.
    assert.deepEqual([bundle?.proved, verifier.status().checks.receiptsRoot], [true, 'calibrating']);
    await Promise.all([nodes.close(), verifier.close()]);
  },
);

test('a block that no node can prove is refused once for all nodes, with what the operator can do', async () => {
  const blocks = [0, 1, 2].map((number) => makeNodeBlock(number));
  await using first = await startScriptedNode(chainMethods(1, blocks));
  await using second = await startScriptedNode(chainMethods(1, blocks));
  const verifier = createVerifier({ ...fresh, mode: 'strict', nodeCount: 2 });
  const nodes = openNodes(verifier, [first, second]);
  await assert.rejects(nodes.bundles([2], signal), {
    code: 'inconsistent',
    message:
      /^block 2 \(0x\w+\) is not proved: [^.;]+\. No node in chain\.rpc gives this block .* update Chainbell; .* chain\.verify: off .* add a node of another operator to chain\.rpc$/,
  });
  await Promise.all([nodes.close(), verifier.close()]);
});

test('two nodes that break the same check turn it off, even if only an old block shows it', async () => {
  // Nothing but the oldest block has transactions; the roots of the others hold.
  const blocks = Array.from({ length: 40 }, (_, number) => {
    const made = makeNodeBlock(number, { transactions: number === 1 ? 2 : 0 });
    if (number > 1) Object.assign(made.block, { transactionsRoot: EMPTY_ROOT, receiptsRoot: EMPTY_ROOT });
    return made;
  });
  await using first = await startScriptedNode(chainMethods(1, blocks));
  await using second = await startScriptedNode(chainMethods(1, blocks));
  const verifier = createVerifier({ ...fresh, nodeCount: 2 });
  const nodes = openNodes(verifier, [first, second]);
  await nodes.head(signal);
  await waitUntil(() => nodes.status().every(({ capabilities }) => capabilities !== undefined));
  assert.equal((await nodes.bundles([30], signal))[0]?.proved, false);
  assert.equal(verifier.status().checks.receiptsRoot, 'calibrating');
  // The block is held once. Then both nodes are asked for this block.
  await assert.rejects(nodes.bundles([1], signal), /is not proved/);
  assert.equal((await nodes.bundles([1], signal))[0]?.proved, false);
  assert.equal(verifier.status().checks.receiptsRoot, 'off');
  await Promise.all([nodes.close(), verifier.close()]);
});

/** These nodes of chain 1, with a proof of their blocks and without traces. */
function openNodes(
  verifier: Verifier,
  scripted: readonly Pick<ScriptedNode, 'url'>[],
  clock: TestClock = createTestClock(),
): ChainNodes {
  const urls = scripted.map(({ url }) => url);
  return createNodes({
    ...{ urls, chainId: 1, internalTransfers: 'off', verifier, onHead() {} },
    ...{ clock, log: silentLog(), metrics: createMetrics('test') },
  });
}

/** Of a list without entries (yellow paper, section 4.3.2). */
const EMPTY_ROOT = '0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421';

/** The URL of a worker program with this text. */
function programOf(text: string): URL {
  return new URL(`data:text/javascript,${encodeURIComponent(text)}`);
}
