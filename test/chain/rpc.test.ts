import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { createRpc, lacksMethod, type Rpc } from '../../src/chain/rpc.ts';
import { Fault } from '../../src/core/fault.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import type { Answer } from '../kit/receiver.ts';
import {
  type Json,
  RpcError,
  type ScriptedNode,
  SECRET_PATH,
  startScriptedNode,
} from '../kit/scripted-node.ts';

const { signal } = new AbortController();
const chainId = { method: 'eth_chainId', params: [] };
const number = { method: 'eth_blockNumber', params: [] };

type Stage = { node: ScriptedNode; rpc: Rpc; metrics: ReturnType<typeof createMetrics> };

async function withNode(work: (stage: Stage) => Promise<void>): Promise<void> {
  await using node = await startScriptedNode({ eth_chainId: () => '0x1', eth_blockNumber: () => '0x7' });
  const metrics = createMetrics('test');
  const rpc = createRpc(node.url, metrics);
  try {
    await work({ node, rpc, metrics });
  } finally {
    await rpc.close();
  }
}

/** The fault of a call. */
async function faultOf(work: Promise<unknown>): Promise<Fault> {
  const thrown = await work.then(
    () => assert.fail('there was no fault'),
    (error: unknown) => error,
  );
  assert.ok(thrown instanceof Fault, String(thrown));
  return thrown;
}

test('answers come in the order of the calls, whatever the order in which the node gives them', () =>
  withNode(async ({ node, rpc }) => {
    node.setHttp(({ json }) => {
      const answers = (json as Json[]).map(({ id, method }) => ({ jsonrpc: '2.0', id, result: method }));
      return { body: JSON.stringify(answers.reverse()) };
    });
    const answers = await rpc.batch([chainId, number, number], signal);
    assert.deepEqual(
      answers.map((answer) => answer.ok && answer.result),
      ['eth_chainId', 'eth_blockNumber', 'eth_blockNumber'],
    );
  }));

test('a batch is one HTTP request, and an empty one is none', () =>
  withNode(async ({ node, rpc }) => {
    assert.deepEqual(await rpc.batch([], signal), []);
    assert.equal(node.exchangeCount(), 0);
    await rpc.batch([chainId, number], signal);
    assert.equal(node.exchangeCount(), 1);
  }));

test('an error in a batch is the answer of its own call only', () =>
  withNode(async ({ node, rpc }) => {
    node.methods.eth_blockNumber = () => {
      throw new RpcError(-32_000, 'header not found');
    };
    assert.deepEqual(await rpc.batch([chainId, number], signal), [
      { ok: true, result: '0x1' },
      { ok: false, code: -32_000, message: 'header not found' },
    ]);
    const fault = await faultOf(rpc.call('eth_blockNumber', [], signal));
    assert.equal(fault.code, 'unavailable');
    assert.match(fault.message, /eth_blockNumber: header not found \(-32000\)/);
  }));

test('a call that the node leaves unanswered is inconsistent', () =>
  withNode(async ({ node, rpc }) => {
    node.setHttp(({ json }) => ({
      body: JSON.stringify((json as Json[]).slice(1).map(({ id }) => ({ id, result: 1 }))),
    }));
    assert.equal((await faultOf(rpc.batch([chainId, number], signal))).code, 'inconsistent');
  }));

test('a method that is not there is told from one that fails', () =>
  withNode(async ({ node, rpc }) => {
    node.methods.eth_blockNumber = () => {
      throw new RpcError(-32_000, 'internal error');
    };
    const missing = { method: 'eth_getBlockReceipts', params: [] };
    const answers = await rpc.batch([chainId, number, missing], signal);
    assert.deepEqual(answers.map(lacksMethod), [false, false, true]);
  }));

