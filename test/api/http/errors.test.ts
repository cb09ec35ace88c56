import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import { mock, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import pino from 'pino';
import { Fault } from '../../../src/core/fault.ts';
import type { Sql } from '../../../src/store/db/sql.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory, PATH } from '../api-story.ts';

const valid = { address: `0x${'ab'.repeat(20)}`, webhook_url: 'https://hooks.example.com/a' };

onSampledDatabase(import.meta.url, ({ database }) => {
  test('an unknown path answers 404 in the form of its part of the API (spec 7)', async () => {
    const { ask, askUndescribed } = createApiStory(database());
    assert.deepEqual((await ask('GET', '/api/nothing?a=b')).json, {
      statusCode: 404,
      statusMessage: 'No such path: /api/nothing',
    });
    const wrapped = await ask('POST', '/api/notifications/nothing');
    assert.equal(wrapped.status, 404);
    assert.deepEqual(wrapped.json, {
      success: false,
      statusCode: 404,
      statusMessage: 'No such path: /api/notifications/nothing',
    });
    const spoilt = await ask('GET', '/api/%');
    assert.deepEqual(spoilt.json, {
      statusCode: 400,
      statusMessage: "Invalid request: '/api/%' is not a valid url component",
    });
    const long = await askUndescribed('GET', `/api/price/${'x'.repeat(200)}`);
    assert.deepEqual([long.status, long.json], [414, { statusCode: 414, statusMessage: 'URI Too Long' }]);
  });

  test('a known path refuses other methods and lists its own', async () => {
    const { ask } = createApiStory(database());
    const cases = [
      ['PUT', PATH, 'GET, HEAD, POST'],
      ['DELETE', PATH, 'GET, HEAD, POST'],
      ['PATCH', PATH, 'GET, HEAD, POST'],
      ['POST', `${PATH}/${randomUUID()}`, 'DELETE, GET, HEAD, PATCH'],
      ['PUT', `${PATH}/${randomUUID()}`, 'DELETE, GET, HEAD, PATCH'],
      ['POST', '/livez', 'GET, HEAD'],
    ] as const;
    for (const [method, url, allow] of cases) {
      const { status, headers, json } = await ask(method, url, { body: 'no json' });
      assert.equal(status, 405, `${method} ${url}`);
      assert.equal(headers.allow?.split(', ').sort().join(', '), allow);
      const answer = { statusCode: 405, statusMessage: `${method} is not allowed here` };
      assert.deepEqual(json, url.startsWith('/api/') ? { success: false, ...answer } : answer);
    }
  });

  test('every site may read errors about unknown public paths and methods', async () => {
    const { ask } = createApiStory(database());
    for (const [method, url, status] of [
      ['GET', '/api/nothing', 404],
      ['OPTIONS', '/api/nothing', 404],
      ['POST', '/api/price/native', 405],
      ['GET', '/api/%', 400],
    ] as const) {
      const { headers, ...answer } = await ask(method, url);
      assert.equal(answer.status, status, url);
      assert.equal(headers['access-control-allow-origin'], '*', url);
      assert.equal(headers['x-content-type-options'], 'nosniff', url);
    }
    for (const url of ['/livez', '/nothing', PATH]) {
      const { headers } = await ask('GET', url);
      assert.equal(headers['access-control-allow-origin'], undefined, url);
      assert.equal(headers['x-content-type-options'], 'nosniff', url);
    }
  });

  test('a body that is too large, not JSON or of another type is refused with the reason', async () => {
    const { ask, issue } = createApiStory(database());
    const { key } = await issue('acme');
    const large = await ask('POST', PATH, { key, body: { ...valid, padding: 'x'.repeat(64 * 1024) } });
    assert.deepEqual(large.json, { success: false, statusCode: 413, statusMessage: 'Payload Too Large' });
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/xml']) {
      const other = await ask('POST', PATH, {
        key,
        body: JSON.stringify(valid),
        headers: { 'content-type': type },
      });
      assert.equal(other.status, 415, type);
      assert.deepEqual(other.json, {
        success: false,
        statusCode: 415,
        statusMessage: 'Unsupported Media Type: send Content-Type: application/json',
      });
    }
    for (const body of ['{', '{"a":}', 'nothing', "{'a': 1}"]) {
      const { status, json } = await ask('POST', PATH, { key, body });
      assert.equal(status, 400, body);
      const { errors, ...answer } = json as { errors: { path: string; message: string }[] };
      assert.deepEqual(answer, { success: false, statusCode: 400, statusMessage: 'Invalid request' });
      assert.equal(errors.length, 1);
      assert.match(errors[0]?.message ?? '', /^is not JSON/);
    }
    const latin1 = Buffer.from(
      JSON.stringify({ ...valid, webhook_url: `${valid.webhook_url}/caf\u00E9` }),
      'latin1',
    );
    const packed = { 'content-encoding': 'gzip' };
    for (const [body, headers, message] of [
      [latin1, {}, 'is not UTF-8'],
      [gzipSync(JSON.stringify(valid)), packed, 'must be sent without Content-Encoding'],
    ] as const) {
      const { status, json } = await ask('POST', PATH, { key, body, headers });
      const { errors } = json as { errors: { message: string }[] };
      assert.deepEqual([status, errors.map((one) => one.message)], [400, [message]]);
    }
    const withCharset = { 'content-type': 'application/json; charset=utf-8' };
    assert.equal((await ask('POST', PATH, { key, body: valid, headers: withCharset })).status, 200);
  });

  test('a caller’s request id is used if it is safe to log, otherwise one is created', async () => {
    const { ask } = createApiStory(database());
    const idOf = async (id?: string) =>
      (await ask('GET', '/livez', { headers: id === undefined ? {} : { 'x-request-id': id } })).headers[
        'x-request-id'
      ];
    assert.equal(await idOf('trace-1:a.b_C'), 'trace-1:a.b_C');
    for (const id of [undefined, '', 'a b', 'x'.repeat(129), '"quoted"'])
      assert.match((await idOf(id)) ?? '', /^[0-9a-f-]{36}$/);
    assert.notEqual(await idOf(), await idOf());
    assert.equal(
      (await ask('GET', '/no/such/path', { headers: { 'x-request-id': 'abc' } })).headers['x-request-id'],
      'abc',
    );
  });

  test('internal errors are not shown to callers', async () => {
    const failWith = (error: Error) => ({ checks: async () => ({}), status: () => Promise.reject(error) });
    const bug = await createApiStory(database(), failWith(new Error('password=hunter2'))).ask(
      'GET',
      '/status',
    );
    assert.deepEqual(bug.json, { statusCode: 500, statusMessage: 'Internal Server Error' });
    const away = new Fault('unavailable', 'database: connect ECONNREFUSED 10.0.0.5:5432');
    const unavailable = await createApiStory(database(), failWith(away)).ask('GET', '/status');
    assert.deepEqual(unavailable.json, { statusCode: 503, statusMessage: 'Service Unavailable' });
    assert.equal(unavailable.headers['retry-after'], '5');
  });

  test('a client that hangs up within its body is no error of the service', async () => {
    const events: string[] = [];
    const write = (line: string) => {
      const { level, msg } = JSON.parse(line) as { level: number; msg: string };
      events.push(`${level} ${msg}`);
    };
    const log = pino({ level: 'debug' }, { write });
    const { api, issue } = createApiStory(database(), undefined, undefined, { log });
    const { key } = await issue('acme');
    const reading = Promise.withResolvers<void>();
    api.addHook('preParsing', (_request, _reply, _body, done) => {
      reading.resolve();
      done();
    });
    const { port } = new URL(await api.listen({ host: '127.0.0.1', port: 0 }));
    try {
      const headers = `Authorization: Bearer ${key}\r\nContent-Type: application/x-ndjson\r\nContent-Length: 9`;
      const socket = connect(Number(port), '127.0.0.1');
      socket.write(`POST ${PATH}/bulk HTTP/1.1\r\nHost: a\r\n${headers}\r\n\r\n{`);
      await reading.promise;
      socket.destroy();
      await waitUntil(() => events.some((event) => /http\.(aborted|failed)/.test(event)));
      assert.deepEqual(
        events.filter((event) => !event.endsWith('http.answered')),
        ['20 http.aborted'],
      );
    } finally {
      await api.close();
    }
  });

  test('a body that does not arrive in time is cut off', async () => {
    const { key } = await createApiStory(database()).issue('acme');
    const authenticated = Promise.withResolvers<void>();
    const { api } = createApiStory({
      ...database(),
      async query<Row>(statement: Sql) {
        const rows = await database().query<Row>(statement);
        authenticated.resolve();
        return rows;
      },
    });
    const { port } = new URL(await api.listen({ host: '127.0.0.1', port: 0 }));
    mock.timers.enable({ apis: ['setTimeout'] });
    const socket = connect(Number(port), '127.0.0.1');
    try {
      const headers = `Authorization: Bearer ${key}\r\nContent-Type: application/json\r\nContent-Length: 9`;
      socket.write(`POST ${PATH} HTTP/1.1\r\nHost: a\r\n${headers}\r\n\r\n{`);
      const closed = once(socket, 'close');
      let isClosed = false;
      void closed.then(() => {
        isClosed = true;
      });
      // Before that, the driver's own time limits would end first.
      await authenticated.promise;
      for (let turns = 0; !isClosed && turns < 100_000; turns += 1) {
        mock.timers.tick(30_000);
        await new Promise(setImmediate);
      }
      assert.ok(isClosed);
    } finally {
      mock.timers.reset();
      socket.destroy();
      await api.close();
    }
  });
});
