/**
 * Bodies that arrive slowly, on every kind of route, sent as bytes on a socket.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { mock, test } from 'node:test';
import type { Api } from '../../../src/api/context.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory, PATH } from '../api-story.ts';

const JSON_TYPE = 'Content-Type: application/json\r\n';
const LINES = 'Content-Type: application/x-ndjson\r\n';
/** Requests whose body no handler reads. */
const slow: [name: string, head: string, status: RegExp][] = [
  ['a GET', `GET /livez HTTP/1.1\r\n${JSON_TYPE}`, / 200 /],
  ['a public GET', `GET /api/price/native HTTP/1.1\r\n${JSON_TYPE}`, / 200 /],
  ['a missing key', `POST ${PATH} HTTP/1.1\r\n${JSON_TYPE}`, / 401 /],
  ['lines without a key', `POST ${PATH}/bulk HTTP/1.1\r\n${LINES}`, / 401 /],
  ['lines to another route', `POST ${PATH} HTTP/1.1\r\n${LINES}`, / 401 /],
  ['an unknown path', `POST /nothing HTTP/1.1\r\n${JSON_TYPE}`, / 404 /],
  ['another method', `PUT /livez HTTP/1.1\r\n${LINES}`, / 405 /],
];
const CHUNKED = 'Transfer-Encoding: chunked\r\n\r\n';

async function listening(api: Api): Promise<() => Socket> {
  const { port } = new URL(await api.listen({ host: '127.0.0.1', port: 0 }));
  return () => connect(Number(port), '127.0.0.1');
}

/** Lets time pass for timers alone until the condition holds, this much in each turn of the event loop. */
async function passTime(isSo: () => boolean, ms = 1_000): Promise<void> {
  for (let turns = 0; !isSo() && turns < 100_000; turns += 1) {
    mock.timers.tick(ms);
    await new Promise(setImmediate);
  }
  assert.ok(isSo());
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a response before the end of the body announces the close, can be read, and then the connection closes', async () => {
    const { api } = createApiStory(database());
    const open = await listening(api);
    try {
      for (const [name, head, status] of slow) {
        const socket = open();
        let answer = '';
        let isClosed = false;
        socket.setEncoding('utf8').on('data', (text: unknown) => {
          answer += String(text);
        });
        socket
          .on('error', () => {})
          .on('close', () => {
            isClosed = true;
          });
        socket.write(`${head}Host: a\r\n${CHUNKED}2\r\n{ \r\n`);
        await waitUntil(() => answer.includes('\r\n\r\n'), { describe: name });
        assert.match(answer, status, name);
        assert.match(answer, /^connection: close\r$/im, name);
        // The server still reads, so bytes that the client sends now don't reset the connection.
        socket.write('2\r\n  \r\n');
        await waitUntil(() => isClosed, { describe: `the end of ${name}` });
      }
    } finally {
      await api.close();
    }
  });

  test('a body without an end is cut off', async () => {
    const { api } = createApiStory(database());
    const open = await listening(api);
    mock.timers.enable({ apis: ['setTimeout'] });
    try {
      for (const [name, head] of slow) {
        const accepted = once(api.server, 'connection');
        const socket = open();
        // The client doesn't read responses, so it doesn't see the end either.
        socket.on('error', () => {}).pause();
        const [served] = (await accepted) as [Socket];
        let isCut = false;
        served.on('close', () => {
          isCut = true;
        });
        socket.write(`${head}Host: a\r\n${CHUNKED}2\r\n{ \r\n`);
        await passTime(() => isCut);
        assert.ok(isCut, name);
        socket.destroy();
      }
    } finally {
      mock.timers.reset();
      await api.close();
    }
  });

  test('a connection is reused after a complete body', async () => {
    const { api, issue } = createApiStory(database());
    const { key } = await issue('acme');
    const open = await listening(api);
    const socket = open();
    let answers = '';
    socket.setEncoding('utf8').on('data', (text: unknown) => {
      answers += String(text);
    });
    const request = `POST ${PATH} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n${JSON_TYPE}Content-Length: 2\r\n\r\n{}`;
    for (const count of [1, 2]) {
      socket.write(request);
      await waitUntil(() => answers.split('HTTP/1.1 400').length === count + 1);
    }
    assert.doesNotMatch(answers, /^connection: close/im);
    socket.destroy();
    await api.close();
  });

  const late: [name: string, path: string, more: string][] = [
    ['to a path of one', PATH, ''],
    ['to a path of many', `${PATH}/bulk`, ''],
    ['after a thousand headers', PATH, 'a:\r\n'.repeat(1_000)],
  ];
  for (const [name, path, more] of late)
    test(`a body that does not arrive in time is answered with 408, and the connection closes: ${name}`, async () => {
      const { api, issue } = createApiStory(database());
      const { key } = await issue('acme');
      const open = await listening(api);
      mock.timers.enable({ apis: ['setTimeout'] });
      try {
        const reading = Promise.withResolvers<void>();
        api.server.once('request', (request) =>
          request.on('newListener', (event: string) => {
            if (event === 'data') reading.resolve();
          }),
        );
        const socket = open();
        let answer = '';
        let isClosed = false;
        socket
          .setEncoding('utf8')
          .on('data', (text: unknown) => {
            answer += String(text);
          })
          .on('close', () => {
            isClosed = true;
            reading.resolve();
          });
        socket.write(
          `POST ${path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${key}\r\n${JSON_TYPE}${more}Content-Length: 9\r\n\r\n{`,
        );
        await reading.promise;
        mock.timers.tick(30_000);
        await passTime(() => answer.includes('}') || isClosed, 0);
        assert.match(answer, / 408 /);
        assert.match(answer, /^connection: close\r$/im);
        assert.deepEqual(JSON.parse(answer.slice(answer.indexOf('\r\n\r\n'))), {
          success: false,
          statusCode: 408,
          statusMessage: 'Request Timeout: the body did not arrive within 30 s',
        });
        await passTime(() => isClosed);
      } finally {
        mock.timers.reset();
        await api.close();
      }
    });
});
