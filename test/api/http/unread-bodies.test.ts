import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { connect, type Socket } from 'node:net';
import { test } from 'node:test';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import fastify from 'fastify';
import { Type } from 'typebox';
import type { Api } from '../../../src/api/context.ts';
import { createLargeBodies, LARGE_BYTES_MAX } from '../../../src/api/http/large-bodies.ts';
import { parameter } from '../../../src/api/http/parameters.ts';
import { addPublicRoute, cacheResponses, jsonText } from '../../../src/api/http/public.ts';
import { createUnreadBodies } from '../../../src/api/http/unread-bodies.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import { createTestClock } from '../../kit/clock.ts';
import { waitUntil } from '../../kit/wait.ts';

const never = new Promise<never>(() => {});
const MEBIBYTE = 1024 * 1024;
/** More than the sockets' buffers hold. */
const BODY_BYTES = 16 * MEBIBYTE;

test('clients that have been reading longest are cut off when the bodies that are read take too much memory', async (context) => {
  const api: Api = fastify({ forceCloseConnections: true }).withTypeProvider<TypeBoxTypeProvider>();
  const unreadBytesMax = 2.5 * BODY_BYTES;
  cacheResponses(api, {
    ...{ clock: createTestClock(), log: silentLog(), metrics: createMetrics('1.2.3') },
    unreadBytesMax,
  });
  addPublicRoute(api, {
    ...{ path: '/api/thing', summary: 'A thing', answer: Type.String(), cacheSeconds: 60 },
    parameters: { name: parameter('a name', (text) => text) },
    compute: async () => {
      const body = createLargeBodies(LARGE_BYTES_MAX).open();
      for (let bytes = 0; bytes < BODY_BYTES; bytes += MEBIBYTE) body.add('x'.repeat(MEBIBYTE));
      return jsonText(body);
    },
  });
  const port = Number(new URL(await api.listen({ host: '127.0.0.1', port: 0 })).port);
  const served: Socket[] = [];
  const clients: Socket[] = [];
  context.after(async () => {
    for (const client of clients) client.destroy();
    await api.close();
  });
  const open = async (name: string): Promise<void> => {
    const accepted = once(api.server, 'connection');
    const client = connect(port, '127.0.0.1').on('error', () => {});
    clients.push(client);
    const [socket] = (await accepted) as [Socket];
    served.push(socket);
    client.write(`GET /api/thing?name=${name} HTTP/1.1\r\nHost: a\r\n\r\n`);
    await once(client, 'readable');
  };
  for (const name of ['a', 'b', 'a', 'c']) await open(name);
  // Closing the first one was not enough, because another client is reading the same body.
  assert.deepEqual(
    served.map(({ destroyed }) => destroyed),
    [true, true, false, false],
  );
  let receivedBytes = 0;
  for await (const piece of clients[3]?.iterator({ destroyOnReturn: false }) ?? []) {
    receivedBytes += (piece as Buffer).length;
    if (receivedBytes > BODY_BYTES) break;
  }
  // What has been read no longer counts.
  await open('d');
  assert.equal(served[2]?.destroyed, false);
});

test('a client that left while its body was made counts for nothing', async (context) => {
  const responses: ServerResponse[] = [];
  const api = fastify({ forceCloseConnections: true });
  api.get('/', (_request, reply) => {
    responses.push(reply.raw);
    return never;
  });
  const port = Number(new URL(await api.listen({ host: '127.0.0.1', port: 0 })).port);
  const clients = [0, 1].map(() => connect(port, '127.0.0.1').on('error', () => {}));
  context.after(async () => {
    for (const client of clients) client.destroy();
    await api.close();
  });
  for (const [index, client] of clients.entries()) {
    client.write('GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    await waitUntil(() => responses.length > index);
  }
  const [reading, gone] = responses;
  assert.ok(reading !== undefined && gone !== undefined);
  const closed = once(gone, 'close');
  clients[1]?.destroy();
  await closed;
  const count = createUnreadBodies(10);
  count({ bytes: 5 }, reading);
  count({ bytes: 10 }, gone);
  assert.equal(reading.req.socket.destroyed, false);
});
