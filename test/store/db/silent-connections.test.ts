/**
 * Connections that no longer lead anywhere although the server runs.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { startTcpProxy } from '../../kit/tcp-proxy.ts';
import { waitUntil } from '../../kit/wait.ts';

const isLost = (error: unknown) => error instanceof Fault && /was lost on the way/.test(error.message);

async function openBehindProxy() {
  await using parts = new AsyncDisposableStack();
  const place = parts.use(await createTestDatabase('postgres'));
  const url = new URL(place.url);
  const proxy = parts.use(await startTcpProxy({ host: url.hostname, port: Number(url.port) }));
  url.port = String(proxy.port);
  const database = await openDatabase({ url: url.href, dataDir: '' });
  parts.defer(() => database.close());
  const kept = parts.move();
  return { proxy, database, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

test('a statement on a connection that leads nowhere fails, while the session stays and new connections work', async () => {
  await using place = await openBehindProxy();
  const { proxy, database } = place;
  await database.query(sql`select 1`);
  proxy.forget();
  const session = await database.session();
  assert.equal(await session.tryLock(3, 4), true);
  await assert.rejects(database.query(sql`select 1`), isLost);
  assert.deepEqual(await database.query(sql`select 2 as two`), [{ two: 2 }]);
  assert.equal(session.lost.aborted, false);
  await session.close();
});

test('a transaction whose connection leads nowhere fails, and its locks are free', async () => {
  await using place = await openBehindProxy();
  const { proxy, database } = place;
  await database.query(sql`insert into watcher (name, created_at) values ('one', now())`);
  const lock = sql`select from watcher where name = 'one' for update`;
  const broken = database.transaction(async (tx) => {
    await tx.query(lock);
    proxy.forget();
    await tx.query(sql`update watcher set name = 'other'`);
  });
  await assert.rejects(broken, isLost);
  await waitUntil(async () => (await database.query(sql`${lock} skip locked`)).length === 1, {
    describe: 'the lock of the lost transaction',
  });
});

test('statements that take long, and those that wait for others, are answered', async () => {
  await using place = await openBehindProxy();
  const { database } = place;
  const slow = database.transaction(async (tx) => {
    await tx.query(sql`select pg_advisory_xact_lock(1)`);
    // Longer than a connection may be silent.
    await tx.query(sql`select pg_sleep(8)`);
  });
  const waiting = database.query(sql`select pg_advisory_xact_lock(1), 1 as one`);
  await slow;
  assert.equal((await waiting).length, 1);
});
