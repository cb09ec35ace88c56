import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import net from 'node:net';
import { type TestContext, test } from 'node:test';
import { promisify } from 'node:util';
import { generateApiKey } from '../../src/core/api-key.ts';
import { Fault } from '../../src/core/fault.ts';
import { parseCidr } from '../../src/core/public-address.ts';
import { readSigningKeys, secretText } from '../../src/core/signature.ts';
import type { Message } from '../../src/delivery/payload.ts';
import type { Resolver } from '../../src/delivery/resolver.ts';
import { createSender, type Send, type SenderOptions } from '../../src/delivery/send.ts';
import { createAuthority } from '../kit/certificates.ts';
import { type Answer, type Receiver, startReceiver } from '../kit/receiver.ts';
import { waitUntil } from '../kit/wait.ts';

const KEY = 'wk_live_0123456789_abcdefghijklmnopqrstuvwxyz';
const never = new AbortController().signal;
const toLoopback: Resolver = async () => [{ address: '127.0.0.1', family: 4 }];

function messageTo(url: string): Message {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${KEY}`, 'webhook-id': '7' };
  return { url, headers, body: '{"id":7}' };
}

/** A sender that may reach these receivers on loopback, closed when the test ends. */
function startSender(
  context: TestContext,
  receivers: Receiver[],
  options: Partial<SenderOptions> = {},
): Send {
  const ports = receivers.map(({ port }) => port);
  const policy = { allowHttp: true, allowCidrs: [parseCidr('127.0.0.0/8')], ports };
  const sender = createSender({ policy, ...options });
  context.after(() => sender.close());
  return sender.send;
}

async function startPair(
  context: TestContext,
  answer: Answer | ((index: number) => Answer),
  options: Partial<SenderOptions> = {},
): Promise<{ receiver: Receiver; send: Send }> {
  const receiver = await startReceiver({
    answer: typeof answer === 'function' ? (_request, index) => answer(index) : answer,
  });
  context.after(() => receiver.close());
  return { receiver, send: startSender(context, [receiver], options) };
}

test('the message arrives as it was rendered, as one POST', async (context) => {
  const { receiver, send } = await startPair(context, { status: 202, body: 'thanks' });
  const result = await send(messageTo(`${receiver.url}?tenant=1`), never);
  assert.deepEqual(
    { ...result, durationMs: 0 },
    { outcome: 'success', status: 202, durationMs: 0, responseText: 'thanks' },
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

test('only a 2xx is a success; the status says which failure it was', async (context) => {
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

test('no redirect is followed', async (context) => {
  await using secret = await startReceiver();
  await using receiver = await startReceiver();
  const send = startSender(context, [secret, receiver]);
  for (const status of [301, 302, 303, 307, 308]) {
    receiver.setAnswer({ status, headers: { location: secret.url } });
    const result = await send(messageTo(receiver.url), never);
    assert.deepEqual([result.outcome, result.status], ['http_3xx', status]);
  }
  assert.equal(secret.connectionCount(), 0);
});

test('a receiver that never answers is a timeout, and its connection does not outlive the attempt', async (context) => {
  const answers: Answer[] = [
    'hang',
    { raw: 'HTTP/1.1 200 OK\r\ncontent-le' },
    { raw: 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n' },
  ];
  for (const answer of answers) {
    const { receiver, send } = await startPair(context, answer, { timeoutMs: 150 });
    const result = await send(messageTo(receiver.url), never);
    assert.deepEqual([result.outcome, result.status], ['timeout', undefined]);
    assert.ok(result.durationMs >= 140 && result.durationMs < 2000, `${result.durationMs} ms`);
    await waitUntil(() => receiver.openCount() === 0);
    assert.equal(receiver.requests.length, 1);
  }
});

test('an answer before the deadline is a success, and after it a timeout', async (context) => {
  const patient = await startPair(context, { delayMs: 600 }, { timeoutMs: 1500 });
  assert.equal((await patient.send(messageTo(patient.receiver.url), never)).outcome, 'success');
  const hasty = await startPair(context, { delayMs: 600 }, { timeoutMs: 350 });
  assert.equal((await hasty.send(messageTo(hasty.receiver.url), never)).outcome, 'timeout');
});

test('a receiver that never finishes the TLS handshake is a timeout, and the connection ends with the attempt', async (context) => {
  let openCount = 0;
  const silent = net.createServer((socket) => {
    openCount += 1;
    socket
      .on('data', () => undefined)
      .on('close', () => {
        openCount -= 1;
      });
  });
  await once(silent.listen(0, '127.0.0.1'), 'listening');
  context.after(() => silent.close());
  const { port } = silent.address() as net.AddressInfo;
  const policy = { allowHttp: false, allowCidrs: [parseCidr('127.0.0.0/8')], ports: [port] };
  const send = startSender(context, [], { policy, timeoutMs: 150 });
  const sending = send(messageTo(`https://127.0.0.1:${port}/`), never);
  await waitUntil(() => openCount === 1);
  assert.equal((await sending).outcome, 'timeout');
  await waitUntil(() => openCount === 0);
});

