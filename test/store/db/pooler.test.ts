import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { hasPgbouncer, startPgbouncer } from '../../kit/pgbouncer.ts';
import { startTestService } from '../../kit/service.ts';

const skip = !hasPgbouncer && 'needs pgbouncer';

test('a start behind a pooler in transaction mode fails and says what to do', { skip }, async () => {
  await using place = await createTestDatabase('postgres');
  await using pooler = await startPgbouncer(place.url, 'transaction');
  const start = startTestService({
    database: { url: pooler.url, dataDir: place.dataDir },
    rpc: ['http://127.0.0.1:1'],
    roles: ['api'],
  });
  await assert.rejects(
    start,
    (error) =>
      error instanceof Fault && error.code === 'invalid' && /pool_mode = session/.test(error.message),
  );
});

test('a pooler in transaction mode under several names is not taken for several servers', {
  skip,
}, async () => {
  await using place = await createTestDatabase('postgres');
  await using pooler = await startPgbouncer(place.url, 'transaction');
  const { host, port } = new URL(pooler.url);
  const url = pooler.url.replace(host, `127.0.0.1:${port},localhost:${port}`);
  const database = await openDatabase({ url, dataDir: '' });
  try {
    await assert.rejects(database.requireSessions(), { code: 'invalid', message: /\(transaction mode\)/ });
  } finally {
    await database.close();
  }
});

test('a pooler in transaction mode is also detected while other clients keep it busy', { skip }, async () => {
  await using place = await createTestDatabase('postgres');
  await using pooler = await startPgbouncer(place.url, 'transaction');
  const others = await openDatabase({ url: pooler.url, dataDir: '' });
  const ended = new AbortController();
  const busy = Array.from({ length: 5 }, async () => {
    while (!ended.signal.aborted) await others.query(sql`select pg_sleep(0.002)`);
  });
  const database = await openDatabase({ url: pooler.url, dataDir: '' });
  try {
    for (let times = 0; times < 20; times += 1)
      await assert.rejects(database.requireSessions(), { code: 'invalid' });
  } finally {
    // Close these before the pooler stops, so that only the first failure is reported.
    ended.abort();
    await Promise.all(busy);
    await database.close();
    await others.close();
  }
});

test('a direct connection and a pooler in session mode are accepted', { skip }, async () => {
  await using place = await createTestDatabase('postgres');
  await using pooler = await startPgbouncer(place.url, 'session');
  for (const url of [place.url, pooler.url]) {
    const database = await openDatabase({ url, dataDir: '' });
    await database.requireSessions();
    const [one, other] = [await database.session(), await database.session()];
    assert.equal(await one.tryLock(1, 1), true);
    assert.equal(await other.tryLock(1, 1), false);
    await Promise.all([one.close(), other.close()]);
    await database.close();
  }
});
