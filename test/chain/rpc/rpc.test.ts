import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { createRpc, lacksMethod, type NodeRpc } from '../../../src/chain/rpc/rpc.ts';
import { Fault, messageOf } from '../../../src/core/fault.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { createTestClock, type TestClock } from '../../kit/clock.ts';
import type { Answer, AnswerTo } from '../../kit/receiver.ts';
import {
  type Json,
  RpcError,
  type ScriptedNode,
  SECRET_PATH,
  startScriptedNode,
} from '../../kit/scripted-node.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();
const chainId = { method: 'eth_chainId', params: [] };
const number = { method: 'eth_blockNumber', params: [] };

type Stage = {
  node: ScriptedNode;
  rpc: NodeRpc;
  metrics: ReturnType<typeof createMetrics>;
  clock: TestClock;
};

async function withNode(work: (stage: Stage) => Promise<void>): Promise<void> {
  await using node = await startScriptedNode({ eth_chainId: () => '0x1', eth_blockNumber: () => '0x7' });
  const metrics = createMetrics('test');
  const clock = createTestClock();
  const rpc = createRpc(node.url, metrics, clock);
  try {
    await work({ node, rpc, metrics, clock });
  } finally {
    await rpc.close();
  }
}

/** The Fault of a call. */
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

test('a batch is one HTTP request, and an empty batch causes no request', () =>
  withNode(async ({ node, rpc }) => {
    assert.deepEqual(await rpc.batch([], signal), []);
    assert.equal(node.exchangeCount(), 0);
    await rpc.batch([chainId, number], signal);
    assert.equal(node.exchangeCount(), 1);
  }));

