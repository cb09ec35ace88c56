/**
 * Receivers that misbehave, against the real sender and against the whole service.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { Address } from '../../src/core/hex.ts';
import type { Resolver } from '../../src/delivery/resolver.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startChain } from '../kit/anvil.ts';
import { type Credentials, createAuthority } from '../kit/certificates.ts';
import { createTestDatabase } from '../kit/database.ts';
import { type Answer, startReceiver } from '../kit/receiver.ts';
import { messageTo, openSender } from '../kit/sender.ts';
import { createWatcher, freshAddress, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';
import type { Abuse } from './abuse.ts';
import { type Hostile, hostileReceivers } from './hostile.ts';
import { createRandom } from './random.ts';

const never = new AbortController().signal;
/** Stands for the limit of 10 s, where a timeout is expected and where it is not. */
const SHORT_MS = 1_000;
const PATIENT_MS = 8_000;
const TRUE_LIMIT_MS = 10_000;
/** Far below a body of a gigabyte, and far above the memory that a run leaves to the garbage collector. */
const GROWTH_MIB_MAX = 256;

/** One attempt ends with the required outcome, makes one request, and doesn't affect the next message. */
const alone = ({ name, answer, outcome, status }: Hostile): Abuse => ({
  name: `a receiver that ${name} counts as ${outcome}, once, and the next message arrives`,
  async commit() {
    await using receiver = await startReceiver({ answer: () => answer() });
    await using sender = openSender([receiver], {
      timeoutMs: outcome === 'timeout' ? SHORT_MS : PATIENT_MS,
    });
    const result = await sender.send(messageTo(receiver.url), never);
    assert.deepEqual([result.outcome, result.status], [outcome, status]);
    assert.equal(receiver.requests.length, 1);
    receiver.setAnswer({ status: 201 });
    const next = await sender.send(messageTo(receiver.url), never);
    assert.deepEqual([next.outcome, next.status], ['success', 201]);
    // An endless response would hold its connection forever. Only the good connection may remain.
    await waitUntil(() => receiver.openCount() <= 1, { describe: 'the bad connection to end' });
    return `${result.outcome} ${result.status ?? ''} after ${result.durationMs} ms`;
  },
});

const redirects: Abuse = {
  name: 'no redirect is followed, not even to a listener that the policy allows',
  async commit() {
    await using secret = await startReceiver();
    await using receiver = await startReceiver();
    await using sender = openSender([secret, receiver]);
    for (const status of [301, 302, 303, 307, 308]) {
      receiver.setAnswer({ status, headers: { location: secret.url } });
      const result = await sender.send(messageTo(receiver.url), never);
      assert.deepEqual([result.outcome, result.status], ['http_3xx', status]);
    }
    assert.equal(secret.connectionCount(), 0);
    return '0 connections to where the redirects point';
  },
};

const unasked: Abuse = {
  name: 'an unsolicited answer does not count as the answer to the next message',
  async commit() {
    const empty = 'content-length: 0\r\n\r\n';
    const both = { raw: `HTTP/1.1 503 No\r\n${empty}HTTP/1.1 200 OK\r\n${empty}` };
    await using receiver = await startReceiver({ answer: (_, index) => (index === 0 ? both : 'hang') });
    await using sender = openSender([receiver], { timeoutMs: SHORT_MS });
    const first = await sender.send(messageTo(receiver.url), never);
    const second = await sender.send(messageTo(receiver.url), never);
    assert.deepEqual([first.outcome, second.outcome], ['http_5xx', 'timeout']);
    assert.equal(receiver.requests.length, 2);
    return `${first.outcome}, then ${second.outcome}`;
  },
};

