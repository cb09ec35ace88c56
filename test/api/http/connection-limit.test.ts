/**
 * Many connections must not affect the others. The tests use sockets on loopback.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import fastify from 'fastify';
import type { Api } from '../../../src/api/context.ts';
import { limitBodies } from '../../../src/api/http/body-limit.ts';
import { CONNECTIONS_MAX, limitConnections } from '../../../src/api/http/connection-limit.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory } from '../api-story.ts';

type Client = { socket: Socket; text(): string; isClosed(): boolean };

/**
 * A server for three connections. `/held` is answered when `release` is called. The response of `/big` is larger than the
 * sockets' buffers.
 */
async function createStory() {
  const api: Api = fastify({ forceCloseConnections: 'idle' }).withTypeProvider<TypeBoxTypeProvider>();
  const clock = createTestClock();
  const warnings: unknown[] = [];
  const log = Object.assign(silentLog(), { warn: (fields: unknown) => warnings.push(fields) });
  let requestCount = 0;
  limitConnections(api, { clock, log, connectionsMax: 3 });
  limitBodies(api);
  api.server.on('request', () => {
    requestCount += 1;
  });
  const held = Promise.withResolvers<string>();
  api.get('/', async () => 'here');
  api.get('/held', () => held.promise);
  api.get('/big', async () => Buffer.alloc(32 * 1024 * 1024, 'a'));
  api.post('/', async () => 'here');
  const { port } = new URL(await api.listen({ host: '127.0.0.1', port: 0 }));
  const clients: Client[] = [];
  /** Resolves when the server has the connection. Linux has all of 127.0.0.0/8 on loopback. */
  async function open(from = '127.0.0.1'): Promise<Client> {
    const accepted = once(api.server, 'connection');
    const socket = connect({ port: Number(port), host: '127.0.0.1', localAddress: from });
    let text = '';
    let isClosed = false;
    socket
      .setEncoding('utf8')
      .on('data', (piece: unknown) => {
        text += String(piece);
      })
      .on('error', () => {})
      .on('close', () => {
        isClosed = true;
      });
    const client = { socket, text: () => text, isClosed: () => isClosed };
    clients.push(client);
    await accepted;
    return client;
  }
  return {
    /** Resolves when the server has received this many requests. */
    requested: (count: number) => waitUntil(() => requestCount === count),
    ...{ api, clock, warnings, open, release: () => held.resolve('late') },
    async [Symbol.asyncDispose]() {
      for (const { socket } of clients) socket.destroy();
      held.resolve('late');
      await api.close();
    },
  };
}

const get = ({ socket }: Client, path = '/') => socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
const closedOf = (clients: readonly Client[]) => clients.map(({ isClosed }) => isClosed());

test('idle connections and those without a complete header are closed for new ones, the oldest first', async () => {
  await using story = await createStory();
  const { clock, open } = story;
  const silent = await open();
  clock.advance(2_000);
  const begun = await open();
  begun.socket.write('GET / HTTP/1.1\r\n');
  clock.advance(2_000);
  const used = await open();
  get(used);
  await waitUntil(() => used.text().includes('here'));
  clock.advance(2_000);
  for (const [index, gone] of [silent, begun, used].entries()) {
    const newest = await open();
    await waitUntil(gone.isClosed, { describe: `the end of ${index}` });
    get(newest, '/held');
  }
  assert.deepEqual(story.warnings, []);
});

test('a connection of the address with the most connections is closed, and one that has just connected is not', async () => {
  await using story = await createStory();
  const { clock, open } = story;
  const other = await open('127.0.0.2');
  clock.advance(2_000);
  const many = [await open(), await open()];
  clock.advance(2_000);
  const newest = await open('127.0.0.3');
  await waitUntil(() => many[0]?.isClosed());
  const last = await open('127.0.0.4');
  await waitUntil(() => other.isClosed() || many[1]?.isClosed());
  assert.deepEqual(closedOf([newest, last]), [false, false]);
});

test('if all are busy, a connection with a slow body is closed. If all wait for the server, the new one is refused', async () => {
  await using story = await createStory();
  const { clock, open, warnings } = story;
  const busy = [await open(), await open()];
  for (const one of busy) get(one, '/held');
  const slow = await open();
  slow.socket.write('POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nContent-Length: 9\r\n\r\nx');
  await story.requested(3);
  const early = await open();
  await waitUntil(early.isClosed);
  clock.advance(5_000);
  const next = await open();
  get(next, '/held');
  await waitUntil(slow.isClosed);
  await story.requested(4);
  const refused = await open();
  await waitUntil(refused.isClosed);
  assert.deepEqual(warnings, [{ connectionsMax: 3, droppedCount: 1 }]);
  story.release();
  for (const one of [...busy, next]) await waitUntil(() => one.text().includes('late'));
});

test('a connection with too many pipelined requests is closed with its responses', async () => {
  await using story = await createStory();
  const client = await story.open();
  client.socket.write('GET /held HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(33));
  await waitUntil(client.isClosed);
  const fair = await story.open();
  fair.socket.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(32));
  await waitUntil(() => fair.text().split('here').length === 33);
});

test('a connection with an unread response is closed, and one whose response is still being computed is not', async () => {
  await using story = await createStory();
  // Node reads this time limit for each connection.
  story.api.server.timeout = 50;
  const waiting = await story.open();
  get(waiting, '/held');
  const accepted = once(story.api.server, 'connection');
  const unread = await story.open();
  const [served] = (await accepted) as [Socket];
  unread.socket.pause();
  get(unread, '/big');
  await once(served, 'close');
  story.release();
  await waitUntil(() => waiting.text().includes('late'));
});

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the limits of the API', async () => {
    const { server } = createApiStory(database()).api;
    const { maxConnections, timeout, headersTimeout } = server;
    assert.deepEqual(
      { maxConnections, timeout, headersTimeout },
      { maxConnections: CONNECTIONS_MAX + 512, timeout: 30_000, headersTimeout: 15_000 },
    );
  });
});