const failures: [name: string, answer: Answer][] = [
  ['HTTP 429', { status: 429, headers: { 'retry-after': '7' }, body: 'slow down' }],
  ['HTTP 500', { status: 500, body: '<html>' }],
  ['HTTP 200 with a page', { body: '<html>maintenance</html>' }],
  ['HTTP 200 without a body', { body: '' }],
  ['half an answer', { body: '{"jsonrpc":"2.0","id":1,"resu' }],
  ['bytes that only claim to be gzip', { headers: { 'content-encoding': 'gzip' }, body: 'not gzip at all' }],
  [
    'gzip that nobody asked for',
    { headers: { 'content-encoding': 'gzip' }, body: gzipSync('{"id":1,"result":"0x1"}').subarray(0, 20) },
  ],
  ['a redirect', { status: 302, headers: { location: 'http://127.0.0.1:9/' } }],
  ['a connection that is reset', 'reset'],
  [
    'a body shorter than announced',
    { raw: 'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"id":1', close: 'end' },
  ],
  ['what is not HTTP', { raw: 'SSH-2.0-OpenSSH_9.6\r\n', close: 'end' }],
];

for (const [name, answer] of failures) {
  test(`${name} means unavailable, and names the node without its path`, () =>
    withNode(async ({ node, rpc, metrics }) => {
      node.setHttp(answer);
      const fault = await faultOf(rpc.call('eth_chainId', [], signal));
      assert.equal(fault.code, 'unavailable');
      assert.ok(fault.message.startsWith(new URL(node.url).origin), fault.message);
      assert.ok(!fault.message.includes(SECRET_PATH), fault.message);
      const text = await metrics.registry.metrics();
      assert.match(text, /chainbell_rpc_requests_total\{.*outcome="failed".*\} 1/);
      assert.ok(!text.includes(SECRET_PATH));
    }));
}

test('a 429 says how long the node asks to be left alone', () =>
  withNode(async ({ node, rpc }) => {
    node.setHttp({ status: 429, headers: { 'retry-after': '7' } });
    assert.match((await faultOf(rpc.call('eth_chainId', [], signal))).message, /HTTP 429, retry-after 7/);
  }));

test('a node that refuses a method by HTTP 400 with a JSON-RPC error is understood', () =>
  withNode(async ({ node, rpc }) => {
    const error = { code: -32_601, message: 'Unsupported method: trace_block' };
    node.setHttp(({ json }) => ({
      status: 400,
      body: JSON.stringify({ jsonrpc: '2.0', id: (json as Json).id, error }),
    }));
    const [answer] = await rpc.batch([{ method: 'trace_block', params: [] }], signal);
    assert.deepEqual(answer, { ok: false, ...error });
    assert.ok(lacksMethod(answer));
  }));

test('a node where nobody listens is unavailable', async () => {
  const node = await startScriptedNode();
  await node.close();
  const rpc = createRpc(node.url, createMetrics('test'));
  const fault = await faultOf(rpc.call('eth_chainId', [], signal));
  assert.equal(fault.code, 'unavailable');
  assert.ok(!fault.message.includes(SECRET_PATH));
  await rpc.close();
});

test('a call ends when its signal aborts, also while the node says nothing', () =>
  withNode(async ({ node, rpc }) => {
    const abort = new AbortController();
    node.setHttp(() => {
      abort.abort();
      return 'hang';
    });
    assert.equal((await faultOf(rpc.call('eth_chainId', [], abort.signal))).code, 'unavailable');
  }));

test('user name and password in the URL are shown nowhere', async () => {
  const rpc = createRpc('http://user:password@127.0.0.1:9/key', createMetrics('test'));
  assert.equal(rpc.name, 'http://127.0.0.1:9');
  assert.doesNotMatch((await faultOf(rpc.call('eth_chainId', [], signal))).message, /user|password|key/);
  await rpc.close();
});

test('any JSON as the answer gives answers or a Fault, never another error', () =>
  withNode(async ({ node, rpc }) => {
    const error = fc.record({
      code: fc.jsonValue(),
      message: fc.oneof(fc.jsonValue(), fc.constant({ toString: 1 })),
    });
    const answer = fc.oneof(
      fc.jsonValue(),
      fc.record({ id: fc.constant(null), error }),
      fc.array(fc.record({ id: fc.nat(), error })),
    );
    await fc.assert(
      fc.asyncProperty(answer, async (json) => {
        node.setHttp({ body: JSON.stringify(json) });
        try {
          assert.equal((await rpc.batch([chainId, number], signal)).length, 2);
        } catch (thrown) {
          assert.ok(thrown instanceof Fault, String(thrown));
        }
      }),
      { numRuns: 300 },
    );
  }));
