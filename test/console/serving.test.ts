/**
 * How the service serves the console.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { startChain } from '../kit/anvil.ts';
import { buildConsole } from '../kit/console-stage.ts';
import { createTestDatabase } from '../kit/database.ts';
import { startTestService, type TestService } from '../kit/service.ts';

describe('the console', () => {
  const own = new AsyncDisposableStack();
  let service: TestService;
  before(async () => {
    await buildConsole();
    const chain = own.use(await startChain());
    const database = own.use(await createTestDatabase('embedded'));
    service = own.use(await startTestService({ database, rpc: [chain.url] }));
  });
  after(() => own.disposeAsync());

  const get = (path: string, headers: Record<string, string> = {}) =>
    fetch(`${service.apiUrl}${path}`, { headers });
  const assetOf = (page: string, ext: string) =>
    new RegExp(`/console/assets/[\\w-]+\\.${ext}`).exec(page)?.[0] ?? assert.fail(`no ${ext} in ${page}`);

  test('each path that is no file is the page, which is asked for again each time', async () => {
    const texts = new Set<string>();
    for (const path of [
      '/console',
      '/console/',
      '/console/deliveries/17',
      '/console/no/such/page',
      '/console/points/a.b',
    ]) {
      const response = await get(path);
      assert.equal(response.status, 200, path);
      assert.equal(response.headers.get('content-type'), 'text/html; charset=utf-8');
      assert.equal(response.headers.get('cache-control'), 'no-cache');
      texts.add(await response.text());
    }
    assert.equal(texts.size, 1);
  });

  test('every answer has the policy that forbids other hosts and inline code', async () => {
    const page = await (await get('/console')).text();
    for (const path of ['/console', assetOf(page, 'js'), assetOf(page, 'css'), assetOf(page, 'svg')]) {
      const { headers } = await get(path);
      assert.equal(
        headers.get('content-security-policy'),
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
      );
      assert.equal(headers.get('x-content-type-options'), 'nosniff');
      assert.equal(headers.get('referrer-policy'), 'no-referrer');
      assert.equal(headers.get('cross-origin-opener-policy'), 'same-origin');
      assert.equal(headers.get('set-cookie'), null);
    }
    assert.doesNotMatch(page, /<style|\sstyle=|<script(?![^>]*\ssrc=)|\son\w+=|https?:\/\//);
  });

  test('files with a hash are immutable, compressed as the browser asks, and other names don’t exist', async () => {
    const page = await (await get('/console')).text();
    const path = assetOf(page, 'js');
    const plain = await get(path, { 'accept-encoding': 'identity' });
    assert.equal(plain.headers.get('cache-control'), 'public, max-age=31536000, immutable');
    assert.equal(plain.headers.get('content-encoding'), null);
    const text = await plain.text();
    for (const coding of ['br', 'gzip']) {
      const packed = await get(path, { 'accept-encoding': coding });
      assert.equal(packed.headers.get('content-encoding'), coding);
      assert.equal(await packed.text(), text);
    }
    assert.equal((await get('/console/assets/none.js')).status, 404);
    for (const outside of ['/console/..%2Fbuild.ts', '/console/.sources.txt'])
      assert.equal(await (await get(outside)).text(), page, outside);
  });

  test('a path that can’t be decoded leads to a page that says that there is none', async () => {
    for (const path of ['/console/%E0%A4%A', '/console/deliveries/%FF']) {
      const response = await fetch(`${service.apiUrl}${path}`, { redirect: 'manual' });
      assert.equal(response.status, 303, path);
      assert.equal(response.headers.get('location'), '/console/not-found');
    }
    assert.equal((await get('/api/%E0%A4%A')).status, 400);
  });

  test('a page that the browser has already gets 304, and each coding has its tag', async () => {
    const tags = new Set<string>();
    for (const coding of ['identity', 'gzip', 'br']) {
      const tag = (await get('/console', { 'accept-encoding': coding })).headers.get('etag') ?? '';
      tags.add(tag);
      for (const known of [tag, `"other", W/${tag}`, '*']) {
        const again = await get('/console', { 'accept-encoding': coding, 'if-none-match': known });
        assert.deepEqual([again.status, again.headers.get('etag'), await again.text()], [304, tag, '']);
      }
    }
    assert.equal(tags.size, 3);
  });

  test('`http.console: false` switches it off', async () => {
    await using off = new AsyncDisposableStack();
    const chain = off.use(await startChain());
    const database = off.use(await createTestDatabase('embedded'));
    const other = off.use(await startTestService({ database, rpc: [chain.url], console: false }));
    for (const path of ['/console', '/console/assets/x.js'])
      assert.equal((await fetch(`${other.apiUrl}${path}`)).status, 404);
    assert.equal((await fetch(`${other.apiUrl}/livez`)).status, 200);
  });
});