const gigabytes: Abuse = {
  name: 'bodies of a gigabyte, 32 at once, are not read and take little memory',
  async commit() {
    let writtenBytes = 0;
    async function* flood(): AsyncGenerator<Buffer> {
      const chunk = Buffer.alloc(65_536, 'a');
      for (let bytes = 0; bytes < 2 ** 30; bytes += chunk.length) {
        writtenBytes += chunk.length;
        yield chunk;
      }
    }
    await using receiver = await startReceiver({ answer: () => ({ body: flood() }) });
    await using sender = openSender([receiver]);
    const before = process.memoryUsage().rss;
    const count = 32;
    const results = await Promise.all(
      Array.from({ length: count }, () => sender.send(messageTo(receiver.url), never)),
    );
    for (const { outcome, responseText } of results)
      assert.deepEqual([outcome, responseText], ['success', 'a'.repeat(1024)]);
    await waitUntil(() => receiver.openCount() === 0, { describe: 'the connections to end' });
    const growthMiB = Math.round((process.memoryUsage().rss - before) / 2 ** 20);
    const writtenMiB = Math.round(writtenBytes / 2 ** 20);
    assert(writtenMiB < count * 64, `${writtenMiB} MiB were written`);
    assert(growthMiB < GROWTH_MIB_MAX, `${growthMiB} MiB`);
    return `${writtenMiB} of ${count * 1024} MiB left the receiver, ${growthMiB} MiB more memory`;
  },
};

/** A receiver that closes a keep-alive connection without reading, just when a message arrives; plain and with TLS. */
const closing = (scheme: 'http' | 'https'): Abuse => ({
  name: `a kept ${scheme} connection that ends just as a message is sent causes no failure, and no message is processed twice`,
  async commit() {
    const authority = createAuthority();
    const tls = scheme === 'https' ? { tls: authority.issue(['127.0.0.1']) } : {};
    const random = createRandom(7);
    const processed: string[] = [];
    let known = 0;
    let closed = 0;
    await using receiver = await startReceiver({
      ...tls,
      answer(request): Answer {
        // Messages arrive one at a time, so without a new connection this one used a keep-alive connection.
        const isKept = receiver.connectionCount() === known;
        known = receiver.connectionCount();
        if (isKept && random() < 0.5) {
          closed += 1;
          return random() < 0.5 ? 'reset' : { raw: '', close: 'end' };
        }
        processed.push(request.body);
        return random() < 0.5 ? {} : { body: 'thanks' };
      },
    });
    await using sender = openSender([receiver], { caCertificates: authority.certificate });
    const count = 200;
    for (let id = 1; id <= count; id += 1)
      assert.equal(
        (await sender.send(messageTo(receiver.url, id), never)).outcome,
        'success',
        `message ${id}`,
      );
    assert.deepEqual(
      processed,
      Array.from({ length: count }, (_, index) => `{"id":${index + 1}}`),
    );
    assert(closed > count / 10);
    return `${count} messages, ${closed} connections closed under one, each processed once`;
  },
});

