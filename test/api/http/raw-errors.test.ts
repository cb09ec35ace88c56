/**
 * Requests that Node's HTTP server refuses before Fastify sees them, sent as bytes on a socket.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory, PATH } from '../api-story.ts';

const CLOSE = 'Host: a\r\nConnection: close\r\n';
const long = 'y'.repeat(20_000);
/** Status, bytes, and the path that decides the form of the response. */
const refused: [status: number, path: string, bytes: string][] = [
  [400, '', 'GARBAGE\r\n\r\n'],
  [400, '', 'GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n'],
  [400, '/api/swap/pairs', `GET /api/swap/pairs HTTP/3.7\r\n${CLOSE}\r\n`],
  [400, PATH, `POST ${PATH} HTTP/1.1\r\n${CLOSE}Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n`],
  [405, '', 'CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n'],
  [405, '/livez', `TRACE /livez HTTP/1.1\r\n${CLOSE}\r\n`],
  [405, '/api/swap/pairs', `TRACE /api/swap/pairs HTTP/1.1\r\n${CLOSE}\r\n`],
  [405, PATH, `TRACE ${PATH} HTTP/1.1\r\n${CLOSE}\r\n`],
  [414, '/api/price/y', `GET /api/price/${'y'.repeat(200)} HTTP/1.1\r\n${CLOSE}\r\n`],
  [417, '/livez', `POST /livez HTTP/1.1\r\n${CLOSE}Expect: nonsense\r\nContent-Length: 0\r\n\r\n`],
  [431, PATH, `GET ${PATH} HTTP/1.1\r\n${CLOSE}X-Long: ${long}\r\n\r\n`],
  [431, '/api/price/y', `GET /api/price/${long} HTTP/1.1\r\n${CLOSE}\r\n`],
];

onSampledDatabase(import.meta.url, ({ database }) => {
  test('errors below Fastify have the specified body, CORS on public paths, and nosniff', async () => {
    const { api } = createApiStory(database());
    const { port } = new URL(await api.listen({ host: '127.0.0.1', port: 0 }));
    try {
      for (const [status, path, bytes] of refused) {
        const socket = connect(Number(port), '127.0.0.1');
        socket.write(bytes);
        const answer = await text(socket);
        const [head = '', body = ''] = answer.split('\r\n\r\n');
        const what = `${bytes.slice(0, 40)}: ${answer}`;
        assert.match(head, new RegExp(`^HTTP/1.1 ${status} `), what);
        assert.match(head, /^x-content-type-options: nosniff$/m, what);
        assert.match(head, /^content-type: application\/json/m, what);
        const isPublic = path.startsWith('/api/') && path !== PATH;
        assert.equal(/^access-control-allow-origin: \*$/m.test(head), isPublic, what);
        const { success, statusCode, statusMessage } = JSON.parse(body);
        assert.deepEqual([success, statusCode], [path === PATH ? false : undefined, status], what);
        assert.equal(typeof statusMessage, 'string');
      }
    } finally {
      await api.close();
    }
  });

  test('a request that does not arrive in time is answered with 408', async () => {
    const { api } = createApiStory(database());
    const { port } = new URL(await api.listen({ host: '127.0.0.1', port: 0 }));
    const accepted = once(api.server, 'connection');
    const socket = connect(Number(port), '127.0.0.1');
    const [served] = await accepted;
    // Simulates Node's timer, which checks every 5 s.
    const late = Object.assign(new Error('Request timeout'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
    api.server.emit('clientError', late, served);
    assert.match(await text(socket), /^HTTP\/1.1 408 .*"statusCode":408,"statusMessage":"Request Timeout: /s);
    await api.close();
  });
});
