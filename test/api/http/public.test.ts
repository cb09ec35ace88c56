import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { Type } from 'typebox';
import { createLargeBodies, LARGE_BYTES_MAX } from '../../../src/api/http/large-bodies.ts';
import { type Parameters, parameter, required } from '../../../src/api/http/parameters.ts';
import { addPublicRoute, json, jsonText, type PublicRoute, plainText } from '../../../src/api/http/public.ts';
import { Fault } from '../../../src/core/fault.ts';
import { createApiStory } from '../api-story.ts';
import { noDatabase } from '../no-database.ts';
import { countTurns } from '../turns.ts';

const answer = Type.Object({ made: Type.Integer() });

/** An API with one public route that counts how often its response is computed. */
function createStory(route: Partial<PublicRoute<Parameters, undefined>> = {}) {
  const story = createApiStory(noDatabase);
  let made = 0;
  const compute = async () => {
    made += 1;
    return json({ made });
  };
  const basics = { path: '/api/thing', summary: 'A thing', answer, cacheSeconds: 60 };
  addPublicRoute(story.api, { ...basics, compute, ...route });
  return { ...story, ask: story.askUndescribed, made: () => made };
}

describe('an answer', () => {
  test('says its cache time and age, and keeps the same bytes until then', async () => {
    const { ask, clock, made } = createStory();
    const first = await ask('GET', '/api/thing');
    assert.equal(first.status, 200);
    assert.equal(first.text, '{"made":1}');
    assert.equal(first.headers['content-type'], 'application/json; charset=utf-8');
    assert.equal(first.headers['cache-control'], 'public, max-age=60');
    assert.equal(first.headers.age, '0');
    assert.match(first.headers.etag ?? '', /^"[\w-]+"$/);
    clock.advance(59_000);
    const kept = await ask('GET', '/api/thing?utm_source=a');
    assert.equal(kept.text, '{"made":1}');
    assert.equal(kept.headers.age, '59');
    assert.equal(kept.headers.etag, first.headers.etag);
    assert.equal(made(), 1);
    clock.advance(1_000);
    assert.equal((await ask('GET', '/api/thing')).text, '{"made":2}');
  });

  test('is not sent again to a client that has it', async () => {
    const { ask } = createStory();
    const { etag = '' } = (await ask('GET', '/api/thing')).headers;
    for (const known of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
      const { status, text, headers } = await ask('GET', '/api/thing', {
        headers: { 'if-none-match': known },
      });
      assert.equal(status, 304, known);
      assert.equal(text, '');
      const head = await ask('HEAD', '/api/thing', { headers: { 'if-none-match': known } });
      assert.equal(head.status, 304);
      for (const name of ['etag', 'cache-control', 'age', 'content-length', 'transfer-encoding'])
        assert.equal(head.headers[name], headers[name], name);
      assert.equal(headers.etag, etag);
      assert.equal(headers['cache-control'], 'public, max-age=60');
      assert.equal(headers['content-type'], undefined);
    }
    const other = await ask('GET', '/api/thing', { headers: { 'if-none-match': '"other"' } });
    assert.equal(other.status, 200);
  });

  test('has a HEAD with the same headers and no body', async () => {
    const { ask, made } = createStory();
    const head = await ask('HEAD', '/api/thing');
    const get = await ask('GET', '/api/thing');
    assert.equal(head.status, 200);
    assert.equal(head.text, '');
    for (const name of ['content-type', 'content-length', 'etag', 'cache-control', 'age'])
      assert.equal(head.headers[name], get.headers[name], name);
    assert.equal(made(), 1);
  });

  test('with made-up cursors evicts none without, and takes less of the memory', async () => {
    const body = Buffer.alloc(2 ** 20, ' ');
    const made: unknown[] = [];
    const { ask } = createStory({
      parameters: {
        month: required(parameter('a month', (text) => text)),
        cursor: parameter('a cursor', (text) => text),
      },
      async compute({ cursor }) {
        made.push(cursor);
        return { type: 'text/plain', body };
      },
    });
    const whole = '/api/thing?month=2026-01';
    await ask('HEAD', whole);
    for (let number = 1; number <= 260; number += 1) await ask('HEAD', `${whole}&cursor=${number}`);
    made.length = 0;
    for (const cursor of ['', '&cursor=260', '&cursor=1']) await ask('HEAD', whole + cursor);
    assert.deepEqual(made, ['1']);
  });

  test('is compressed if the client accepts it and it saves bytes', async () => {
    const long = JSON.stringify({ made: 1, text: 'a'.repeat(5_000) });
    const { ask } = createStory({ compute: async () => jsonText(long) });
    const plain = await ask('GET', '/api/thing');
    assert.equal(plain.text, long);
    assert.equal(plain.headers.vary, 'accept-encoding');
    assert.equal(plain.headers['content-encoding'], undefined);
    const tags = new Set([plain.headers.etag]);
    for (const coding of ['gzip', 'br'])
      for (const method of ['GET', 'HEAD'] as const) {
        const packed = await ask(method, '/api/thing', { headers: { 'accept-encoding': coding } });
        assert.equal(packed.headers['content-encoding'], coding);
        assert.equal(packed.headers.vary, 'accept-encoding');
        assert.ok(Number(packed.headers['content-length']) < 200);
        tags.add(packed.headers.etag);
      }
    assert.equal(tags.size, 3, 'strong tags differ by coding');
    const known = await ask('GET', '/api/thing', { headers: { 'if-none-match': [...tags].join() } });
    assert.equal(known.status, 304);
    assert.equal(known.headers.vary, 'accept-encoding');
  });

  test('of many pieces arrives complete over a real connection, plain and compressed', async () => {
    const piece = JSON.stringify({ text: 'some piece' }).repeat(4_000);
    const { api } = createStory({
      compute: async () => {
        const body = createLargeBodies(LARGE_BYTES_MAX).open();
        for (let count = 0; count < 40; count += 1) body.add(piece);
        return jsonText(body);
      },
    });
    const origin = await api.listen({ host: '127.0.0.1', port: 0 });
    const whole = Buffer.from(piece.repeat(40));
    for (const coding of ['identity', 'gzip']) {
      const response = await fetch(`${origin}/api/thing`, { headers: { 'accept-encoding': coding } });
      assert.ok(Buffer.from(await response.arrayBuffer()).equals(whole));
    }
    const head = await fetch(`${origin}/api/thing`, {
      method: 'HEAD',
      headers: { 'accept-encoding': 'identity' },
    });
    assert.equal(head.headers.get('content-length'), String(whole.length));
    const socket = connect(Number(new URL(origin).port), '127.0.0.1');
    socket.end('GET /api/thing HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n');
    const received: Buffer[] = [];
    socket.on('data', (bytes) => received.push(bytes));
    await once(socket, 'end');
    const raw = Buffer.concat(received);
    assert.ok(gunzipSync(raw.subarray(raw.indexOf('\r\n\r\n') + 4)).equals(whole));
    await api.close();
  });

  test('of many pieces is sent in as many turns of the event loop', async () => {
    const { ask } = createStory({
      compute: async () => {
        const body = createLargeBodies(LARGE_BYTES_MAX).open();
        body.add('"');
        for (let count = 0; count < 200; count += 1) body.add('0123456789'.repeat(1_000));
        body.add('"');
        return jsonText(body);
      },
    });
    await ask('HEAD', '/api/thing');
    const { turns, result } = await countTurns(() => ask('GET', '/api/thing'));
    assert.equal(result.text.length, 2_000_002);
    assert.ok(turns >= 200, `${turns} turns`);
  });

  test('may be text with additional headers', async () => {
    const { ask } = createStory({
      compute: async () => ({ ...plainText('12.5'), headers: { link: '</x>; rel="next"' } }),
    });
    for (let asked = 0; asked < 2; asked += 1) {
      const { text, headers } = await ask('GET', '/api/thing');
      assert.equal(text, '12.5');
      assert.equal(headers['content-type'], 'text/plain; charset=utf-8');
      assert.equal(headers.link, '</x>; rel="next"');
    }
  });

  test('is served while a new one is computed, if the route allows it', async () => {
    const { ask, clock } = createStory({ staleSeconds: 60 });
    const first = await ask('GET', '/api/thing');
    assert.equal(first.headers['cache-control'], 'public, max-age=60, stale-while-revalidate=60');
    clock.advance(61_000);
    const stale = await ask('GET', '/api/thing');
    assert.equal(stale.text, '{"made":1}');
    assert.equal(stale.headers.age, '61');
    assert.equal((await ask('GET', '/api/thing')).text, '{"made":2}');
  });
});

