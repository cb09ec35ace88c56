import assert from 'node:assert/strict';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { Fault } from '../../src/core/fault.ts';
import { createSender, type SenderOptions } from '../../src/delivery/send.ts';
import { generateApiKey } from '../../src/domain/api-key.ts';
import { parseCidr } from '../../src/domain/public-address.ts';
import { readSigningKeys, secretText } from '../../src/domain/signature.ts';
import { createAuthority } from '../kit/certificates.ts';
import { createTestClock } from '../kit/clock.ts';
import { type Answer, type Receiver, startReceiver } from '../kit/receiver.ts';
import { SENT_KEY as KEY, messageTo, openSender, type TestSend } from '../kit/sender.ts';
import { waitUntil } from '../kit/wait.ts';

const never = new AbortController().signal;

/** A sender that may reach these receivers on loopback, closed when the test ends. */
function startSender(
  context: TestContext,
  receivers: Receiver[],
  options: Partial<SenderOptions> = {},
): TestSend {
  const sender = openSender(receivers, options);
  context.after(() => sender[Symbol.asyncDispose]());
  return sender.send;
}

async function startPair(
  context: TestContext,
  answer: Answer | ((index: number) => Answer),
  options: Partial<SenderOptions> = {},
): Promise<{ receiver: Receiver; send: TestSend }> {
  const receiver = await startReceiver({
    answer: typeof answer === 'function' ? (_request, index) => answer(index) : answer,
  });
  context.after(() => receiver.close());
  return { receiver, send: startSender(context, [receiver], options) };
}

test('the message arrives as rendered, in one POST', async (context) => {
  const { receiver, send } = await startPair(context, { status: 202, body: 'thanks' });
  const result = await send(messageTo(`${receiver.url}?tenant=1`), never);
  assert.deepEqual(
    { ...result, durationMs: 0 },
    {
      outcome: 'success',
      status: 202,
      durationMs: 0,
      requestCount: 1,
      mayHaveArrived: true,
      responseText: 'thanks',
    },
  );

  const [request] = receiver.requests;
  assert.equal(receiver.requests.length, 1);
  assert.equal(request?.method, 'POST');
  assert.equal(request?.path, '/hook?tenant=1');
  assert.equal(request?.body, '{"id":7}');
  assert.equal(request?.headers.authorization, `Bearer ${KEY}`);
  assert.equal(request?.headers['webhook-id'], '7');
  assert.equal(request?.headers.host, `127.0.0.1:${receiver.port}`);
});

test('only a 2xx is a success, and the outcome names the class of any other status', async (context) => {
  const { receiver, send } = await startPair(context, {});
  const expected = {
    200: 'success',
    204: 'success',
    299: 'success',
    304: 'http_3xx',
    400: 'http_4xx',
    410: 'http_4xx',
  };
  const all = { ...expected, 429: 'http_4xx', 500: 'http_5xx', 503: 'http_5xx' };
  for (const [status, outcome] of Object.entries(all)) {
    receiver.setAnswer({ status: Number(status) });
    const result = await send(messageTo(receiver.url), never);
    assert.deepEqual([result.outcome, result.status], [outcome, Number(status)]);
  }
});

test('a port without a listener is a connect failure', async (context) => {
  const { receiver, send } = await startPair(context, {});
  await receiver.close();
  const { outcome, requestCount } = await send(messageTo(receiver.url), never);
  assert.deepEqual([outcome, requestCount], ['connect', 0]);
});

test('a name without addresses or without an answer is a DNS failure', async (context) => {
  await using receiver = await startReceiver();
  const url = `http://hooks.example.com:${receiver.port}/`;
  const failing = startSender(context, [receiver], { resolve: () => Promise.reject(new Error('ENOTFOUND')) });
  assert.equal((await failing(messageTo(url), never)).outcome, 'dns');
  const silent = startSender(context, [receiver], { resolve: () => new Promise(() => {}), timeoutMs: 2_000 });
  // The timeout of the whole attempt would give it another outcome.
  assert.equal((await silent(messageTo(url), never)).outcome, 'dns');
});

