/**
 * The operator API of a running service: two watchers with real webhooks, who never see one another, and the operator who sees
 * and acts for both.
 */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { Writable } from 'node:stream';
import { after, before, test } from 'node:test';
import pino from 'pino';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { openEventStream } from '../kit/event-stream.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService, type TestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const TOKEN = 'f00d'.repeat(8);
const own = new AsyncDisposableStack();
const logged: Record<string, unknown>[] = [];
let chain: Chain;
let receiver: Receiver;
let service: TestService;

before(async () => {
  chain = own.use(await startChain());
  receiver = own.use(await startReceiver());
  const database = own.use(await createTestDatabase('embedded'));
  const lines = new Writable({
    write(line, _encoding, done) {
      logged.push(JSON.parse(String(line)));
      done();
    },
  });
  service = own.use(
    await startTestService({
      ...{ database, rpc: [chain.url], receivers: [receiver], adminToken: TOKEN },
      log: pino({ level: 'info' }, lines),
    }),
  );
  await service.inSync(chain);
});
after(() => own.disposeAsync());

async function ask<T = unknown>(
  method: string,
  path: string,
  { token = TOKEN, watcher, body }: { token?: string; watcher?: number; body?: unknown } = {},
): Promise<{ status: number; data: T }> {
  const response = await fetch(`${service.apiUrl}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${token}`,
      ...(watcher !== undefined && { 'chainbell-watcher': String(watcher) }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const json: { data: T } = JSON.parse(await response.text());
  return { status: response.status, data: json.data };
}

test('the operator issues keys, acts for each watcher, and sees all deliveries; a watcher sees only its own', async () => {
  const watchers: { watcher: number; key: string; address: string; name: string }[] = [];
  await using stream = await openEventStream(`${service.apiUrl}/api/admin/attempts/stream`, { key: TOKEN });
  for (const name of ['acme', 'beta']) {
    const issued = await ask<{ watcher_id: number; key: string }>('POST', '/api/admin/keys', {
      body: { watcher: name },
    });
    assert.equal(issued.status, 200);
    const { watcher_id: watcher, key } = issued.data;
    const address = freshAddress();
    const body = { address, webhook_url: `${receiver.url}/${name}` };
    const created = await ask('POST', '/api/notifications/watched-addresses', { watcher, body });
    assert.equal(created.status, 200);
    watchers.push({ watcher, key, address, name });
    await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 7n });
  }
  await waitUntil(() => receiver.requests.length === 2);
  await service.drained();
  for (const { name, key } of watchers) {
    const request = receiver.requests.find(({ path }) => path.endsWith(name));
    assert.equal(request?.headers.authorization, `Bearer ${key}`);
  }

  type Row = { id: number; watcher_id: number; receiver: string; status: string };
  const { data: all } = await ask<Row[]>('GET', '/api/admin/log');
  assert.deepEqual(
    all.toReversed().map((row) => [row.watcher_id, row.receiver, row.status]),
    watchers.map(({ watcher, address }) => [watcher, address, 'delivered']),
  );
  await waitUntil(() => stream.events.length === 2);
  for (const [index, { watcher, key, address }] of watchers.entries()) {
    const [other] = watchers.filter((one) => one.watcher !== watcher);
    const { data: asKey } = await ask<Row[]>('GET', '/api/notifications/log', { token: key });
    const { data: asOperator } = await ask<Row[]>('GET', '/api/notifications/log', { watcher });
    assert.deepEqual(asOperator, asKey);
    assert.deepEqual(
      asKey.map((row) => row.receiver),
      [address],
    );
    // Not with its own key and the other's id, nor by the id of the other's notification.
    const id = all.find((row) => row.watcher_id === other?.watcher)?.id;
    const stolen = await ask('GET', '/api/notifications/log', {
      token: key,
      ...(other !== undefined && { watcher: other.watcher }),
    });
    assert.equal(stolen.status, 400);
    assert.equal((await ask('GET', `/api/notifications/log/${id}`, { token: key })).status, 404);
    assert.equal((await ask('GET', `/api/admin/log/${id}`, { token: key })).status, 401);
    const one = await ask('GET', `/api/admin/log/${all.at(-1 - index)?.id}`);
    assert.equal(one.status, 200);
    const { data: me } = await ask<{ id: number; key: null }>('GET', '/api/notifications/watcher', {
      watcher,
    });
    assert.deepEqual([me.id, me.key], [watcher, null]);
  }

  const [first] = all;
  const redelivered = await ask('POST', `/api/admin/log/${first?.id}/redeliver`);
  assert.equal(redelivered.status, 200);
  await waitUntil(() => receiver.requests.length === 3);
  await waitUntil(() => stream.events.length === 3);
});