test('a body that drips for ever changes nothing about a 2xx and holds nobody', async (context) => {
  async function* drip(): AsyncGenerator<string> {
    yield 'first drop';
    await new Promise(() => {});
  }
  const { receiver, send } = await startPair(context, () => ({ body: drip() }), { timeoutMs: 5000 });
  const result = await send(messageTo(receiver.url), never);
  assert.deepEqual([result.outcome, result.status, result.responseText], ['success', 200, 'first drop']);
  assert.ok(result.durationMs < 2500, `${result.durationMs} ms`);
  await waitUntil(() => receiver.openCount() === 0);
});

test('the deadline holds for the body too', async (context) => {
  async function* drip(): AsyncGenerator<string> {
    yield 'x';
    await new Promise(() => {});
  }
  const { receiver, send } = await startPair(context, () => ({ status: 500, body: drip() }), {
    timeoutMs: 150,
  });
  const result = await send(messageTo(receiver.url), never);
  assert.equal(result.outcome, 'http_5xx');
  assert.ok(result.durationMs < 450, `${result.durationMs} ms`);
});

test('of a body of a gigabyte only the beginning is read', async (context) => {
  let writtenBytes = 0;
  async function* flood(): AsyncGenerator<Buffer> {
    const chunk = Buffer.alloc(65_536, 'a');
    for (; writtenBytes < 2 ** 30; writtenBytes += chunk.length) yield chunk;
  }
  const { receiver, send } = await startPair(context, () => ({ body: flood() }));
  const result = await send(messageTo(receiver.url), never);
  assert.deepEqual([result.outcome, result.responseText], ['success', 'a'.repeat(1024)]);
  await waitUntil(() => receiver.openCount() === 0);
  assert.ok(writtenBytes < 2 ** 26, `${writtenBytes} bytes`);
});

