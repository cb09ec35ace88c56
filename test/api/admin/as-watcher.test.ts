import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { test } from 'node:test';
import { renderOpenApi } from '../../../src/app/render-openapi.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { beginRemoval } from '../../../src/store/watchers/watcher-removal.ts';
import { addressOf, noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { openEventStream } from '../../kit/event-stream.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory, PATH } from '../api-story.ts';
import { type AdminStory, createAdminStory, dataOf, forWatcher, TOKEN } from './admin-story.ts';

const STREAM = '/api/notifications/attempts/stream';
const bodyOf = (number: number) => ({
  address: addressOf(number),
  webhook_url: 'https://one.example/hook',
});
const addressesOf = (json: unknown) => dataOf(json).map(({ address }: { address: string }) => address);
const pathsOf = (json: unknown) => Object(json).errors?.map(({ path }: { path: string }) => path);

/** Every operation on the paths of watchers. */
async function listOperations(): Promise<(readonly [method: 'GET', url: string])[]> {
  const { paths } = JSON.parse(await renderOpenApi()) as { paths: Record<string, object> };
  return Object.entries(paths)
    .filter(([path]) => path.startsWith('/api/notifications/'))
    .flatMap(([path, verbs]) =>
      Object.keys(verbs).map(
        (verb) => [verb.toUpperCase() as 'GET', path.replaceAll(/\{\w+\}/g, '1')] as const,
      ),
    );
}

async function issueTwo(story: AdminStory) {
  return [await story.issue('acme'), await story.issue('beta')] as const;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the operator sees and changes what belongs to the watcher that the header names, and nothing else', async () => {
    const story = createAdminStory(database());
    const { admin, ask } = story;
    const [acme, beta] = await issueTwo(story);
    const headers = forWatcher(acme.watcherId);
    const created = await admin('POST', PATH, { body: bodyOf(1), headers });
    assert.deepEqual([created.status, dataOf(created.json).watcher_id], [200, acme.watcherId]);
    await ask('POST', PATH, { key: beta.key, body: bodyOf(2) });
    for (const [id, addresses] of [
      [acme.watcherId, [addressOf(1)]],
      [beta.watcherId, [addressOf(2)]],
    ] as const)
      assert.deepEqual(addressesOf((await admin('GET', PATH, { headers: forWatcher(id) })).json), addresses);
    assert.deepEqual(addressesOf((await ask('GET', PATH, { key: acme.key })).json), [addressOf(1)]);
    // A record of another watcher is not found.
    const url = `${PATH}/${dataOf(created.json).id}`;
    for (const method of ['GET', 'PATCH', 'DELETE'] as const) {
      const options = { headers: forWatcher(beta.watcherId), ...(method === 'PATCH' && { body: {} }) };
      assert.equal((await admin(method, url, options)).status, 404, method);
    }
    assert.equal((await admin('DELETE', url, { headers })).status, 200);
  });

  test('every path of watchers checks the header with the token, and refuses it with a key', async () => {
    const story = createAdminStory(database());
    const [acme] = await issueTwo(story);
    const without = createApiStory(database());
    const operations = await listOperations();
    assert.ok(operations.length > 20);
    for (const [method, url] of operations) {
      const what = `${method} ${url}`;
      const bare = await story.admin(method, url);
      assert.deepEqual([bare.status, pathsOf(bare.json)], [400, ['/chainbell-watcher']], what);
      for (const named of ['', 'acme', '-1', '1e0', '1, 2', '0x1', '١']) {
        const { status, json } = await story.admin(method, url, { headers: forWatcher(named) });
        assert.deepEqual([status, pathsOf(json)], [400, ['/chainbell-watcher']], `${what}: ${named}`);
      }
      for (const named of ['0', '77', '9'.repeat(15)]) {
        const { status, json } = await story.admin(method, url, { headers: forWatcher(named) });
        const body = { success: false, statusCode: 404, statusMessage: 'Watcher not found' };
        assert.deepEqual([status, json], [404, body], `${what}: ${named}`);
      }
      const headers = forWatcher(acme.watcherId);
      const withKey = await story.ask(method, url, { key: acme.key, headers });
      assert.deepEqual([withKey.status, pathsOf(withKey.json)], [400, ['/chainbell-watcher']], what);
      for (const key of [undefined, `${TOKEN}x`, TOKEN.slice(1), `${acme.key}x`]) {
        const { status } = await story.ask(method, url, { ...(key !== undefined && { key }), headers });
        assert.equal(status, 401, what);
      }
      // Without a token in the configuration there is no operator.
      assert.equal((await without.ask(method, url, { key: TOKEN, headers })).status, 401, what);
    }
  });

  test('every request of the operator for a watcher is logged with it, a refused one too, and none of a key', async () => {
    const story = createAdminStory(database());
    const { admin, ask, audited, logged } = story;
    const [acme] = await issueTwo(story);
    await admin('GET', `${PATH}?limit=1`, { headers: forWatcher(acme.watcherId) });
    await admin('POST', PATH, { body: { address: 1 }, headers: forWatcher(acme.watcherId) });
    await admin('GET', PATH, { headers: forWatcher(77) });
    await admin('GET', PATH);
    await ask('GET', PATH, { key: `${TOKEN}x`, headers: forWatcher(acme.watcherId) });
    await ask('GET', PATH, { key: acme.key, headers: forWatcher('x') });
    await ask('GET', PATH, { key: acme.key });
    await ask('GET', PATH);
    assert.deepEqual(audited(), [
      ['GET', PATH, 200, acme.watcherId],
      ['POST', PATH, 400, acme.watcherId],
      ['GET', PATH, 404, 77],
      ['GET', PATH, 400, undefined],
      ['GET', PATH, 401, acme.watcherId],
      ['GET', PATH, 400, undefined],
    ]);
    assert.ok(!JSON.stringify(logged).includes(TOKEN));
  });

  test('the operator may act for a suspended watcher, but not for one that is being deleted', async () => {
    const story = createAdminStory(database());
    const [{ watcherId }] = await issueTwo(story);
    const headers = forWatcher(watcherId);
    await story.admin('POST', `/api/admin/watchers/${watcherId}/suspend`);
    assert.equal((await story.admin('POST', PATH, { body: bodyOf(1), headers })).status, 200);
    await beginRemoval(database(), watcherId, noon);
    const { status, json } = await story.admin('GET', PATH, { headers });
    assert.deepEqual([status, Object(json).statusMessage], [404, 'The watcher is being deleted']);
  });

  test('an idempotency key of the operator and the same one of the watcher are two', async () => {
    const story = createAdminStory(database());
    const { admin, ask } = story;
    const [{ key, watcherId }, other] = await issueTwo(story);
    const once = { 'idempotency-key': 'import-1' };
    const headers = { ...once, ...forWatcher(watcherId) };
    assert.equal((await ask('POST', PATH, { key, body: bodyOf(1), headers: once })).status, 200);
    const first = await admin('POST', PATH, { body: bodyOf(2), headers });
    assert.equal(first.status, 200);
    assert.equal((await admin('POST', PATH, { body: bodyOf(2), headers })).text, first.text);
    assert.equal((await admin('POST', PATH, { body: bodyOf(3), headers })).status, 409);
    // The same key for another watcher is another request.
    const others = { ...once, ...forWatcher(other.watcherId) };
    assert.equal((await admin('POST', PATH, { body: bodyOf(3), headers: others })).status, 200);
    // Nor can a watcher name the operator's keys.
    for (const name of ['operator import-1', 'operator%20import-1']) {
      const { status } = await ask('POST', PATH, {
        ...{ key, body: bodyOf(4) },
        headers: { 'idempotency-key': name },
      });
      assert.equal(status, name.includes(' ') ? 400 : 200);
    }
    const { json } = await admin('GET', PATH, { headers: forWatcher(watcherId) });
    assert.deepEqual(addressesOf(json).toSorted(), [1, 2, 4].map(addressOf));
  });

  test('the limits of the watcher apply to what the operator stores for it', async () => {
    const story = createAdminStory(database(), { limits: { records: 1 } });
    const [{ key, watcherId }] = await issueTwo(story);
    await database().query(sql`update record_counting set is_counted = true`);
    const headers = forWatcher(watcherId);
    assert.equal((await story.admin('POST', PATH, { body: bodyOf(1), headers })).status, 200);
    assert.equal((await story.admin('POST', PATH, { body: bodyOf(2), headers })).status, 409);
    assert.equal((await story.ask('POST', PATH, { key, body: bodyOf(2) })).status, 409);
  });

  test('a stream of changes by the operator stores for the named watcher, and ends when that is deleted', async () => {
    const story = createAdminStory(database());
    await using parts = new AsyncDisposableStack();
    parts.defer(() => story.api.close());
    const [{ watcherId }, other] = await issueTwo(story);
    const url = `${await story.api.listen({ host: '127.0.0.1', port: 0 })}${PATH}/bulk`;
    const headers = {
      ...{ authorization: `Bearer ${TOKEN}`, 'content-type': 'application/x-ndjson' },
      ...forWatcher(watcherId),
    };
    const line = (number: number) => `${JSON.stringify(bodyOf(number))}\n`;
    const stored = await fetch(url, { method: 'POST', headers, body: line(1) });
    assert.equal(JSON.parse(await stored.text()).data.watcher_id, watcherId);
    assert.deepEqual(dataOf((await story.ask('GET', PATH, { key: other.key })).json), []);

    const stream = request(url, { method: 'POST', agent: false, headers });
    const responded = once(stream, 'response');
    stream.write(line(2));
    await waitUntil(() => story.clock.waits().includes(2_500));
    await beginRemoval(database(), watcherId, noon);
    story.clock.advance(2_500);
    const [response] = await responded;
    assert.equal(response.statusCode, 404);
    stream.on('error', () => {}).destroy();
    const rows = await database().query(sql`select from watched_address`);
    assert.equal(rows.length, 1);
  });

  test('test webhooks of the operator and of the watcher are counted apart', async () => {
    const story = createAdminStory(database());
    const [{ key, watcherId }] = await issueTwo(story);
    const { json } = await story.ask('POST', PATH, { key, body: bodyOf(1) });
    const url = `${PATH}/${dataOf(json).id}/test`;
    const headers = forWatcher(watcherId);
    const asWatcher = async () => (await story.ask('POST', url, { key })).status;
    const asOperator = async () => (await story.admin('POST', url, { headers })).status;
    for (const ask of [asWatcher, asOperator]) {
      for (let count = 0; count < 10; count += 1) assert.equal(await ask(), 200);
      assert.equal(await ask(), 429);
    }
  });

  test('no test webhook is sent for a suspended watcher, and the answer says why', async () => {
    const sent: string[] = [];
    const story = createAdminStory(database(), {}, async ({ id }) => {
      sent.push(id);
      const request = { url: 'https://one.example/hook', headers: {}, body: '{}' };
      return { outcome: 'success', status: 200, durationMs: 1, responseText: '', request };
    });
    const [{ key, watcherId }] = await issueTwo(story);
    const { json } = await story.ask('POST', PATH, { key, body: bodyOf(1) });
    const { id } = dataOf(json);
    const ask = () => story.admin('POST', `${PATH}/${id}/test`, { headers: forWatcher(watcherId) });
    await story.admin('POST', `/api/admin/watchers/${watcherId}/suspend`);
    const refused = await ask();
    assert.deepEqual([refused.status, sent], [409, []]);
    assert.match(Object(refused.json).statusMessage, /is suspended, so nothing is sent/);
    await story.admin('POST', `/api/admin/watchers/${watcherId}/resume`);
    assert.equal((await ask()).status, 200);
    assert.deepEqual(sent, [id]);
  });

  test('streams of the operator take no slot of a watcher, and end when the watcher is deleted', async () => {
    const story = createAdminStory(database());
    await using parts = new AsyncDisposableStack();
    parts.defer(() => story.api.close());
    const [{ key, watcherId }] = await issueTwo(story);
    const url = `${await story.api.listen({ host: '127.0.0.1', port: 0 })}${STREAM}`;
    const open = async (options: Parameters<typeof openEventStream>[1]) => {
      const stream = await openEventStream(url, options);
      parts.use(stream);
      return stream;
    };
    const asOperator = { key: TOKEN, headers: forWatcher(watcherId) };
    for (let count = 0; count < 6; count += 1) assert.equal((await open(asOperator)).status, 200);
    for (let count = 0; count < 5; count += 1) assert.equal((await open({ key })).status, 200);
    assert.equal((await open({ key })).status, 429);
    const last = await open(asOperator);
    assert.equal(last.status, 200);
    await beginRemoval(database(), watcherId, noon);
    let isEnded = false;
    void last.ended.then(() => {
      isEnded = true;
    });
    await waitUntil(() => {
      story.clock.advance(500);
      return isEnded;
    });
  });
});