describe('an error', () => {
  const user = { path: '/api/user/:id?' };
  const id = { ...required(parameter('an id', (text) => text.toLowerCase())), isInPath: true } as const;
  const parameters = { id };

  test('caused by the caller has the body of spec 7, is not cached, and starts no computation', async () => {
    const { ask, made } = createStory({ ...user, parameters });
    for (const url of ['/api/user', '/api/user/', '/api/user?id=1']) {
      const { status, json: body, headers } = await ask('GET', url);
      assert.equal(status, 400, url);
      assert.deepEqual(body, { statusCode: 400, statusMessage: 'Missing id parameter' });
      assert.equal(headers['cache-control'], undefined);
      assert.equal(headers['access-control-allow-origin'], '*');
    }
    assert.equal(made(), 0);
    await ask('GET', '/api/user/A');
    await ask('GET', '/api/user/a');
    assert.equal(made(), 1, 'one key, however it is written');
  });

  test('with status 404 is cached for ten seconds', async () => {
    let made = 0;
    const compute = async () => {
      made += 1;
      throw new Fault('not_found', 'Points not found');
    };
    const { ask, clock } = createStory({ cacheSeconds: 300, compute });
    for (const age of ['0', '9']) {
      const { status, json: body, headers } = await ask('GET', '/api/thing');
      assert.equal(status, 404);
      assert.deepEqual(body, { statusCode: 404, statusMessage: 'Points not found' });
      assert.equal(headers['cache-control'], 'public, max-age=10');
      assert.equal(headers.age, age);
      clock.advance(9_000);
    }
    assert.equal(made, 1);
    await ask('GET', '/api/thing');
    assert.equal(made, 2);
  });

  test('of the service is never cached', async () => {
    let made = 0;
    const compute = async () => {
      made += 1;
      throw made === 1 ? new Fault('unavailable', 'database: at 10.0.0.5') : new Error('password=hunter2');
    };
    const { ask } = createStory({ compute });
    const away = await ask('GET', '/api/thing');
    assert.deepEqual(away.json, { statusCode: 503, statusMessage: 'Service Unavailable' });
    assert.equal(away.headers['cache-control'], undefined);
    assert.equal(away.headers['retry-after'], '5');
    const bug = await ask('GET', '/api/thing');
    assert.deepEqual(bug.json, { statusCode: 500, statusMessage: 'Internal Server Error' });
    assert.equal(made, 2);
  });

  test('for a wrong method names the allowed ones', async () => {
    const { ask } = createStory();
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE'] as const) {
      const { status, json: body, headers } = await ask(method, '/api/thing');
      assert.equal(status, 405);
      assert.deepEqual(body, { statusCode: 405, statusMessage: `${method} is not allowed here` });
      assert.equal(headers.allow?.split(', ').sort().join(), 'GET,HEAD,OPTIONS');
    }
  });
});