test('the operator sees hosts, the configuration without secrets, and reorgs', async () => {
  const { data: status } = await ask<{ nodes: { name: string }[] }>('GET', '/api/admin/status');
  assert.deepEqual(
    status.nodes.map(({ name }) => name),
    [chain.url],
  );
  type Configuration = { secret: string; http: { adminToken: string } };
  const { data: configuration } = await ask<Configuration>('GET', '/api/admin/configuration');
  assert.deepEqual([configuration.secret, configuration.http.adminToken], ['[redacted]', '[redacted]']);
  const head = await chain.head();
  await chain.mine(3);
  await service.inSync(chain);
  await chain.reorg(2);
  await service.inSync(chain);
  const list = () => ask<{ from_block: number; depth: number }[]>('GET', '/api/admin/reorgs');
  await waitUntil(async () => (await list()).data.length > 0);
  const [reorg] = (await list()).data;
  assert.ok(reorg !== undefined && reorg.from_block > head.number && reorg.depth === 2);
});

test('every request of the operator is in the log, and neither the token nor a key is', async () => {
  await waitUntil(() => logged.some(({ path }) => path === '/api/admin/reorgs'));
  const lines = logged.filter(({ msg }) => msg === 'admin.answered');
  const acted = lines.filter(({ watcher }) => watcher !== undefined);
  assert.ok(acted.some(({ method, status }) => method === 'POST' && status === 200));
  assert.ok(acted.some(({ status }) => status === 400));
  assert.ok(lines.some(({ path, status }) => path === '/api/admin/keys' && status === 200));
  assert.ok(
    logged.some(({ msg, path }) => msg === 'admin.stream_opened' && path === '/api/admin/attempts/stream'),
  );
  assert.doesNotMatch(JSON.stringify(logged), new RegExp(`${TOKEN}|cb_live_`));
});

test('a request with two Authorization headers is refused, and no cache may keep what a key reads', async () => {
  const answerAt = (url: string, ...headers: string[]) =>
    new Promise<{ status: number | undefined; cache: string | undefined }>((resolve, reject) => {
      const { hostname, port } = new URL(service.apiUrl);
      const sent = request({ hostname, port, path: url, headers }, (response) => {
        response.resume();
        resolve({ status: response.statusCode, cache: response.headers['cache-control'] });
      });
      sent.once('error', reject).end();
    });
  const own = ['host', 'chainbell.example', 'authorization', `Bearer ${TOKEN}`];
  const answer = (...headers: string[]) => answerAt('/api/admin/keys', ...headers);
  assert.deepEqual(await answer(...own), { status: 200, cache: 'no-store' });
  assert.equal((await answer(...own, 'Authorization', 'Bearer another')).status, 400);
  assert.equal((await answer(...own, 'Host', 'another.example')).status, 400, 'RFC 9112, section 3.2');
  const { key } = await createWatcher(service, 'encoded');
  const keyed = ['host', 'chainbell.example', 'authorization', `Bearer ${key}`];
  for (const [url, status] of [
    ['/api/%6eotifications/watcher', 200],
    ['/api/%6eotifications/watcher?a=%ZZ#%ZZ', 400],
    ['http://chainbell.example/api/notifications/watcher', 200],
  ] as const) {
    assert.deepEqual(await answerAt(url, ...keyed), { status, cache: 'no-store' }, url);
    assert.equal((await answerAt(url, ...keyed, 'Authorization', 'Bearer another')).status, 400, url);
  }
});