test('an error in a batch is the answer of its call only', () =>
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

test('a batch in which two answers have the same id is inconsistent, because the right one is unknown', () =>
  withNode(async ({ node, rpc }) => {
    node.setHttp(({ json }) => {
      const [first, second] = json as Json[];
      const answers = [
        { id: first?.id, result: '0x1' },
        { id: second?.id, result: '0x7' },
        { id: first?.id, result: '0x2' },
      ];
      return { body: JSON.stringify(answers) };
    });
    const fault = await faultOf(rpc.batch([chainId, number], signal));
    assert.equal(fault.code, 'inconsistent');
    assert.match(fault.message, /answered one call of a batch twice/);
  }));

test('a result without an id answers a single call, and never all calls of a batch', () =>
  withNode(async ({ node, rpc }) => {
    node.setHttp(() => ({ body: JSON.stringify({ id: null, result: '0x7' }) }));
    assert.equal(await rpc.call('eth_blockNumber', [], signal), '0x7');
    const fault = await faultOf(rpc.batch([chainId, number], signal));
    assert.equal(fault.code, 'inconsistent');
    assert.match(fault.message, /left eth_chainId unanswered/);
  }));

test('an error without an id, or one that is only a text, is an error with its message', () =>
  withNode(async ({ node, rpc }) => {
    const refuse = (answer: object) => node.setHttp(() => ({ body: JSON.stringify(answer) }));
    refuse({ error: { code: -32_001, message: 'invalid api key' } });
    for (const asked of [rpc.call('eth_chainId', [], signal), rpc.call('eth_blockNumber', [], signal)])
      assert.match((await faultOf(asked)).message, /invalid api key/);
    refuse({ id: null, error: 'method not allowed' });
    assert.match((await faultOf(rpc.call('eth_chainId', [], signal))).message, /method not allowed/);
    node.setHttp(() => ({ status: 400, body: JSON.stringify({ error: 'method not allowed' }) }));
    assert.match((await faultOf(rpc.call('eth_chainId', [], signal))).message, /method not allowed/);
    refuse({ id: null, result: '0x1', error: '' });
    assert.equal(await rpc.call('eth_chainId', [], signal), '0x1');
  }));

test('a missing method is distinguished from a failing one', () =>
  withNode(async ({ node, rpc }) => {
    node.methods.eth_blockNumber = () => {
      throw new RpcError(-32_000, 'internal error');
    };
    const missing = { method: 'eth_getBlockReceipts', params: [] };
    const answers = await rpc.batch([chainId, number, missing], signal);
    assert.deepEqual(answers.map(lacksMethod), [false, false, true]);
  }));

const failures: [name: string, answer: Answer][] = [
  ['HTTP 503', { status: 503, body: 'over capacity' }],
  ['HTTP 500', { status: 500, body: '<html>' }],
  ['HTTP 200 with a page', { body: '<html>maintenance</html>' }],
  ['HTTP 200 without a body', { body: '' }],
  ['half an answer', { body: '{"jsonrpc":"2.0","id":1,"resu' }],
  ['bytes that only claim to be gzip', { headers: { 'content-encoding': 'gzip' }, body: 'not gzip at all' }],
  [
    'unrequested gzip',
    { headers: { 'content-encoding': 'gzip' }, body: gzipSync('{"id":1,"result":"0x1"}').subarray(0, 20) },
  ],
  ['a redirect', { status: 302, headers: { location: 'http://127.0.0.1:9/' } }],
  ['a connection that is reset', 'reset'],
  [
    'a body shorter than announced',
    { raw: 'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"id":1', close: 'end' },
  ],
  ['an answer that is not HTTP', { raw: 'SSH-2.0-OpenSSH_9.6\r\n', close: 'end' }],
];

for (const [name, answer] of failures) {
  test(`${name} means unavailable, and the message names the node without its path`, () =>
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

test('user and password of the URL are sent as basic authentication', () =>
  withNode(async ({ node }) => {
    const sent: (string | undefined)[] = [];
    node.setHttp(({ headers, json }) => {
      sent.push(headers.authorization);
      return { body: JSON.stringify({ ...(json as Json), result: '0x1' }) };
    });
    for (const user of ['', 'operator:p%40ss%3A@', 'operator@', 'a%b:%zz@']) {
      const rpc = createRpc(node.url.replace('//', `//${user}`), createMetrics('test'));
      await rpc.call('eth_chainId', [], signal);
      await rpc.close();
    }
    const texts = sent.map(
      (header) => header && Buffer.from(header.replace('Basic ', ''), 'base64').toString(),
    );
    assert.deepEqual(texts, [undefined, 'operator:p@ss:', 'operator:', 'a%b:%zz']);
  }));

test('an error of a node that repeats its URL reveals no secret of the URL', () =>
  withNode(async ({ node }) => {
    const url = new URL(node.url);
    url.username = 'operator';
    url.password = 'p%40ss';
    url.search = '?apikey=sesame-7';
    const rpc = createRpc(url.href, createMetrics('test'));
    const key = SECRET_PATH.split('/').at(-1);
    const echoes = [
      ...[
        url.href,
        `no route ${url.pathname}${url.search}`,
        `project ${key} is over its limit`,
        'id sesame-7',
      ],
      ...['operator:p@ss', 'password p@ss', `Basic ${Buffer.from('operator:p@ss').toString('base64')}`],
      `${'x'.repeat(490)} ${key}`,
    ];
    const secrets = [key ?? '', 'sesame-7', 'p%40ss', 'p@ss', 'operator', SECRET_PATH.slice(0, 9)];
    for (const text of echoes) {
      const bodies = [
        { body: `<${text}>` },
        { body: JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32_000, message: text } }) },
      ];
      for (const answer of bodies) {
        node.setHttp(answer);
        const shown = messageOf(await faultOf(rpc.call('eth_chainId', [], signal)));
        for (const secret of secrets) assert.ok(!shown.includes(secret), shown);
        assert.ok(shown.startsWith(url.origin), shown);
      }
    }
    // The text of a trace is cut in the middle of the key while it is read.
    const message = `${'x'.repeat(100)} ${url.origin}/${key}`.slice(0, 125 + url.origin.length);
    node.setHttp({ body: JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32_000, message } }) });
    const shown = messageOf(await faultOf(rpc.call('trace_block', ['0x1'], signal)));
    assert.ok(!shown.includes(key?.slice(0, 3) ?? ''), shown);
    // Looking for such a cut takes no time that grows with the square of a long message.
    const long = { code: -32_000, message: `€${'x'.repeat(2_000_000)} …` };
    node.setHttp({ body: JSON.stringify({ jsonrpc: '2.0', id: null, error: long }) });
    assert.match(messageOf(await faultOf(rpc.call('eth_getBlockByNumber', ['0x1', false], signal))), /€xxx/);
    const known = JSON.stringify([rpc.health.list(), rpc.throttle.status()]);
    for (const secret of secrets) assert.ok(!known.includes(secret), known);
    await rpc.close();
  }));

