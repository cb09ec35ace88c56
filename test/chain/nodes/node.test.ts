import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blocks, complete, countOf, nodeAt, withNodes } from '../../kit/nodes.ts';
import type { Answer } from '../../kit/receiver.ts';
import { chainMethods, makeHash, RpcError, type ScriptedNode, traceMethod } from '../../kit/scripted-node.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();
const headHash = makeHash(0, 9, 0);
const slowDown = (retryAfter: string): Answer => ({ status: 429, headers: { 'retry-after': retryAfter } });

test('a limited node rests for exactly as long as it says while another one serves, and keeps its capabilities', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, clock }) => {
    const [first, second] = [nodeAt(scripted, 0), nodeAt(scripted, 1)];
    await nodes.bundles([headHash], signal);
    first.setHttp(slowDown('60'));
    assert.equal((await nodes.bundles([headHash], signal)).length, 1);
    const [status] = nodes.status();
    assert.deepEqual([status?.state, status?.error], ['limited', undefined]);
    assert.equal(status?.throttle.limited?.until.toISOString(), '2025-11-20T12:01:00.000Z');
    first.setHttp(undefined);
    const [asked, servedBySecond] = [first.exchangeCount(), countOf(second, 'eth_getBlockByHash')];
    clock.advance(59_999);
    await nodes.bundles([headHash], signal);
    assert.equal(first.exchangeCount(), asked);
    assert.equal(countOf(second, 'eth_getBlockByHash'), servedBySecond + 1);
    clock.advance(1);
    await nodes.bundles([headHash], signal);
    assert.equal(first.exchangeCount(), asked + 1, 'one request: it is not probed again');
    assert.equal(nodes.status()[0]?.state, 'ok');
  }));

test('when all nodes are limited, the one whose pause ends first is asked, and not before that', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, clock }) => {
    await nodes.head(signal);
    for (const [index, node] of scripted.entries()) node.setHttp(slowDown(index === 0 ? '20' : '5'));
    await assert.rejects(nodes.head(signal), { name: 'Fault', code: 'unavailable' });
    for (const node of scripted) node.setHttp(undefined);
    const before = scripted.map((node) => node.exchangeCount());
    const asking = nodes.bundles([headHash], signal);
    await waitUntil(() => clock.waits().includes(5_000));
    clock.advance(4_999);
    assert.deepEqual(
      scripted.map((node) => node.exchangeCount()),
      before,
    );
    clock.advance(1);
    assert.equal((await asking).length, 1);
    assert.equal(nodeAt(scripted, 0).exchangeCount(), before[0]);
  }));

test('if the only node limits requests, the caller waits for it', () =>
  withNodes([complete()], async ({ scripted, nodes, clock }) => {
    await nodes.head(signal);
    nodeAt(scripted, 0).setHttp({ status: 503, headers: { 'retry-after': '3' } });
    const asking = nodes.bundles([headHash], signal);
    await waitUntil(() => clock.waits().includes(3_000));
    nodeAt(scripted, 0).setHttp(undefined);
    clock.advance(3_000);
    assert.equal((await asking)[0]?.header.number, 9);
    assert.equal(nodes.status()[0]?.throttle.concurrency, 8);
  }));

test('if the other nodes have been dead for a while, the caller waits for a limited one', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, clock }) => {
    const [dead, limited] = [nodeAt(scripted, 0), nodeAt(scripted, 1)];
    dead.setHttp('reset');
    for (let failure = 0; failure < 3; failure += 1) {
      await nodes.bundles([headHash], signal);
      clock.advance(1_000);
    }
    limited.setHttp(slowDown('4'));
    const asking = nodes.bundles([headHash], signal);
    await waitUntil(() => clock.waits().includes(4_000));
    limited.setHttp(undefined);
    clock.advance(4_000);
    assert.equal((await asking).length, 1);
  }));

test('a limit during the probe does not reduce the capabilities of a node', () =>
  withNodes(
    [complete(), complete()],
    async ({ scripted, nodes, clock }) => {
      const { methods } = nodeAt(scripted, 0);
      const { eth_chainId } = methods;
      let chainIdCount = 0;
      methods.eth_chainId = (params) => {
        chainIdCount += 1;
        // The first request asks for the chain id, the second whether the node accepts batches.
        if (chainIdCount === 2) throw new RpcError(-32_005, 'rate limit, retry in 2 seconds');
        return eth_chainId?.(params);
      };
      await nodes.bundles([headHash], signal);
      const [status] = nodes.status();
      assert.deepEqual([status?.state, status?.capabilities], ['limited', undefined]);
      clock.advance(2_000);
      await nodes.bundles([headHash], signal);
      assert.equal(nodes.status()[0]?.capabilities?.batch, true);
    },
    { internalTransfers: 'off' },
  ));

