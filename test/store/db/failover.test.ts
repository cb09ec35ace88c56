/**
 * A real primary with a streaming standby. The primary stops, the standby takes over its address, and is promoted later.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { type Share, type SharedDatabase, shares } from '../../../src/store/db/db.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { createSessionKeeper } from '../../../src/store/db/session-keeper.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { onPostgres } from '../../kit/each-database.ts';
import { type PostgresPair, startPostgresPair } from '../../kit/postgres-pair.ts';
import { startTcpProxy, type TcpProxy } from '../../kit/tcp-proxy.ts';
import { waitUntil } from '../../kit/wait.ts';

const write = sql`insert into mark default values`;
const isUnavailable = (error: unknown) => error instanceof Fault && error.code === 'unavailable';

describe('a primary and a standby', () => {
  let pair: PostgresPair;
  let proxy: TcpProxy;
  const opened: SharedDatabase[] = [];
  const open = async (url: string) => {
    const database = await openDatabase({ url, dataDir: '' });
    opened.push(database);
    return database;
  };
  const hosts = (parameters: string) => {
    const url = new URL(pair.primary.url);
    return `postgres://${url.username}:${url.password}@127.0.0.1:${pair.standby.port},127.0.0.1:${pair.primary.port}/postgres${parameters}`;
  };
  before(async () => {
    pair = await startPostgresPair();
    proxy = await startTcpProxy({ host: '127.0.0.1', port: pair.primary.port });
    await (await open(pair.primary.url)).script(
      'create table mark (id integer generated always as identity)',
    );
  });
  after(async () => {
    for (const database of opened) await database.close();
    await proxy[Symbol.asyncDispose]();
    await pair[Symbol.asyncDispose]();
  });

  test('every share and session finds the host that accepts writes among several', async () => {
    for (const parameters of ['?target_session_attrs=read-write', '']) {
      const database = await open(hosts(parameters));
      for (const share of shares) await database.for(share).query(write);
      const session = await database.session();
      await session.listen('story', () => {});
      assert.equal(await session.tryLock(1, 1), true);
      await session.close();
    }
  });

  test('if any host is allowed, a write that reaches the standby fails, and the next connections and sessions go to the primary', async () => {
    const database = await open(hosts('?target_session_attrs=any'));
    assert.deepEqual(await database.query(sql`select pg_is_in_recovery() as standby`), [{ standby: true }]);
    const session = await database.session();
    await assert.rejects(
      database.transaction((tx) => tx.query(write)),
      isUnavailable,
    );
    for (const share of shares) await database.for(share).query(write);
    await waitUntil(() => session.lost.aborted, { describe: 'the session on the standby to end' });
    const next = await database.session();
    await next.listen('story', () => {});
    await next.close();
  });

  test('a read-only host is unavailable if the URL requires one that accepts writes', async () => {
    await assert.rejects(
      openDatabase({ url: `${pair.standby.url}?target_session_attrs=read-write`, dataDir: '' }),
      {
        code: 'unavailable',
        message:
          'database: the server is read-only. The server may be a standby. Point database.url, and database.sessionUrl if you use it, to the primary server',
      },
    );
  });

  test('a process continues when the standby takes over the address, before and after its promotion', async () => {
    const url = new URL(pair.primary.url);
    url.port = String(proxy.port);
    const byAddress = await open(url.href);
    const byHosts = await open(hosts('?target_session_attrs=read-write'));
    const payloads: string[] = [];
    const keepers = [byAddress, byHosts].map((database) =>
      createSessionKeeper(database, { story: (payload) => payloads.push(payload) }),
    );
    for (const keeper of keepers) await keeper.current();
    for (const database of [byAddress, byHosts])
      for (const share of shares) await database.for(share).query(write);

    await pair.killPrimary();
    await proxy.cut();
    proxy.target = { host: '127.0.0.1', port: pair.standby.port };
    await proxy.mend();
    // The standby answers queries and refuses writes. The process treats that as unavailable and continues.
    for (const keeper of keepers)
      await waitUntil(async () => {
        const error = await keeper.current().then(
          () => undefined,
          (fault: unknown) => fault,
        );
        return isUnavailable(error) && /recovery|read-only/.test(String(error));
      });
    for (const share of shares)
      await assert.rejects(
        byAddress.for(share).transaction((tx) => tx.query(write)),
        isUnavailable,
      );
    await assert.rejects(byHosts.query(write), isUnavailable);

    await pair.promote();
    for (const database of [byAddress, byHosts])
      for (const share of shares) await database.for(share).transaction((tx) => tx.query(write));
    for (const keeper of keepers)
      assert.equal(await (await keeper.current()).tryLock(7, 7), keeper === keepers[0]);
    await byHosts.query(sql`select pg_notify('story', 'after')`);
    await waitUntil(() => payloads.length === 2);
    for (const keeper of keepers) await keeper.close();
  });
});

onPostgres(({ database, place }) => {
  test('once a server is read-only, no share uses an earlier connection again', async () => {
    const setReadOnly = (value: 'on' | 'off') =>
      database().script(
        `do $$ begin execute format('alter database %I set default_transaction_read_only = ${value}', current_database()); end $$`,
      );
    await setReadOnly('on');
    const own = await openDatabase({
      ...{ url: place().url, dataDir: '', connections: { follower: 1, api: 1, delivery: 2 } },
    });
    const isReadOnly = async (share: Share) => {
      const [row] = await own
        .for(share)
        .query<{ value: string }>(sql`select current_setting('transaction_read_only') as value`);
      return row?.value === 'on';
    };
    assert.deepEqual(
      await Promise.all(shares.map(isReadOnly)),
      shares.map(() => true),
    );
    // As if the address now led to another server: earlier connections stay with the old one.
    await setReadOnly('off');
    const remove = (share: Share) => own.for(share).transaction((tx) => tx.query(sql`delete from watcher`));
    await assert.rejects(remove('delivery'), isUnavailable);
    assert.deepEqual(
      await Promise.all(shares.map(isReadOnly)),
      shares.map(() => false),
    );
    await remove('delivery');
    await own.close();
  });
});