const slowDown = (retryAfter: string): Answer => ({ status: 429, headers: { 'retry-after': retryAfter } });

test('a node that limits requests is not asked before its pause is over, and counts as limited instead of failed', () =>
  withNode(async ({ node, rpc, metrics, clock }) => {
    node.setHttp(slowDown('7'));
    assert.match((await faultOf(rpc.call('eth_chainId', [], signal))).message, /HTTP 429, retry-after 7/);
    node.setHttp(undefined);
    clock.advance(6_999);
    assert.match(
      (await faultOf(rpc.call('eth_chainId', [], signal))).message,
      /limits requests until 2025-11-20T12:00:07/,
    );
    assert.equal(node.exchangeCount(), 1);
    clock.advance(1);
    assert.equal(await rpc.call('eth_chainId', [], signal), '0x1');
    assert.match(await metrics.registry.metrics(), /rpc_requests_total\{.*outcome="limited"\} 1/);
    const [{ calls, errors, limited } = {}] = rpc.health.list();
    assert.deepEqual([calls, errors, limited], [2, 0, 1]);
  }));

test('a patient caller waits exactly as long as the node says, and gets the answer', () =>
  withNode(async ({ node, rpc, clock }) => {
    node.setHttp(slowDown('Thu, 20 Nov 2025 12:00:05 GMT'));
    const asking = rpc.patient.call('eth_chainId', [], signal);
    await waitUntil(() => clock.waits().includes(5_000));
    node.setHttp(undefined);
    clock.advance(4_999);
    assert.equal(node.exchangeCount(), 1);
    clock.advance(1);
    assert.equal(await asking, '0x1');
    node.setHttp(slowDown('31'));
    assert.match(
      (await faultOf(rpc.patient.call('eth_chainId', [], signal))).message,
      /limits requests until .*12:00:36/,
      'longer than patience lasts',
    );
  }));

test('only the limited calls of a batch are repeated', () =>
  withNode(async ({ node, rpc, clock }) => {
    let isLimited = true;
    node.methods.eth_blockNumber = () => {
      if (isLimited) throw new RpcError(-32_005, 'in batch triggered rate limit');
      return '0x7';
    };
    const asking = rpc.patient.batch([number, chainId, number], signal);
    await waitUntil(() => clock.waits().includes(1_000));
    isLimited = false;
    clock.advance(1_000);
    assert.deepEqual(
      (await asking).map((answer) => answer.ok && answer.result),
      ['0x7', '0x1', '0x7'],
    );
    assert.deepEqual(
      node.calls.map(({ method }) => method),
      ['eth_blockNumber', 'eth_chainId', 'eth_blockNumber', 'eth_blockNumber', 'eth_blockNumber'],
    );
  }));

