import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { test } from 'node:test';
import { onEachDatabase } from '../kit/each-database.ts';
import { waitUntil } from '../kit/wait.ts';
import { createApiStory } from './api-story.ts';

onEachDatabase(({ database }) => {
  test('a connection that asks for nothing does not hold up the end', async () => {
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
});