describe('browsers of other sites', () => {
  const origin = 'https://dapp.example';

  test('may read public responses and their headers, and send preflight requests', async () => {
    const { ask, made } = createStory();
    const { headers } = await ask('GET', '/api/thing', { headers: { origin } });
    assert.equal(headers['access-control-allow-origin'], '*');
    assert.match(
      headers['access-control-expose-headers'] ?? '',
      /^age, etag, link, retry-after, x-request-id, chainbell-/,
    );
    assert.equal(headers['access-control-allow-credentials'], undefined);
    const preflight = await ask('OPTIONS', '/api/thing', {
      headers: {
        origin,
        'access-control-request-method': 'GET',
        'access-control-request-headers': 'if-none-match',
      },
    });
    assert.equal(preflight.status, 204);
    assert.equal(preflight.text, '');
    assert.equal(preflight.headers['access-control-allow-origin'], '*');
    assert.equal(preflight.headers['access-control-allow-methods'], 'GET, HEAD, OPTIONS');
    assert.equal(preflight.headers['access-control-allow-headers'], '*');
    assert.equal(made(), 1);
  });

  test('may not read responses that need a key', async () => {
    const { ask } = createStory();
    for (const method of ['GET', 'OPTIONS'] as const) {
      const { status, headers } = await ask(method, '/api/notifications/watched-addresses', {
        headers: { origin },
      });
      assert.equal(status, method === 'GET' ? 401 : 405);
      assert.equal(headers['access-control-allow-origin'], undefined);
    }
  });
});

test('requests for made-up users hold up no route without parameters', async () => {
  const waiting = Promise.withResolvers<void>();
  const parameters = { user: required(parameter('a user', (text) => text)) };
  const compute = () => waiting.promise.then(() => json({ made: 1 }));
  const { api, ask } = createStory({ parameters, path: '/api/user', compute });
  const fixed = { summary: 'A thing', answer, cacheSeconds: 60, compute: async () => json({ made: 2 }) };
  addPublicRoute(api, { path: '/api/thing', ...fixed });
  const asked = Array.from({ length: 1_001 }, (_, number) => ask('GET', `/api/user?user=${number}`));
  assert.equal((await Promise.race(asked)).status, 503);
  assert.equal((await ask('GET', '/api/thing')).text, '{"made":2}');
  waiting.resolve();
  const statuses = (await Promise.all(asked)).map(({ status }) => status);
  assert.equal(statuses.filter((status) => status === 200).length, 1_000);
});

test('metrics count hits, stale responses and misses by route', async () => {
  const { ask, clock, metrics } = createStory({ staleSeconds: 60 });
  await ask('GET', '/api/thing');
  await ask('GET', '/api/thing');
  clock.advance(60_000);
  await ask('GET', '/api/thing');
  const text = await metrics.registry.metrics();
  for (const from of ['hit', 'stale', 'miss'])
    assert.ok(text.includes(`chainbell_cache_responses_total{route="/api/thing",from="${from}"} 1\n`), from);
});