/** A node that accepts batches of at most two calls, and its error for larger ones. */
const small = (refusal: (calls: Json[]) => Answer): AnswerTo => {
  const answerTo = ({ id, method }: Json) => ({ jsonrpc: '2.0', id, result: method });
  return ({ json }) => {
    if (!Array.isArray(json)) return { body: JSON.stringify(answerTo(json as Json)) };
    return json.length > 2 ? refusal(json) : { body: JSON.stringify(json.map(answerTo)) };
  };
};
const tooLarge = { code: -32_600, message: 'batch too large' };
for (const [name, refusal] of [
  ['one error for the whole batch', () => ({ body: JSON.stringify({ id: null, error: tooLarge }) })],
  [
    'an error for the first call only, as geth does',
    ([first]) => ({ body: JSON.stringify([{ id: first?.id, error: tooLarge }]) }),
  ],
  ['HTTP 413', () => ({ status: 413 })],
  [
    'an error for each call that did not fit',
    (calls) => ({
      body: JSON.stringify(
        calls.map(({ id, method }, index) =>
          index < 2
            ? { id, result: method }
            : { id, error: { code: -32_003, message: 'response too large' } },
        ),
      ),
    }),
  ],
] satisfies [string, (calls: Json[]) => Answer][]) {
  test(`a node that refuses large batches with ${name} gets smaller ones from then on`, () =>
    withNode(async ({ node, rpc }) => {
      node.setHttp(small(refusal));
      const calls = [chainId, number, number, chainId, number, number, chainId];
      const answers = await rpc.batch(calls, signal);
      assert.deepEqual(
        answers.map((answer) => answer.ok && answer.result),
        calls.map(({ method }) => method),
      );
      const callsMax = rpc.throttle.batchCallsMax();
      assert.ok(callsMax === 1 || callsMax === 2, String(callsMax));
      const before = node.exchangeCount();
      await rpc.batch([chainId, number], signal);
      assert.equal(node.exchangeCount() - before, 2 / callsMax);
      assert.equal(rpc.throttle.status().concurrency, 16, 'it was not asked too often');
    }));
}

test('a single call whose answer is too large is an error and is not repeated', () =>
  withNode(async ({ node, rpc }) => {
    node.methods.eth_blockNumber = () => {
      throw new RpcError(-32_003, 'response too large');
    };
    assert.match((await faultOf(rpc.call('eth_blockNumber', [], signal))).message, /response too large/);
    assert.equal(node.exchangeCount(), 1);
  }));

test("a contract's result that is larger than Chainbell reads is an error of its call, and makes no later batch smaller", () =>
  withNode(async ({ node, rpc }) => {
    node.methods.eth_call = ([of]) => (of === 'hostile' ? `0x${'00'.repeat(500_000)}` : '0x01');
    const calls = ['good', 'hostile', 'good'].map((of) => ({ method: 'eth_call', params: [of] }));
    const answers = await rpc.batch(calls, signal);
    assert.deepEqual(
      answers.map((answer) => (answer.ok ? answer.result : answer.message.slice(0, 34))),
      ['0x01', 'the answer is larger than 128 KiB', '0x01'],
    );
    assert.equal(node.exchangeCount(), 4);
    assert.equal(rpc.throttle.status().batchCallsMax, undefined);
  }));

test('health has calls, errors, the last error and durations for each method', () =>
  withNode(async ({ node, rpc, clock }) => {
    node.methods.eth_blockNumber = () => {
      clock.advance(30);
      throw new RpcError(-32_000, 'header not found');
    };
    await rpc.batch([chainId, number, number], signal);
    node.setHttp('reset');
    await faultOf(rpc.call('eth_chainId', [], signal));
    const [first, second] = rpc.health.list();
    assert.deepEqual(
      [first?.method, first?.calls, first?.errors, first?.p50Ms, first?.p95Ms],
      ['eth_chainId', 2, 1, 0, 60],
    );
    assert.deepEqual(second, {
      ...{ method: 'eth_blockNumber', calls: 2, errors: 2, limited: 0, p50Ms: 60, p95Ms: 60 },
      lastError: { message: 'header not found', at: new Date('2025-11-20T12:00:00.060Z') },
    });
  }));