test('a URL that the policy no longer allows is refused without a connection', async (context) => {
  await using receiver = await startReceiver();
  const policy = { allowHttp: false, allowCidrs: [parseCidr('127.0.0.0/8')], ports: [receiver.port] };
  const send = startSender(context, [receiver], { policy });
  for (const url of [
    receiver.url,
    `https://10.0.0.1:${receiver.port}/`,
    'https://127.0.0.1:22/',
    'not a URL',
  ]) {
    const result = await send(messageTo(url), never);
    assert.deepEqual([result.outcome, result.status], ['refused', undefined], url);
  }
  assert.equal(receiver.connectionCount(), 0);
});

test('connections are kept alive, so consecutive messages share few connections', async (context) => {
  const { receiver, send } = await startPair(context, { body: 'ok' });
  for (let count = 0; count < 20; count += 1)
    assert.equal((await send(messageTo(receiver.url), never)).outcome, 'success');
  assert.equal(receiver.connectionCount(), 1);
});

test('a connection is closed after the message that ends when it is 60 s old, so that a change of DNS has effect', async (context) => {
  const clock = createTestClock();
  const { receiver, send } = await startPair(context, { status: 503 }, { clock });
  for (const [ms, connectionCount] of [
    [0, 1],
    [59_999, 1],
    [1, 1],
    [0, 2],
    [59_999, 2],
  ] as const) {
    clock.advance(ms);
    await send(messageTo(receiver.url), never);
    assert.equal(receiver.connectionCount(), connectionCount);
  }
});

test('beyond the limit of idle connections, the one that has been idle longest is closed', async (context) => {
  const receivers = await Promise.all([startReceiver(), startReceiver(), startReceiver()]);
  for (const receiver of receivers) context.after(() => receiver.close());
  const [first, second, third] = receivers;
  const send = startSender(context, receivers, { idleConnectionsMax: 2 });
  for (const { url } of [first, second, first, third, first, second, third])
    assert.equal((await send(messageTo(url), never)).outcome, 'success');
  // The first message to the third receiver closed the connection to the second one, and so on in a circle.
  assert.deepEqual(
    receivers.map((receiver) => receiver.connectionCount()),
    [1, 2, 2],
  );
});

test('a message is repeated at most once, and never after a byte of a response', async (context) => {
  const always = await startPair(context, (index) => (index === 0 ? {} : 'reset'));
  await always.send(messageTo(always.receiver.url), never);
  const again = await always.send(messageTo(always.receiver.url), never);
  assert.deepEqual([again.outcome, again.requestCount], ['network', 2]);
  assert.equal(always.receiver.requests.length, 3);

  const begun = await startPair(
    context,
    (index): Answer => (index === 0 ? {} : { raw: 'HTTP/1.1 2', close: 'end' }),
  );
  await begun.send(messageTo(begun.receiver.url), never);
  const cut = await begun.send(messageTo(begun.receiver.url), never);
  assert.deepEqual([cut.outcome, cut.requestCount], ['network', 1]);
  assert.equal(begun.receiver.requests.length, 2);

  const silent = await startPair(context, (index) => (index === 0 ? {} : 'hang'), { timeoutMs: 150 });
  await silent.send(messageTo(silent.receiver.url), never);
  assert.equal((await silent.send(messageTo(silent.receiver.url), never)).outcome, 'timeout');
  assert.equal(silent.receiver.requests.length, 2);
});

test('a receiver that closes a kept connection 500 ms after the request had it, so that is a failure', async (context) => {
  for (const [ms, outcome, requestCount] of [
    [500, 'success', 2],
    [501, 'network', 1],
  ] as const) {
    const clock = createTestClock();
    const { receiver, send } = await startPair(
      context,
      (index): Answer => {
        if (index === 1) clock.advance(ms);
        return index === 1 ? 'reset' : {};
      },
      { clock },
    );
    await send(messageTo(receiver.url), never);
    const again = await send(messageTo(receiver.url), never);
    assert.deepEqual([again.outcome, again.requestCount], [outcome, requestCount]);
  }
});

