import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { STATUS_EXAMPLE } from '../../src/api/ops/status-body.ts';
import { Fault } from '../../src/core/fault.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { waitUntil } from '../kit/wait.ts';
import { createApiStory } from './api-story.ts';

onSampledDatabase(import.meta.url, ({ database }) => {
  test('no cache keeps the state of the service, nor an error in its place', async () => {
    const { ask } = createApiStory(database(), {
      checks: async () => ({ database: { ok: false, message: 'cannot be reached' } }),
      status: () => Promise.reject(new Fault('unavailable', 'not now')),
    });
    const answers = await Promise.all(['/livez', '/readyz', '/status'].map((path) => ask('GET', path)));
    const shown = answers.map(({ status, headers }) => `${status} ${headers['cache-control']}`);
    assert.deepEqual(shown, ['200 no-store', '503 no-store', '503 no-store']);
  });

  test('a connection without a request does not delay a stop', async () => {
    const { api } = createApiStory(database());
    const accepted = once(api.server, 'connection');
    const { port } = new URL(await api.listen({ host: '127.0.0.1', port: 0 }));
    const socket = connect(Number(port), '127.0.0.1');
    await accepted;
    let isClosed = false;
    const closing = api.close().then(() => {
      isClosed = true;
    });
    await waitUntil(() => isClosed);
    await closing;
    socket.destroy();
    assert.equal(api.server.listening, false);
  });

  test('a connection whose request ends during a stop does not delay it', async () => {
    const answering = Promise.withResolvers<typeof STATUS_EXAMPLE>();
    const asked = Promise.withResolvers<void>();
    const { api } = createApiStory(database(), {
      checks: async () => ({}),
      status() {
        asked.resolve();
        return answering.promise;
      },
    });
    const { port } = new URL(await api.listen({ host: '127.0.0.1', port: 0 }));
    const socket = connect({ port: Number(port), host: '127.0.0.1', allowHalfOpen: true });
    socket.resume().write('GET /status HTTP/1.1\r\nHost: a\r\n\r\n');
    await asked.promise;
    let isClosed = false;
    const closing = api.close().then(() => {
      isClosed = true;
    });
    answering.resolve(STATUS_EXAMPLE);
    await waitUntil(() => isClosed);
    await closing;
    socket.destroy();
  });

  test('a response that is still being sent when the server closes is completed', async () => {
    const { api } = createApiStory(database());
    const big = Buffer.alloc(32 * 1024 * 1024, 'a');
    api.get('/big', async () => big);
    const answered = Promise.withResolvers<void>();
    api.server.on('request', (_request, response) => response.once('prefinish', answered.resolve));
    const { port } = new URL(await api.listen({ host: '127.0.0.1', port: 0 }));
    const socket = connect({ port: Number(port), host: '127.0.0.1' });
    socket.pause().write('GET /big HTTP/1.1\r\nHost: a\r\n\r\n');
    await answered.promise;
    const closing = api.close();
    let bytes = 0;
    socket.on('data', (piece: Buffer) => {
      bytes += piece.length;
    });
    socket.resume();
    await Promise.all([closing, once(socket, 'close')]);
    assert.ok(bytes > big.length, `${bytes} of ${big.length} bytes`);
    socket.destroy();
  });
});