const idle: Abuse = {
  name: 'a server whose idle timeout ends while messages arrive gets each of them once, and none fails',
  async commit() {
    const received: string[] = [];
    const server = createServer((request, response) => {
      received.push(String(request.headers['webhook-id']));
      request.resume();
      // Leaves out Node's Keep-Alive hint, so that the sender cannot know when the connection ends.
      response.setHeader('connection', 'keep-alive').end();
    });
    server.keepAliveTimeout = IDLE_MS;
    server.keepAliveTimeoutBuffer = 0;
    let connections = 0;
    server.on('connection', () => {
      connections += 1;
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    await using parts = new AsyncDisposableStack();
    parts.defer(() => void server.close());
    const { port } = server.address() as net.AddressInfo;
    const sender = parts.use(openSender([{ port }]));
    const random = createRandom(3);
    const count = 200;
    for (let id = 1; id <= count; id += 1) {
      const { outcome } = await sender.send(messageTo(`http://127.0.0.1:${port}/`, id), never);
      assert.equal(outcome, 'success', `message ${id}`);
      await delay(IDLE_MS + Math.round((random() - 0.5) * 4));
    }
    assert.deepEqual(
      received,
      Array.from({ length: count }, (_, index) => String(index + 1)),
    );
    return `${count} messages over ${connections} connections, each received once`;
  },
};
/** The idle timeout of that server. */
const IDLE_MS = 10;

/** A response just before and just after the limit. `limitMs` may replace the real limit. */
const limit = (limitMs: number, marginMs: number): Pick<Abuse, 'commit'> => ({
  async commit() {
    const attempt = async (delayMs: number) => {
      await using receiver = await startReceiver({ answer: { delayMs } });
      await using sender = openSender([receiver], limitMs === TRUE_LIMIT_MS ? {} : { timeoutMs: limitMs });
      return await sender.send(messageTo(receiver.url), never);
    };
    const [early, late] = await Promise.all([attempt(limitMs - marginMs), attempt(limitMs + marginMs)]);
    assert.deepEqual([early.outcome, late.outcome], ['success', 'timeout']);
    return `${early.outcome} after ${early.durationMs} ms, ${late.outcome} after ${late.durationMs} ms`;
  },
});

const handshake: Abuse = {
  name: 'a receiver that never finishes the TLS handshake is a timeout, and its connection ends with the attempt',
  async commit() {
    let openCount = 0;
    const silent = net.createServer((socket) => {
      openCount += 1;
      socket
        .on('error', () => undefined)
        .on('data', () => undefined)
        .on('close', () => {
          openCount -= 1;
        });
    });
    await once(silent.listen(0, '127.0.0.1'), 'listening');
    await using parts = new AsyncDisposableStack();
    parts.defer(() => void silent.close());
    const { port } = silent.address() as net.AddressInfo;
    const sender = parts.use(openSender([{ port }], { timeoutMs: SHORT_MS }));
    const sending = sender.send(messageTo(`https://127.0.0.1:${port}/`), never);
    await waitUntil(() => openCount === 1);
    const { outcome, durationMs } = await sending;
    assert.equal(outcome, 'timeout');
    await waitUntil(() => openCount === 0);
    return `${outcome} after ${durationMs} ms`;
  },
};

const certificates: Abuse = {
  name: 'a certificate must be valid, from a known authority and for the name; otherwise nothing is sent',
  async commit() {
    await using parts = new AsyncDisposableStack();
    const authority = createAuthority();
    const start = async (tls?: Credentials) =>
      parts.use(await startReceiver({ host: '0.0.0.0', ...(tls && { tls }) }));
    const receiver = await start(authority.issue(['hooks.example.com', '127.0.0.1']));
    const expired = await start(authority.issue(['hooks.example.com'], { expired: true }));
    const plain = await start();
    const receivers = [receiver, expired, plain];
    const resolve: Resolver = async () => [{ address: '127.0.0.1', family: 4 }];
    const open = (caCertificates?: string) =>
      parts.use(openSender(receivers, { resolve, ...(caCertificates !== undefined && { caCertificates }) }));
    const trusting = open(authority.certificate);
    const outcomeOf = async (url: string, { send } = trusting) => (await send(messageTo(url), never)).outcome;

    assert.equal(await outcomeOf(`https://hooks.example.com:${receiver.port}/`), 'success');
    assert.equal(await outcomeOf(`https://hooks.example.com.:${receiver.port}/`), 'success');
    assert.equal(await outcomeOf(`https://127.0.0.1:${receiver.port}/`), 'success');
    assert.equal(receiver.requests[0]?.headers.host, `hooks.example.com:${receiver.port}`);
    assert.equal(receiver.requests.length, 3);

    // This variable disables verification for the whole process. The sender must verify nevertheless.
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
    parts.defer(() => {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    });
    const [mistrusting, otherwise] = [open(), open(createAuthority().certificate)];
    for (const [url, sender] of [
      [`https://other.example.com:${receiver.port}/`, trusting],
      [`https://127.0.0.2:${receiver.port}/`, trusting],
      [`https://hooks.example.com:${expired.port}/`, trusting],
      [`https://hooks.example.com:${plain.port}/`, trusting],
      [`https://hooks.example.com:${receiver.port}/`, mistrusting],
      [`https://hooks.example.com:${receiver.port}/`, otherwise],
    ] as const)
      assert.equal(await outcomeOf(url, sender), 'tls', url);
    assert.deepEqual([receiver.requests.length, expired.requests.length, plain.requests.length], [3, 0, 0]);
    return '6 of 6 refused, 0 requests sent';
  },
};

/** All bad receivers at once against the whole service, each with a delivery queue, beside a healthy receiver. */
const together = (patience: 'until the timeouts' | 'until the others'): Pick<Abuse, 'commit'> => ({
  async commit() {
    await using parts = new AsyncDisposableStack();
    const chain = parts.use(await startChain());
    const database = parts.use(await createTestDatabase('postgres'));
    const well = parts.use(await startReceiver());
    const bad: { hostile: Hostile; url: string; port: number; requestCount(): number }[] = [];
    for (const hostile of hostileReceivers) {
      const receiver = parts.use(await startReceiver({ answer: () => hostile.answer() }));
      bad.push({ hostile, ...receiver, requestCount: () => receiver.requests.length });
    }
    const service = parts.use(
      await startTestService({
        ...{ database, rpc: [chain.url, chain.wsUrl], receivers: [well, ...bad] },
        // Anvil 1.7.1 sometimes hangs for good when it is traced while it mines.
        chain: { internalTransfers: 'off' },
      }),
    );
    const watcher = await createWatcher(service, 'acme');
    const pay = (to: Address) => chain.transferNative({ from: chain.accounts[1], to, valueWei: 1n });
    const before = process.memoryUsage().rss;
    const records = new Map<string, Hostile>();
    const targets: Address[] = [];
    for (const { hostile, url } of bad) {
      const address = freshAddress();
      records.set((await watcher.watch({ address, webhookUrl: url })).id, hostile);
      targets.push(address);
    }
    const healthy = freshAddress();
    const healthyRecord = await watcher.watch({ address: healthy, webhookUrl: well.url });
    for (const address of targets) await pay(address);
    await waitUntil(() => bad.every(({ requestCount }) => requestCount() === 1), {
      describe: 'a request at each of them',
    });
    const count = 10;
    for (let paid = 0; paid < count; paid += 1) await pay(healthy);
    await waitUntil(() => well.requests.length === count, {
      describe: 'webhooks at the receiver that is well',
    });
    const findAttempts = () =>
      service.database.query<{ record: string; outcome: string; status: number | null }>(sql`
        select n.watched_address_id as record, a.outcome, a.status from delivery_attempt a
        join notification_status n on n.shard_id = a.shard_id and n.id = a.notification_id
        where n.watched_address_id <> ${healthyRecord.id} order by a.id limit 1000`);
    // The healthy receiver did not wait for the hanging attempts: none of them has timed out yet.
    assert.deepEqual(
      (await findAttempts()).filter(({ outcome }) => outcome === 'timeout'),
      [],
    );
    const isAwaited = ({ outcome }: Hostile) => outcome !== 'timeout' || patience === 'until the timeouts';
    const expected = hostileReceivers.filter(isAwaited).length;
    const attempts = await waitUntil(
      async () => {
        const found = await findAttempts();
        return found.length >= expected && found;
      },
      { describe: 'an end of each attempt' },
    );
    for (const { record, outcome, status } of attempts) {
      const hostile = records.get(record);
      assert.deepEqual([outcome, status ?? undefined], [hostile?.outcome, hostile?.status], hostile?.name);
    }
    assert(bad.every(({ requestCount }) => requestCount() === 1));
    const growthMiB = Math.round((process.memoryUsage().rss - before) / 2 ** 20);
    assert(growthMiB < GROWTH_MIB_MAX, `${growthMiB} MiB`);
    return `${attempts.length} ended as expected, ${count} healthy webhooks meanwhile, ${growthMiB} MiB more memory`;
  },
});

export const receiverAbuses: readonly Abuse[] = [
  ...hostileReceivers.map(alone),
  ...[redirects, unasked, gigabytes, closing('http'), closing('https'), idle, handshake, certificates],
  {
    name: 'an answer shortly before the limit is a success, and shortly after it a timeout',
    ...limit(1_000, 600),
  },
  {
    name: 'an answer after 9.9 s is a success, and after 10.1 s a timeout',
    isLong: true,
    ...limit(TRUE_LIMIT_MS, 100),
  },
  {
    name: 'all bad receivers at once delay no other receiver, in the whole service',
    ...together('until the others'),
  },
  {
    name: 'all bad receivers at once end within their 10 s, in the whole service',
    isLong: true,
    ...together('until the timeouts'),
  },
];