test('a node that refuses large batches still gives many blocks, and does not have to refuse again', () =>
  withNodes([complete()], async ({ scripted, nodes }) => {
    const node = nodeAt(scripted, 0);
    node.batches = { callsMax: 4 };
    const numbers = [1, 2, 3, 4, 5, 6];
    const numbersOf = async () => (await nodes.bundles(numbers, signal)).map(({ header }) => header.number);
    assert.deepEqual(await numbersOf(), numbers);
    assert.equal(nodes.status()[0]?.throttle.batchCallsMax, 3);
    const before = node.calls.length;
    const exchangesBefore = node.exchangeCount();
    assert.deepEqual(await numbersOf(), numbers);
    // Block and receipts in batches; the trace of each block by its hash, once that is known.
    assert.equal(node.calls.length - before, 18);
    assert.equal(node.exchangeCount() - exchangesBefore, 4 + 6);
  }));

test('a node that loses a method is probed at once, and serves in the same step', () =>
  withNodes(
    [{ ...chainMethods(1, blocks), debug_traceBlockByHash: traceMethod(blocks), trace_block: () => [] }],
    async ({ scripted, nodes }) => {
      await nodes.bundles([headHash], signal);
      const node = nodeAt(scripted, 0);
      delete node.methods.eth_getBlockReceipts;
      const [bundle] = await nodes.bundles([headHash], signal);
      assert.equal(bundle?.transactions.length, 2);
      assert.equal(countOf(node, 'eth_getTransactionReceipt'), 2);
      const [status] = nodes.status();
      assert.deepEqual([status?.state, status?.capabilities?.blockReceipts], ['ok', false]);
      const { debug_traceBlockByHash: trace } = node.methods;
      if (trace !== undefined) node.methods.debug_traceBlockByNumber = trace;
      delete node.methods.debug_traceBlockByHash;
      const [again] = await nodes.bundles([headHash], signal);
      assert.deepEqual(
        again?.transactions.map(({ calls }) => calls.length),
        [1, 1],
      );
      assert.equal(nodes.status()[0]?.capabilities?.traces, 'debug_traceBlockByNumber');
    },
  ));

test('if traces are required, a node that loses its trace method gives no block without them', () =>
  withNodes(
    [complete()],
    async ({ scripted, nodes }) => {
      await nodes.bundles([headHash], signal);
      delete nodeAt(scripted, 0).methods.debug_traceBlockByHash;
      await assert.rejects(nodes.bundles([headHash], signal), /internalTransfers is required/);
    },
    { internalTransfers: 'required' },
  ));

/** Makes a node take this long for each full block. */
function delay(node: ScriptedNode, work: () => void): void {
  const { eth_getBlockByHash: original } = node.methods;
  node.methods.eth_getBlockByHash = (params) => {
    work();
    return original?.(params);
  };
}

test('a node four times slower than the best is asked after it for five minutes, then first again as configured', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, clock }) => {
    const [first, second] = [nodeAt(scripted, 0), nodeAt(scripted, 1)];
    let tookMs = 0;
    delay(first, () => clock.advance(tookMs));
    delay(second, () => clock.advance(20));
    const served = (node: ScriptedNode) => countOf(node, 'eth_getBlockByHash');
    const fetchTimes = async (count: number) => {
      for (let time = 0; time < count; time += 1) await nodes.bundles([headHash], signal);
    };
    // The second is measured while the first is away.
    first.setHttp('reset');
    await fetchTimes(5);
    first.setHttp(undefined);
    clock.advance(30_000);
    tookMs = 81;
    await fetchTimes(4);
    assert.equal(nodes.status()[0]?.state, 'ok', 'four are too few to judge');
    const before = served(second);
    await fetchTimes(1);
    assert.equal(nodes.status()[0]?.state, 'slow');
    await fetchTimes(3);
    assert.equal(served(second), before + 3);
    clock.advance(300_000);
    await fetchTimes(1);
    assert.equal(served(second), before + 3);
    assert.equal(nodes.status()[0]?.state, 'ok');
  }));

test('a node that is only a little slower keeps its place in the order', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, clock }) => {
    const [first, second] = [nodeAt(scripted, 0), nodeAt(scripted, 1)];
    delay(first, () => clock.advance(80));
    delay(second, () => clock.advance(20));
    first.setHttp('reset');
    for (let time = 0; time < 5; time += 1) await nodes.bundles([headHash], signal);
    first.setHttp(undefined);
    clock.advance(30_000);
    for (let time = 0; time < 20; time += 1) await nodes.bundles([headHash], signal);
    assert.equal(countOf(second, 'eth_getBlockByHash'), 5);
  }));

test('if one node can trace, no block arrives without traces, even if that node loses the method', () =>
  withNodes([complete(), chainMethods(1, blocks), complete()], async ({ scripted, nodes }) => {
    await nodes.head(signal);
    await waitUntil(() => nodes.status().every(({ capabilities }) => capabilities !== undefined));
    const callsOf = async () =>
      (await nodes.bundles([7], signal))[0]?.transactions.map(({ calls }) => calls.length);
    assert.deepEqual(await callsOf(), [1, 1]);
    delete nodeAt(scripted, 0).methods.debug_traceBlockByHash;
    assert.deepEqual(await callsOf(), [1, 1]);
    nodeAt(scripted, 2).setHttp({ status: 503 });
    await assert.rejects(nodes.bundles([7], signal), /503/);
    assert.equal(countOf(nodeAt(scripted, 1), 'eth_getBlockReceipts'), 1, 'its probe alone');
  }));
