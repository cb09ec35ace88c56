import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { listenFault } from '../../src/app/listen.ts';

/** The error of a server that tries to listen there. */
async function errorOf(host: string, port: number): Promise<unknown> {
  const server = createServer();
  const failed = once(server, 'error');
  server.listen({ host, port });
  const [error] = await failed;
  return error;
}

test('a server that cannot listen says which setting to change', async () => {
  const used = createServer();
  used.listen({ host: '127.0.0.1', port: 0 });
  await once(used, 'listening');
  const bound = used.address();
  assert.ok(typeof bound === 'object' && bound !== null);
  const { port } = bound;
  const adviceFor = async (host: string) => {
    const { message } = listenFault(await errorOf(host, port), { section: 'http', host, port });
    return message.slice(message.indexOf('. ') + 2);
  };
  assert.match(
    await adviceFor('127.0.0.1'),
    /^Change http\.port \(CHAINBELL_HTTP_PORT\) .*, or stop the program/,
  );
  // Reserved for documentation (RFC 5737), so no machine has it.
  assert.equal(await adviceFor('192.0.2.1'), 'Change http.host (CHAINBELL_HTTP_HOST) or http.port');
  used.close();
});