test("an origin never has more connections than its limit, and waiting for one doesn't count toward the timeout", async (context) => {
  let openMax = 0;
  const { receiver, send } = await startPair(
    context,
    { delayMs: 200 },
    { connectionsPerOriginMax: 2, timeoutMs: 450 },
  );
  receiver.setAnswer(() => {
    openMax = Math.max(openMax, receiver.openCount());
    return { delayMs: 200 };
  });
  const results = await Promise.all(Array.from({ length: 8 }, () => send(messageTo(receiver.url), never)));
  assert.deepEqual(new Set(results.map(({ outcome }) => outcome)), new Set(['success']));
  assert.equal(openMax, 2);
});

test('an aborted attempt rejects with the reason: before it starts, while it waits, and under way', async (context) => {
  const { receiver, send } = await startPair(context, 'hang', { connectionsPerOriginMax: 1 });
  const stop = new AbortController();
  const underWay = send(messageTo(receiver.url), stop.signal);
  const queued = send(messageTo(receiver.url), stop.signal);
  await receiver.waitFor(1);
  const reason = new Error('stopping');
  stop.abort(reason);
  for (const sending of [underWay, queued, send(messageTo(receiver.url), stop.signal)]) {
    await assert.rejects(sending, (error) => error === reason);
  }
  await waitUntil(() => receiver.openCount() === 0);

  receiver.setAnswer({});
  assert.equal((await send(messageTo(receiver.url), never)).outcome, 'success');
});

for (const [name, first, piece] of [
  ['a reason phrase', 'HTTP/1.1 200 ', 'x'],
  ['empty lines', '', '\r\n'],
] as const) {
  test(`${name} without end before the headers breaks the connection, a kept one too, with TLS or without`, async (context) => {
    let writtenBytes = 0;
    async function* flood(): AsyncGenerator<string> {
      yield first;
      for (const chunk = piece.repeat(32_768); ; writtenBytes += chunk.length) yield chunk;
    }
    const authority = createAuthority();
    for (const tls of [undefined, authority.issue(['127.0.0.1'])]) {
      // Together, the answers before it have more bytes than may come before headers.
      const large: Answer = { body: 'b'.repeat(15_000) };
      const receiver = await startReceiver({
        ...(tls && { tls }),
        answer: (_request, index) => (index < 9 ? large : { raw: flood() }),
      });
      context.after(() => receiver.close());
      const send = startSender(context, [receiver], {
        caCertificates: authority.certificate,
        timeoutMs: 3_000,
      });
      for (let count = 0; count < 9; count += 1)
        assert.equal((await send(messageTo(receiver.url), never)).outcome, 'success');
      writtenBytes = 0;
      const { outcome, requestCount } = await send(messageTo(receiver.url), never);
      assert.deepEqual([outcome, requestCount], ['network', 1]);
      assert.equal(receiver.connectionCount(), 1);
      assert.ok(writtenBytes < 2 ** 24, `${writtenBytes} bytes were written`);
    }
  });
}

test('a 100 Continue ends the attempt, and its status shows why', async (context) => {
  const raw = 'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n';
  const { receiver, send } = await startPair(context, (index): Answer => (index === 1 ? { raw } : {}));
  const answers = [];
  for (let count = 0; count < 3; count += 1) answers.push(await send(messageTo(receiver.url), never));
  assert.deepEqual(
    answers.map(({ outcome, status, requestCount }) => [outcome, status, requestCount]),
    [
      ['success', 200, 1],
      ['network', 100, 1],
      ['success', 200, 1],
    ],
  );
});