test('once the status line is there, it decides, however the answer ends', async (context) => {
  const head = 'HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc';
  const answers: Answer[] = [
    { raw: head, close: 'end' },
    { raw: head, close: 'reset' },
    { raw: 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nnot a chunk\r\n' },
    { raw: 'HTTP/1.0 200 OK\r\n\r\nold', close: 'end' },
    { raw: 'HTTP/1.1 204 No Content\r\ncontent-length: 3\r\n\r\nabc' },
  ];
  for (const answer of answers) {
    const { receiver, send } = await startPair(context, answer);
    const result = await send(messageTo(receiver.url), never);
    assert.equal(result.outcome, 'success', JSON.stringify(answer));
    assert.equal(receiver.requests.length, 1);
  }
});

test('a connection that breaks, or what is not HTTP, is a network failure, attempted once', async (context) => {
  const answers: Answer[] = [
    'reset',
    { raw: '', close: 'end' },
    { raw: 'HTTP/1.1 20', close: 'reset' },
    { raw: 'SSH-2.0-server\r\n' },
    { raw: 'HTTP/1.1 099 Low\r\n\r\n' },
    { raw: 'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n' },
    { raw: `HTTP/1.1 200 OK\r\nx: ${'a'.repeat(20_000)}\r\n\r\n` },
    { raw: 'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(1000) },
  ];
  for (const answer of answers) {
    const { receiver, send } = await startPair(context, answer, { timeoutMs: 3000 });
    const result = await send(messageTo(receiver.url), never);
    assert.deepEqual(
      [result.outcome, result.status],
      ['network', undefined],
      JSON.stringify(answer).slice(0, 80),
    );
    assert.equal(receiver.requests.length, 1);
    assert.equal(receiver.connectionCount(), 1);
  }
});

test('interim responses are not the answer', async (context) => {
  const interim = 'HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n';
  const { receiver, send } = await startPair(context, {
    raw: `${interim.repeat(10)}HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok`,
  });
  const result = await send(messageTo(receiver.url), never);
  assert.deepEqual([result.outcome, result.status, result.responseText], ['success', 201, 'ok']);
});

test('nothing listening is a connect failure', async (context) => {
  const { receiver, send } = await startPair(context, {});
  await receiver.close();
  assert.equal((await send(messageTo(receiver.url), never)).outcome, 'connect');
});

test('a name without addresses or without an answer is a DNS failure', async (context) => {
  await using receiver = await startReceiver();
  const url = `http://hooks.example.com:${receiver.port}/`;
  const failing = startSender(context, [receiver], { resolve: () => Promise.reject(new Error('ENOTFOUND')) });
  assert.equal((await failing(messageTo(url), never)).outcome, 'dns');
  const silent = startSender(context, [receiver], { resolve: () => new Promise(() => {}), timeoutMs: 250 });
  const result = await silent(messageTo(url), never);
  assert.equal(result.outcome, 'dns');
  assert.ok(result.durationMs < 250, `${result.durationMs} ms`);
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

test('connections are kept alive: one after the other, many messages take few connections', async (context) => {
  const { receiver, send } = await startPair(context, { body: 'ok' });
  for (let count = 0; count < 20; count += 1)
    assert.equal((await send(messageTo(receiver.url), never)).outcome, 'success');
  assert.equal(receiver.connectionCount(), 1);
});

test('a kept connection that the receiver was just closing costs nothing: the message goes out once more, on a fresh one', async (context) => {
  const answers: Answer[] = ['reset', { raw: '', close: 'end' }];
  for (const answer of answers) {
    const { receiver, send } = await startPair(context, (index) => (index === 1 ? answer : {}));
    assert.equal((await send(messageTo(receiver.url), never)).outcome, 'success');
    assert.equal((await send(messageTo(receiver.url), never)).outcome, 'success');
    assert.equal(receiver.requests.length, 3);
    assert.equal(receiver.connectionCount(), 2);
  }
});

test('a message goes out once more at most, and never after a byte of an answer', async (context) => {
  const always = await startPair(context, (index) => (index === 0 ? {} : 'reset'));
  await always.send(messageTo(always.receiver.url), never);
  assert.equal((await always.send(messageTo(always.receiver.url), never)).outcome, 'network');
  assert.equal(always.receiver.requests.length, 3);

  const begun = await startPair(
    context,
    (index): Answer => (index === 0 ? {} : { raw: 'HTTP/1.1 2', close: 'end' }),
  );
  await begun.send(messageTo(begun.receiver.url), never);
  assert.equal((await begun.send(messageTo(begun.receiver.url), never)).outcome, 'network');
  assert.equal(begun.receiver.requests.length, 2);

  const silent = await startPair(context, (index) => (index === 0 ? {} : 'hang'), { timeoutMs: 150 });
  await silent.send(messageTo(silent.receiver.url), never);
  assert.equal((await silent.send(messageTo(silent.receiver.url), never)).outcome, 'timeout');
  assert.equal(silent.receiver.requests.length, 2);
});

test('an origin never has more connections than its limit, and waiting for one is not part of the time', async (context) => {
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

test('an aborted attempt rejects with the reason, before it begins, in the queue, and under way', async (context) => {
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

test('an attempt that was decided before the abort counts', async (context) => {
  async function* drip(): AsyncGenerator<string> {
    yield 'x';
    await new Promise(() => {});
  }
  const { receiver, send } = await startPair(context, () => ({ body: drip() }));
  const stop = new AbortController();
  // Undici tells of the status line just before it tells the sender.
  const abortSoon = (): unknown => setImmediate(() => stop.abort());
  subscribe('undici:request:headers', abortSoon);
  context.after(() => unsubscribe('undici:request:headers', abortSoon));
  const result = await send(messageTo(receiver.url), stop.signal);
  assert.equal(result.outcome, 'success');
  assert.equal(stop.signal.aborted, true);
});

test('close waits for the attempts under way', async () => {
  await using receiver = await startReceiver({ answer: { delayMs: 100 } });
  const policy = { allowHttp: true, allowCidrs: [parseCidr('127.0.0.0/8')], ports: [receiver.port] };
  const sender = createSender({ policy });
  const sending = sender.send(messageTo(receiver.url), never);
  await receiver.waitFor(1);
  await sender.close();
  assert.equal((await sending).outcome, 'success');
  await waitUntil(() => receiver.openCount() === 0);
});

test('the API key is not in what is kept of an answer, not even a part of it', async (context) => {
  const { receiver, send } = await startPair(context, { body: `\0 {"seen":"Bearer ${KEY}"} ${KEY}` });
  const whole = await send(messageTo(receiver.url), never);
  assert.equal(whole.responseText, '\ufffd {"seen":"Bearer [redacted]"} [redacted]');

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

test('a key or signing secret that a receiver quotes is not kept either, however it was encoded', async (context) => {
  const { text } = generateApiKey();
  const secret = secretText(readSigningKeys(Buffer.alloc(64, 0xfb)));
  const quotes = [text, secret, encodeURIComponent(secret), secret.replaceAll('/', '\\/'), text.slice(0, 30)];
  const { send, receiver } = await startPair(context, { status: 401, body: quotes.join('; ') });
  const { responseText } = await send(messageTo(receiver.url), never);
  assert.equal(responseText, quotes.map(() => '[redacted]').join('; '));
});

test('a certificate must be valid, of a known authority and for the name; nothing is sent otherwise', async (context) => {
  const authority = createAuthority();
  const { cert, key } = authority.issue(['hooks.example.com', '127.0.0.1']);
  await using receiver = await startReceiver({ host: '0.0.0.0', tls: { cert, key } });
  await using expired = await startReceiver({
    tls: authority.issue(['hooks.example.com'], { expired: true }),
  });
  await using plain = await startReceiver();
  const receivers = [receiver, expired, plain];
  const options = { caCertificates: authority.certificate, resolve: toLoopback };
  const send = startSender(context, receivers, options);
  const outcomeOf = async (url: string, sender = send): Promise<string> =>
    (await sender(messageTo(url), never)).outcome;

  assert.equal(await outcomeOf(`https://hooks.example.com:${receiver.port}/`), 'success');
  assert.equal(await outcomeOf(`https://hooks.example.com.:${receiver.port}/`), 'success');
  assert.equal(await outcomeOf(`https://127.0.0.1:${receiver.port}/`), 'success');
  assert.equal(receiver.requests[0]?.headers.host, `hooks.example.com:${receiver.port}`);
  assert.equal(receiver.requests.length, 3);

  const mistrusting = startSender(context, receivers, { resolve: toLoopback });
  const otherwise = startSender(context, receivers, {
    ...options,
    caCertificates: createAuthority().certificate,
  });
  // What would switch verification off for the whole process must not do so here.
  process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
  context.after(() => {
    delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
  });
  assert.equal(await outcomeOf(`https://other.example.com:${receiver.port}/`), 'tls');
  assert.equal(await outcomeOf(`https://127.0.0.2:${receiver.port}/`), 'tls');
  assert.equal(await outcomeOf(`https://hooks.example.com:${expired.port}/`), 'tls');
  assert.equal(await outcomeOf(`https://hooks.example.com:${plain.port}/`), 'tls');
  assert.equal(await outcomeOf(`https://hooks.example.com:${receiver.port}/`, mistrusting), 'tls');
  assert.equal(await outcomeOf(`https://hooks.example.com:${receiver.port}/`, otherwise), 'tls');
  assert.deepEqual([receiver.requests.length, expired.requests.length, plain.requests.length], [3, 0, 0]);
});

test('a file of authorities that holds none is refused at the start', () => {
  const policy = { allowHttp: false, allowCidrs: [], ports: [443] };
  const broken = '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n';
  for (const caCertificates of ['', 'no PEM', broken, `${createAuthority().certificate}${broken}`]) {
    assert.throws(
      () => createSender({ policy, caCertificates }),
      (error) => error instanceof Fault && error.code === 'invalid',
    );
  }
});

test('proxy settings of the environment have no effect', async () => {
  await using proxy = await startReceiver();
  await using receiver = await startReceiver();
  const script = `
    import { parseCidr } from '#root/src/core/public-address.ts';
    import { createSender } from '#root/src/delivery/send.ts';
    const policy = { allowHttp: true, allowCidrs: [parseCidr('127.0.0.0/8')], ports: [${receiver.port}] };
    const { send, close } = createSender({ policy });
    const message = { url: '${receiver.url}', headers: {}, body: '{}' };
    console.log((await send(message, new AbortController().signal)).outcome);
    await close();`.replaceAll('#root', new URL('../..', import.meta.url).href.replace(/\/$/, ''));
  const proxyUrl = `http://127.0.0.1:${proxy.port}`;
  const names = ['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'http_proxy', 'https_proxy', 'all_proxy'];
  const env = { NODE_USE_ENV_PROXY: '1', ...Object.fromEntries(names.map((name) => [name, proxyUrl])) };
  const run = promisify(execFile);
  const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script], { env });
  assert.equal(stdout.trim(), 'success');
  assert.deepEqual([receiver.requests.length, proxy.connectionCount()], [1, 0]);
});
