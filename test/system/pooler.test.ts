/**
 * Services whose API reaches PostgreSQL through a real pooler in transaction mode, and everything else directly.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Role } from '../../src/app/roles.ts';
import { sql } from '../../src/store/db/sql.ts';
import { chainbell } from '../cli/chainbell.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { openEventStream } from '../kit/event-stream.ts';
import { hasPgbouncer, startPgbouncer } from '../kit/pgbouncer.ts';
import { startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, SECRET, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const skip = !hasPgbouncer && 'needs pgbouncer (Debian: apt-get install pgbouncer)';

test('the API works through a pooler that gives each transaction another session', { skip }, async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('postgres'));
  const receiver = parts.use(await startReceiver());
  const pooler = parts.use(await startPgbouncer(place.url, 'transaction', { poolSize: 3 }));
  const pooled = { url: pooler.url, sessionUrl: place.url, dataDir: place.dataDir };
  const start = async (...own: Role[]) =>
    parts.use(
      await startTestService({
        ...{ database: pooled, rpc: [chain.url], receivers: [receiver], roles: own },
      }),
    ); // Two API processes share three sessions, so a statement rarely meets the session of the one before.
  const [api, other] = [await start('api'), await start('api')];
  await start('follower', 'delivery');
  const watcher = await createWatcher(api, 'acme');
  const address = freshAddress();
  await watcher.watch({ address, webhookUrl: receiver.url });
  const authorization = `Bearer ${watcher.key}`;
  const url = `${other.apiUrl}/api/notifications/attempts/stream`;
  const stream = parts.use(await openEventStream(url, { key: watcher.key }));

  await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 1n });
  await waitUntil(() => receiver.requests.length === 1);
  // Delivery runs in another process, so the stream hears of the attempt over NOTIFY or finds it itself.
  await waitUntil(() => stream.events.length > 0);

  const keyed = Array.from({ length: 20 }, (_, index) => ({ 'idempotency-key': `key-${index % 5}` }));
  const paths = [
    '/api/notifications/log',
    '/api/notifications/watched-addresses',
    '/api/notifications/limits',
  ];
  const answers = await Promise.all([
    ...[api, other].flatMap(({ apiUrl }) =>
      Array.from({ length: 90 }, async (_, index) => {
        const path = paths[index % paths.length];
        return (await fetch(`${apiUrl}${path}`, { headers: { authorization } })).status;
      }),
    ),
    ...keyed.map(async (headers, index) => {
      const service = index % 2 === 0 ? api : other;
      const body = JSON.stringify({
        records: [{ address, webhook_url: `${receiver.url}?${headers['idempotency-key']}` }],
      });
      const answer = await fetch(`${service.apiUrl}/api/notifications/watched-addresses/bulk`, {
        ...{ method: 'POST', body },
        headers: { ...headers, authorization, 'content-type': 'application/json' },
      });
      return answer.status;
    }),
  ]);
  assert.deepEqual([...new Set(answers)], [200]);
  const database = await place.open();
  const rows = await database.query(sql`select from watched_address limit 100`);
  assert.equal(rows.length, 1 + 5);
  const status = await fetch(`${other.apiUrl}/status`);
  assert.equal(status.status, 200);

  // Commands use the direct connection.
  const env = {
    CHAINBELL_CHAIN_ID: '31337',
    CHAINBELL_CHAIN_RPC: chain.url,
    CHAINBELL_DATABASE_URL: 'postgres://nothing@127.0.0.1:1/here',
    CHAINBELL_DATABASE_SESSION_URL: place.url,
    CHAINBELL_SECRET: SECRET,
  };
  const listed = await chainbell(place.dataDir, env, 'keys', 'list', '--json');
  assert.equal(listed.code, 0, listed.err);
});

test('a direct URL that leads to another database than the pooler is refused', { skip }, async () => {
  await using place = await createTestDatabase('postgres');
  await using elsewhere = await createTestDatabase('postgres');
  await using pooler = await startPgbouncer(elsewhere.url, 'transaction');
  const start = startTestService({
    database: { url: pooler.url, sessionUrl: place.url, dataDir: place.dataDir },
    rpc: ['http://127.0.0.1:1'],
    roles: ['api'],
  });
  await assert.rejects(start, { code: 'invalid', message: /sessionUrl leads to another database/ });
});

test('a process without the role api works without the pooler', { skip }, async () => {
  await using place = await createTestDatabase('postgres');
  await using service = await startTestService({
    database: { url: 'postgres://nothing@127.0.0.1:1/here', sessionUrl: place.url, dataDir: place.dataDir },
    rpc: ['http://127.0.0.1:1'],
    roles: ['delivery'],
  });
  assert.match(await (await fetch(service.metricsUrl)).text(), /chainbell_processes/);
});