test('headers that come together with a large body are read', async (context) => {
  const authority = createAuthority();
  const receiver = await startReceiver({
    tls: authority.issue(['127.0.0.1']),
    answer: { raw: `HTTP/1.1 201 Created\r\nx: y\r\n\r\n${'b'.repeat(1_000_000)}` },
  });
  context.after(() => receiver.close());
  const send = startSender(context, [receiver], { caCertificates: authority.certificate });
  const { outcome, status } = await send(messageTo(receiver.url), never);
  assert.deepEqual([outcome, status], ['success', 201]);
});

test('of a body in many chunks, only the first are read, and the status decides the outcome', async (context) => {
  const chunks = `${'1\r\na\r\n'.repeat(1_000)}0\r\n\r\n`;
  const { receiver, send } = await startPair(context, (index) => ({
    raw: `HTTP/1.1 ${index === 0 ? 200 : 503} x\r\ntransfer-encoding: chunked\r\n\r\n${chunks}`,
  }));
  const results = [
    await send(messageTo(receiver.url), never),
    await send(messageTo(receiver.url), never),
  ].map(({ outcome, status, requestCount, responseText }) => [outcome, status, requestCount, responseText]);
  const read = 'a'.repeat(64);
  assert.deepEqual(results, [
    ['success', 200, 1, read],
    ['http_5xx', 503, 1, read],
  ]);
  await waitUntil(() => receiver.openCount() === 0);
});

test('an attempt that was decided before the abort counts', async (context) => {
  async function* drip(): AsyncGenerator<string> {
    yield 'x';
    await new Promise(() => {});
  }
  const { receiver, send } = await startPair(context, () => ({ body: drip() }));
  const stop = new AbortController();
  // Undici publishes the status line just before the sender sees it.
  const abortSoon = (): unknown => setImmediate(() => stop.abort());
  subscribe('undici:request:headers', abortSoon);
  context.after(() => unsubscribe('undici:request:headers', abortSoon));
  const result = await send(messageTo(receiver.url), stop.signal);
  assert.equal(result.outcome, 'success');
  assert.equal(stop.signal.aborted, true);
});

/** Tells main when it has a request, and answers once main sets flag 0, while main may be blocked. Sets flag 1 when the answer is sent. */
const BLOCKING_RECEIVER = `
  const { parentPort, workerData: { tls, flags } } = require('node:worker_threads');
  const { createServer } = require(tls === undefined ? 'node:http' : 'node:https');
  const server = createServer(tls ?? {}, (request, response) => {
    request.resume().on('end', () => {
      parentPort.postMessage('received');
      Atomics.wait(flags, 0, 0);
      response.on('finish', () => {
        Atomics.store(flags, 1, 1);
        Atomics.notify(flags, 1);
      });
      response.end('thanks');
    });
  });
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));
`;

for (const [name, isEncrypted] of [
  ['without TLS', false],
  ['with TLS', true],
] as const) {
  test(`an answer that arrives while the process is suspended beyond the timeout counts, ${name}`, async (context) => {
    const authority = createAuthority();
    const flags = new Int32Array(new SharedArrayBuffer(12));
    const tls = isEncrypted ? authority.issue(['127.0.0.1']) : undefined;
    const worker = new Worker(BLOCKING_RECEIVER, { eval: true, workerData: { tls, flags } });
    context.after(() => worker.terminate());
    const [port]: number[] = await once(worker, 'message');
    assert.ok(port !== undefined);
    const timeoutMs = 3_000;
    const sender = openSender([{ port }], { caCertificates: authority.certificate, timeoutMs });
    context.after(() => sender[Symbol.asyncDispose]());
    const sending = sender.send(
      messageTo(`${isEncrypted ? 'https' : 'http'}://127.0.0.1:${port}/hook`),
      never,
    );
    await once(worker, 'message');
    Atomics.store(flags, 0, 1);
    Atomics.notify(flags, 0);
    // Blocks this thread, first until the answer is sent, then until the time of the attempt is over.
    Atomics.wait(flags, 1, 0);
    Atomics.wait(flags, 2, 0, timeoutMs);
    const { outcome, responseText } = await sending;
    assert.deepEqual([outcome, responseText], ['success', 'thanks']);
  });
}

