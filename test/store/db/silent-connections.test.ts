/**
 * Connections that no longer lead anywhere although the server runs.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { shardOfRecord } from '../../../src/domain/shard.ts';
import type { Database, Session } from '../../../src/store/db/db.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { reset } from '../../../src/store/db/silent-connections.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { watchAddress } from '../../kit/chain-story.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { startTcpProxy } from '../../kit/tcp-proxy.ts';
import { waitUntil } from '../../kit/wait.ts';

const LONGER_THAN_SILENT_S = 8;

const isLost = (error: unknown) => error instanceof Fault && /was lost on the way/.test(error.message);

async function openBehindProxy() {
  await using parts = new AsyncDisposableStack();
  const place = parts.use(await createTestDatabase('postgres'));
  const url = new URL(place.url);
  const proxy = parts.use(await startTcpProxy({ host: url.hostname, port: Number(url.port) }));
  url.port = String(proxy.port);
  const opened = await openDatabase({ url: url.href, dataDir: '' });
  parts.defer(() => opened.close());
  // On Citus, other shares have a time limit.
  const database = opened.for('follower');
  const kept = parts.move();
  return {
    proxy,
    database,
    url,
    direct: await place.open(),
    [Symbol.asyncDispose]: () => kept.disposeAsync(),
  };
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

test('a login that acts as another role, as after a rotation of the password, finds its connections that lead nowhere', async () => {
  await using place = await openBehindProxy();
  await using other = await openAsOther(place);
  const [before] = await other.database.query<{ role: string }>(sql`select current_user as role`);
  place.proxy.forget();
  const session = await other.database.session();
  await assert.rejects(other.database.query(sql`select 1`), isLost);
  const [after] = await other.database.query<{ role: string; login: string }>(
    sql`select current_user as role, session_user as login`,
  );
  assert.equal(after?.role, before?.role);
  assert.notEqual(after?.role, after?.login);
  await session.close();
});

test('a transaction whose connection leads nowhere fails, and its locks are free', async () => {
  await using place = await openBehindProxy();
  const { proxy, database } = place;
  let session: Session | undefined;
  await database.query(sql`insert into watcher (name, created_at) values ('one', now())`);
  const lock = sql`select from watcher where name = 'one' for update`;
  const broken = database.transaction(async (tx) => {
    await tx.query(lock);
    proxy.forget();
    session = await database.session();
    await tx.query(sql`update watcher set name = 'other'`);
  });
  await assert.rejects(broken, isLost);
  await waitUntil(async () => (await database.query(sql`${lock} skip locked`)).length === 1, {
    describe: 'the lock of the lost transaction',
  });
  await session?.close();
});

test('statements that take long are answered, also those that wait for others and those of a login that acts as another role', async () => {
  await using place = await openBehindProxy();
  const { database } = place;
  const session = await database.session();
  const { id } = await watchAddress(database);
  const slow = database.transaction(async (tx) => {
    await tx.query(sql`select pg_advisory_xact_lock(1)`);
    // On Citus, the coordinator waits for a worker.
    await tx.query(sql`
      select pg_sleep(${LONGER_THAN_SILENT_S}) from watched_address where shard_id = ${shardOfRecord(1, id)} and id = ${id}`);
  });
  await using other = await openAsOther(place);
  const otherSession = await other.database.session();
  const [waiting, sleeping] = await Promise.all([
    database.query(sql`select pg_advisory_xact_lock(1)`),
    other.database.query(sql`select pg_sleep(${LONGER_THAN_SILENT_S})`),
    slow,
  ]);
  assert.deepEqual([waiting.length, sleeping.length], [1, 1]);
  await otherSession.close();
  await session.close();
});

test('a socket is closed at once, also one of a Unix domain and one that is not connected', async () => {
  await using parts = new AsyncDisposableStack();
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-sockets-'));
  parts.defer(() => rm(folder, { recursive: true }));
  const server = createServer().listen(path.join(folder, 'server'));
  parts.defer(() => void server.close());
  await once(server, 'listening');
  const connected = connect(path.join(folder, 'server'));
  await once(connected, 'connect');
  for (const socket of [connected, new Socket()]) {
    reset(socket);
    assert.equal(socket.destroyed, true);
  }
});

/** Connections of a login that acts as another role. */
async function openAsOther({ direct, url }: { direct: Database; url: URL }) {
  const role = `login_${randomUUID().replaceAll('-', '')}`;
  await direct.script(`
    create role ${role}_owner;
    create role ${role} login password 'x' in role ${role}_owner;
    alter role ${role} set role = '${role}_owner'`);
  const own = Object.assign(new URL(url), { username: role, password: 'x' });
  const opened = await openDatabase({ url: own.href, dataDir: '' });
  return {
    database: opened.for('follower'),
    async [Symbol.asyncDispose]() {
      await opened.close();
      await direct.script(`drop role ${role}; drop role ${role}_owner`);
    },
  };
}