test('an aborted request does not count as a failure of the node', () =>
  withNode(async ({ node, rpc }) => {
    const abort = new AbortController();
    node.setHttp(() => {
      abort.abort();
      return 'hang';
    });
    await faultOf(rpc.call('eth_chainId', [], abort.signal));
    assert.deepEqual(rpc.health.list(), []);
    assert.equal(rpc.throttle.status().inFlight, 0);
  }));

for (const status of [400, 403, 404, 405])
  test(`a JSON-RPC error in an HTTP ${status} that refuses a method is understood`, () =>
    withNode(async ({ node, rpc }) => {
      const error = { code: -32_601, message: 'Unsupported method: trace_block' };
      node.setHttp(({ json }) => ({
        status,
        body: JSON.stringify({ jsonrpc: '2.0', id: (json as Json).id, error }),
      }));
      const [answer] = await rpc.batch([{ method: 'trace_block', params: [] }], signal);
      assert.deepEqual(answer, { ok: false, ...error });
      assert.ok(lacksMethod(answer));
    }));

test('an HTTP error that is not about a method stays one, whatever its body', () =>
  withNode(async ({ node, rpc }) => {
    for (const [status, error] of [
      [401, { code: -32_000, message: 'unknown method of authentication' }],
      [403, { code: -32_000, message: 'access denied' }],
      [404, 'Not Found'],
      [500, { code: -32_601, message: 'method not found' }],
    ] as const) {
      node.setHttp({ status, body: JSON.stringify({ id: null, error }) });
      const fault = await faultOf(rpc.batch([{ method: 'eth_chainId', params: [] }], signal));
      assert.equal(fault.code, 'unavailable');
      assert.match(fault.message, new RegExp(` answered HTTP ${status}$`));
    }
  }));

test('providers say in many words that they do not serve a method', () => {
  for (const message of [
    'the method eth_getBlockReceipts does not exist/is not available',
    'Method eth_getBlockReceipts is not whitelisted',
    'rpc method is not enabled',
    'this method is disabled on your plan',
  ])
    assert.ok(lacksMethod({ ok: false, code: -32_000, message }), message);
});

test('a node that refuses connections is unavailable', async () => {
  const node = await startScriptedNode();
  await node.close();
  const rpc = createRpc(node.url, createMetrics('test'));
  const fault = await faultOf(rpc.call('eth_chainId', [], signal));
  assert.equal(fault.code, 'unavailable');
  assert.ok(!fault.message.includes(SECRET_PATH));
  await rpc.close();
});

test('a call ends when its signal aborts, even if the node is silent', () =>
  withNode(async ({ node, rpc }) => {
    const abort = new AbortController();
    node.setHttp(() => {
      abort.abort();
      return 'hang';
    });
    assert.equal((await faultOf(rpc.call('eth_chainId', [], abort.signal))).code, 'unavailable');
  }));

test('a node that answers too late is named, and so is one whose answer stops', (context) =>
  withNode(async ({ node, rpc }) => {
    for (const kind of ['silent', 'stopped'] as const) {
      const asked = Promise.withResolvers<void>();
      async function* beginning() {
        yield '{"jsonrpc":';
        asked.resolve();
        await new Promise(() => {});
      }
      node.setHttp(() => {
        if (kind === 'stopped') return { body: beginning() };
        asked.resolve();
        return 'hang';
      });
      context.mock.timers.enable({ apis: ['setTimeout'] });
      const fault = faultOf(rpc.call('eth_chainId', [], signal));
      await asked.promise;
      context.mock.timers.tick(30_000);
      context.mock.timers.reset();
      assert.equal((await fault).message, `${rpc.name}: no answer within 30000 ms`);
    }
  }));

test('user name and password of the URL are never shown', async () => {
  const rpc = createRpc('http://user:password@127.0.0.1:9/key', createMetrics('test'));
  assert.equal(rpc.name, 'http://127.0.0.1:9');
  assert.doesNotMatch((await faultOf(rpc.call('eth_chainId', [], signal))).message, /user|password|key/);
  await rpc.close();
});

test('any JSON as the answer leads to answers or a Fault, never to another error', () =>
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