test('a request is not written once its time is over, also if nothing was read in between', async (context) => {
  const { receiver, send } = await startPair(context, {}, { timeoutMs: 3_000 });
  const message = messageTo(receiver.url);
  /** Blocks this thread, so that no timer fires. */
  const block = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  let checks = 0;
  const isFresh = () => {
    checks += 1;
    if (checks === 1) block(2_000);
    return checks > 1;
  };
  const renew = async () => {
    block(1_400);
    return message;
  };
  const { outcome, requestCount, mayHaveArrived } = await send(message, never, { isFresh, renew });
  assert.deepEqual([outcome, requestCount, mayHaveArrived], ['timeout', 0, false]);
  assert.equal(receiver.requests.length, 0);
});

test("an attempt whose time ends while the database renews its credentials rejects, and isn't the receiver's timeout", async (context) => {
  // Enough to get as far as that on a busy machine.
  const { receiver, send } = await startPair(context, {}, { timeoutMs: 3_000 });
  const message = messageTo(receiver.url);
  const renew = () => delay(3_500, message);
  await assert.rejects(send(message, never, { isFresh: () => false, renew }), { code: 'unavailable' });
  assert.equal(receiver.requests.length, 0);
});

test('close waits for the attempts under way', async () => {
  await using receiver = await startReceiver({ answer: { delayMs: 100 } });
  const sender = openSender([receiver]);
  const sending = sender.send(messageTo(receiver.url), never);
  await receiver.waitFor(1);
  await sender[Symbol.asyncDispose]();
  assert.equal((await sending).outcome, 'success');
  await waitUntil(() => receiver.openCount() === 0);
});

test('the stored response contains no part of the API key', async (context) => {
  const { receiver, send } = await startPair(context, { body: `\0 {"seen":"Bearer ${KEY}"} ${KEY}` });
  const whole = await send(messageTo(receiver.url), never);
  assert.equal(whole.responseText, '\ufffd {"seen":"Bearer [redacted]"} [redacted]');

  for (const encoding of ['hex', 'base64', 'base64url'] as const) {
    receiver.setAnswer({ body: Buffer.from(KEY).toString(encoding) });
    assert.equal((await send(messageTo(receiver.url), never)).responseText?.includes('[redacted]'), true);
  }

  async function* stall(): AsyncGenerator<string> {
    yield `your key is ${KEY.slice(0, 30)}`;
    await new Promise(() => {});
  }
  receiver.setAnswer(() => ({ body: stall() }));
  assert.equal((await send(messageTo(receiver.url), never)).responseText, 'your key is ');

  receiver.setAnswer({ body: `${'é'.repeat(500)}${KEY.repeat(300)}` });
  const long = await send(messageTo(receiver.url), never);
  assert.equal(long.responseText, `${'é'.repeat(500)}[redacted][redacted][red`);
});

test('a key or signing secret that a receiver quotes is not stored, however it is encoded', async (context) => {
  const { text } = generateApiKey();
  const secret = secretText(readSigningKeys(Buffer.alloc(64, 0xfb)));
  const quotes = [text, secret, encodeURIComponent(secret), secret.replaceAll('/', '\\/'), text.slice(0, 30)];
  const { send, receiver } = await startPair(context, { status: 401, body: quotes.join('; ') });
  const { responseText } = await send(messageTo(receiver.url), never);
  assert.equal(responseText, quotes.map(() => '[redacted]').join('; '));
});

test('a file of certificate authorities without a certificate is refused at the start', () => {
  const policy = { allowHttp: false, allowCidrs: [], ports: [443] };
  const broken = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
  for (const caCertificates of ['', 'no PEM', broken, `${createAuthority().certificate}${broken}`]) {
    assert.throws(
      () => createSender({ policy, caCertificates }),
      (error) => error instanceof Fault && error.code === 'invalid',
    );
  }
});
