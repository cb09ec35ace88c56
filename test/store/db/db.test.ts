import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { test } from 'node:test';
import fc from 'fast-check';
import { Fault } from '../../../src/core/fault.ts';
import { type Db, databaseError } from '../../../src/store/db/db.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { frequent, sql } from '../../../src/store/db/sql.ts';
import { citusUrl } from '../../kit/citus.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { onEachDatabase, onPostgres } from '../../kit/each-database.ts';
import { startTcpProxy } from '../../kit/tcp-proxy.ts';
import { waitUntil } from '../../kit/wait.ts';

const isUnavailable = (error: unknown) => error instanceof Fault && error.code === 'unavailable';

onEachDatabase(({ kind, database }) => {
  test('every stored type is read as the same JavaScript type by both drivers', async () => {
    const [row] = await database().query(sql`
      select 9007199254740991::int8 as int8, 7::int4 as int4, true as boolean, 'ä€😀' as text,
        repeat('9', 78)::numeric(78, 0) as numeric, '2025-11-20 12:00:00.123456+00'::timestamptz as time,
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid as uuid, count(*) as count, null::int8 as nothing`);
    assert.deepEqual(row, {
      int8: Number.MAX_SAFE_INTEGER,
      int4: 7,
      boolean: true,
      text: 'ä€😀',
      numeric: '9'.repeat(78),
      time: new Date('2025-11-20T12:00:00.123Z'),
      uuid: 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
      count: 1,
      nothing: null,
    });
    const [bytes] = await database().query<{ bytes: Uint8Array }>(sql`select '\\x00ff10'::bytea as bytes`);
    assert.ok(bytes?.bytes instanceof Uint8Array);
    assert.deepEqual([...bytes.bytes], [0x00, 0xff, 0x10]);
  });

  test('a transaction that the server ended because it was idle can be retried', () =>
    assert.rejects(database().script(`do $$ begin raise sqlstate '25P03'; end $$`), isUnavailable));

  test('a statement can be retried after the connection between the servers of a Citus cluster broke, but not after another internal error', async () => {
    const fail = (message: string) =>
      database().script(`do $$ begin raise exception '${message}' using errcode = 'XX000'; end $$`);
    await assert.rejects(fail('SSL SYSCALL error: EOF detected'), isUnavailable);
    await assert.rejects(fail('server closed the connection unexpectedly'), isUnavailable);
    // The worker dies during the commit of a transaction that wrote only there.
    const notCommitted = 'could not commit transaction for shard 102008 on at least one active node';
    await assert.rejects(fail(notCommitted), isUnavailable);
    await assert.rejects(fail('failure on connection marked as essential: 10.0.0.5:5432'), isUnavailable);
    await assert.rejects(fail('postmaster was shut down, exiting'), isUnavailable);
    await assert.rejects(fail('cache lookup failed'), (error) => !isUnavailable(error));
    const ofCopy = { code: 'XX000', routine: 'ReportCopyError' };
    const dying = Object.assign(
      new Error('terminating connection due to unexpected postmaster exit'),
      ofCopy,
    );
    assert.ok(isUnavailable(databaseError(dying)));
  });

  test('a full NOTIFY queue is no bug, and the message says what to do', async () => {
    const fail = database().script(
      `do $$ begin raise exception 'too many notifications in the NOTIFY queue' using errcode = '54000'; end $$`,
    );
    await assert.rejects(fail, (error: Error) => {
      assert.ok(isUnavailable(error));
      assert.match(error.message, /pg_notification_queue_usage/);
      return true;
    });
  });

  test('parameters of every type arrive unchanged, including arrays with nulls', async () => {
    const time = new Date('2025-11-20T12:00:00.123Z');
    const [row] = await database().query<{ bytes: Uint8Array }>(sql`
      select ${Number.MAX_SAFE_INTEGER}::int8 as int8, ${'9'.repeat(78)}::numeric as numeric, ${time}::timestamptz as time,
        ${undefined}::text is null as undefined_is_null, ${Buffer.from([0, 255])}::bytea as bytes`);
    assert.ok(row !== undefined);
    assert.deepEqual([...row.bytes], [0, 255]);
    assert.deepEqual(
      { ...row, bytes: [] },
      { int8: Number.MAX_SAFE_INTEGER, numeric: '9'.repeat(78), time, undefined_is_null: true, bytes: [] },
    );

    const rows = await database().query<{ bytes: Uint8Array | null }>(sql`
      select * from unnest(
        ${[1, null]}::int8[], ${['9'.repeat(78), null]}::numeric[], ${[time, null]}::timestamptz[],
        ${[Buffer.from([1, 2]), null]}::bytea[], ${['a,"b"\\', null]}::text[], ${[true, null]}::boolean[]
      ) as t (int8, numeric, time, bytes, text, boolean)`);
    const [bytes, nothing] = rows.map((one) => one.bytes);
    assert.deepEqual([...(bytes ?? [])], [1, 2]);
    assert.equal(nothing, null);
    assert.deepEqual(
      rows.map(({ bytes: _bytes, ...rest }) => rest),
      [
        { int8: 1, numeric: '9'.repeat(78), time, text: 'a,"b"\\', boolean: true },
        { int8: null, numeric: null, time: null, text: null, boolean: null },
      ],
    );
    assert.deepEqual(await database().query(sql`select * from unnest(${[]}::int8[]) as t (id)`), []);
  });

  test('an int8 beyond the safe range of JavaScript numbers is refused instead of rounded', async () => {
    await assert.rejects(database().query(sql`select 9007199254740993::int8`), /beyond 2\^53/);
    assert.deepEqual(await database().query(sql`select 1 as one`), [{ one: 1 }]);
  });

  test('rows are passed on one by one, with the same types as a query, until the statement ends or fails', async () => {
    const taken: unknown[] = [];
    const take = (row: unknown) => taken.push(row);
    await database().each(sql`select i::int8 as i from generate_series(1, ${3}) as i`, take);
    assert.deepEqual(taken, [{ i: 1 }, { i: 2 }, { i: 3 }]);
    await database().each(sql`select where ${false}`, take);
    assert.equal(taken.length, 3);
    const bug = new Error('at the second');
    const failing = database().each<{ i: number }>(sql`select generate_series(1, 3) as i`, ({ i }) => {
      if (i === 2) throw bug;
      take(i);
    });
    await assert.rejects(failing, (error) => error === bug);
    assert.deepEqual(taken.slice(3), [1]);
    await assert.rejects(
      database().each(sql`select 1 / (i - 2) from generate_series(1, 3) as i`, take),
      /zero/,
    );
    assert.deepEqual(await database().query(sql`select 1 as one`), [{ one: 1 }]);
  });

  test('no uint256 is rounded by the database', async () => {
    await fc.assert(
      fc.asyncProperty(fc.bigInt({ min: 0n, max: 2n ** 256n - 1n }), async (amount) => {
        const [row] = await database().query<{ amount: string }>(
          sql`select ${amount.toString()}::numeric(78, 0) as amount`,
        );
        assert.equal(row?.amount, amount.toString());
      }),
      { numRuns: 30 },
    );
  });

  test('a log line that quotes the word PANIC ends nothing', async () => {
    await assert.rejects(database().query(sql`select ${'x] PANIC: x'}::uuid`));
    await assert.rejects(database().query(sql`do $$ begin raise exception 'FATAL: PANIC: x'; end $$`));
    assert.deepEqual(await database().query(sql`select 1 as one`), [{ one: 1 }]);
  });

  test('a transaction commits everything or nothing, and the connection stays usable', async () => {
    const insert = sql`insert into watcher (name, created_at) values ('acme', now())`;
    const count = async () => (await database().query(sql`select from watcher`)).length;
    const bug = new Error('in the middle');
    const failing = database().transaction(async (tx) => {
      await tx.query(insert);
      throw bug;
    });
    await assert.rejects(failing, (error) => error === bug);
    assert.equal(await count(), 0);
    await assert.rejects(
      database().transaction(async (tx) => tx.query(sql`select * from no_such_table`)),
      /no_such_table/,
    );
    assert.equal(await database().transaction(async (tx) => (await tx.query(insert)).length), 0);
    assert.equal(await count(), 1);
  });

  test('concurrent transactions are isolated', async () => {
    const name = (number: number) => `watcher ${number}`;
    const outcomes = await Promise.allSettled(
      [1, 2, 3, 4].map((number) =>
        database().transaction(async (tx) => {
          await tx.query(sql`insert into watcher (name, created_at) values (${name(number)}, now())`);
          await tx.query(sql`select 1`);
          if (number % 2 === 0) throw new Error('rolled back');
        }),
      ),
    );
    assert.deepEqual(
      outcomes.map(({ status }) => status),
      ['fulfilled', 'rejected', 'fulfilled', 'rejected'],
    );
    const names = await database().query(sql`select name from watcher order by name`);
    assert.deepEqual(names, [{ name: name(1) }, { name: name(3) }]);
  });

  test('a script runs in one transaction', async () => {
    const script = "insert into watcher (name, created_at) values ('a', now()); select * from no_such_table;";
    await assert.rejects(database().script(script), /no_such_table/);
    assert.deepEqual(await database().query(sql`select from watcher`), []);
  });

  test('the payload of a NOTIFY arrives when its transaction has committed', async () => {
    const session = await database().session();
    try {
      const payloads: string[] = [];
      await session.listen('story', (payload) => payloads.push(payload));
      await assert.rejects(
        database().transaction(async (tx) => {
          await tx.query(sql`select pg_notify('story', 'rolled back')`);
          throw new Error('no');
        }),
      );
      await database().query(sql`select pg_notify('story', '1,2')`);
      await waitUntil(() => payloads.length > 0);
      assert.deepEqual(payloads, ['1,2']);
    } finally {
      await session.close();
    }
  });

  test('a session can take its own advisory lock again', async () => {
    const session = await database().session();
    try {
      assert.equal(await session.tryLock(1, 2), true);
      assert.equal(await session.tryLock(1, 2), true);
      assert.equal(session.lost.aborted, false);
    } finally {
      await session.close();
    }
  });

  test('a lock that a session gives back can be taken again', async () => {
    const [session, other] = [await database().session(), await database().session()];
    try {
      await session.unlock(1, 3);
      assert.equal(await session.tryLock(1, 3), true);
      await session.unlock(1, 3);
      assert.equal(await other.tryLock(1, 3), true);
      if (kind === 'postgres') assert.equal(await session.tryLock(1, 3), false);
      await other.unlock(1, 3);
    } finally {
      await session.close();
      await other.close();
    }
  });

  test(`the database says that it is ${kind}`, () => assert.equal(database().kind, kind));
});

onPostgres(({ database, place }) => {
  const endOthers = sql`
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()`;

  test('the server keeps a frequent statement prepared, and only up to a hundred of them', async () => {
    const prepared = sql`select count(*) as count from pg_prepared_statements where name like 'chainbell%'`;
    const rows = await database().transaction(async (tx) => {
      await tx.query(sql`select ${1}::int as once`);
      for (const value of [2, 3]) await tx.query(frequent(sql`select ${value}::int as often`));
      return tx.query(prepared);
    });
    assert.deepEqual(rows, [{ count: 1 }]);
    const afterMany = await database().transaction(async (tx) => {
      for (let number = 0; number < 120; number += 1) {
        const composed = { text: `select ${number} + $1::int as sum`, values: [1] };
        assert.deepEqual(await tx.query(frequent(composed)), [{ sum: number + 1 }]);
      }
      return tx.query<{ count: number }>(prepared);
    });
    assert.ok((afterMany[0]?.count ?? 0) <= 100);
  });

  test('one session holds an advisory lock until that session ends', async () => {
    const [first, second] = [await database().session(), await database().session()];
    assert.equal(await first.tryLock(5, 6), true);
    assert.equal(await second.tryLock(5, 6), false);
    assert.equal(await second.tryLock(5, 7), true);
    await first.close();
    await waitUntil(() => second.tryLock(5, 6), { describe: 'the lock of the ended session' });
    await second.close();
  });

  test('a connection that ends during a transaction is a Fault, and the next query works', async () => {
    const administrator = await place().open();
    const broken = database().transaction(async (tx) => {
      await tx.query(sql`insert into watcher (name, created_at) values ('lost', now())`);
      await administrator.query(endOthers);
      await tx.query(sql`select 1`);
    });
    await assert.rejects(broken, isUnavailable);
    assert.deepEqual(await database().query(sql`select name from watcher`), []);
    await administrator.close();
  });

  test('a session whose connection ends reports that it is lost', async () => {
    const session = await database().session();
    assert.equal(await session.tryLock(8, 9), true);
    await database().query(endOthers);
    await waitUntil(() => session.lost.aborted);
    await assert.rejects(session.tryLock(8, 9), isUnavailable);
    const next = await database().session();
    assert.equal(await next.tryLock(8, 9), true);
    await Promise.all([session.close(), next.close()]);
  });

  test('while the server is down every call is a Fault, and afterwards everything works again', async () => {
    const url = new URL(place().url);
    await using proxy = await startTcpProxy({ host: url.hostname, port: Number(url.port) });
    url.port = String(proxy.port);
    const behind = await openDatabase({ url: url.href, dataDir: '' });
    const session = await behind.session();
    const interrupted = behind.query(sql`select pg_sleep(60)`);
    interrupted.catch(() => {});
    const [{ one }] = (await behind.query<{ one: number }>(sql`select 1 as one`)) as [{ one: number }];
    assert.equal(one, 1);
    await proxy.cut();
    await assert.rejects(interrupted, isUnavailable);
    await waitUntil(() => session.lost.aborted);
    await assert.rejects(behind.query(sql`select 1`), isUnavailable);
    await assert.rejects(
      behind.transaction(async () => 1),
      isUnavailable,
    );
    await assert.rejects(behind.script('select 1'), isUnavailable);
    await assert.rejects(behind.session(), isUnavailable);
    await assert.rejects(openDatabase({ url: url.href, dataDir: '' }), isUnavailable);
    await proxy.mend();
    assert.deepEqual(await behind.query(sql`select 2 as two`), [{ two: 2 }]);
    const again = await behind.session();
    assert.equal(await again.tryLock(1, 1), true);
    await Promise.all([session.close(), again.close()]);
    await behind.close();
  });

  test('a server that falls silent loses its session and all statements under way, and the next host is used', async () => {
    const url = new URL(place().url);
    const target = { host: url.hostname, port: Number(url.port) };
    await using silent = await startTcpProxy(target);
    await using next = await startTcpProxy(target);
    const hosts = `127.0.0.1:${silent.port},127.0.0.1:${next.port}`;
    const href = url.href.replace(url.host, hosts);
    const behind = await openDatabase({ url: `${href}?target_session_attrs=read-write`, dataDir: '' });
    const session = await behind.session();
    const addressOf = async () => {
      const [row] = await behind.query<{ port: number }>(sql`select inet_client_port() as port`);
      return row?.port;
    };
    const before = await addressOf();
    silent.freeze();
    const waiting = behind.query(sql`select 1`);
    await assert.rejects(waiting, isUnavailable);
    // On Citus, the limit of the statement may come first.
    await waitUntil(() => session.lost.aborted, { describe: 'the loss of the session' });
    assert.notEqual(await addressOf(), before);
    const again = await behind.session();
    assert.equal(await again.tryLock(1, 1), true);
    await again.close();
    await behind.close();
  });

  test('a session that breaks while it begins to listen is a Fault', async () => {
    const session = await database().session();
    await database().query(endOthers);
    await assert.rejects(
      session.listen('story', () => {}),
      isUnavailable,
    );
    await session.close();
  });

  test('access that is refused after the start is a Fault with advice, and the next query after it is granted works', async () => {
    const role = `refused_${randomUUID().replaceAll('-', '')}`;
    await database().script(`create role ${role} login password 'right'`);
    const url = Object.assign(new URL(place().url), { username: role, password: 'right' });
    const refused = await openDatabase({ url: url.href, dataDir: '' });
    assert.deepEqual(await refused.query(sql`select 1 as one`), [{ one: 1 }]);
    const isRefused = (error: unknown) =>
      isUnavailable(error) && /Check user and password in database\.url/.test(String(error));
    const login = ['nologin', 'login'] as const;
    const password = ["password 'other'", "password 'right'"] as const;
    // A test cluster of Citus may trust all clients.
    for (const [withdraw, grant] of citusUrl() === undefined ? [login, password] : [login]) {
      await database().script(`alter role ${role} ${withdraw}`);
      await database().query(
        sql`select pg_terminate_backend(pid) from pg_stat_activity where usename = ${role}`,
      );
      await waitUntil(
        async () =>
          (await database().query(sql`select from pg_stat_activity where usename = ${role}`)).length === 0,
        { describe: 'the connections to end' },
      );
      // Until the client notices, it uses the ended connection.
      await waitUntil(() => refused.query(sql`select 1`).then(() => false, isRefused), {
        describe: 'the refusal',
      });
      await assert.rejects(refused.session(), isRefused);
      await database().script(`alter role ${role} ${grant}`);
      await waitUntil(
        () =>
          refused.query(sql`select 1`).then(
            () => true,
            () => false,
          ),
        { describe: 'the role to log in' },
      );
    }
    await refused.close();
    await database().script(`drop role ${role}`);
  });

  test('without a connection left, and with a timeout of the server, the Fault says what to change', async () => {
    const role = `limited_${randomUUID().replaceAll('-', '')}`;
    await database().script(`create role ${role} login password 'right' connection limit 0`);
    const url = Object.assign(new URL(place().url), { username: role, password: 'right' });
    const open = () => openDatabase({ url: url.href, dataDir: '', connectionsMax: 15 });
    const says = (pattern: RegExp) => (error: unknown) => isUnavailable(error) && pattern.test(String(error));
    await assert.rejects(
      open(),
      says(
        /too many connections.* This process opens up to 15 connections\. Raise .*max_connections.* lower database\.connections/,
      ),
    );
    await database().script(
      `alter role ${role} connection limit -1; alter role ${role} set statement_timeout = '1s'`,
    );
    const limited = await open();
    await assert.rejects(
      limited.query(sql`select pg_sleep(60)`),
      says(/statement timeout\. If .* has a statement_timeout .* alter role/),
    );
    await limited.close();
    await database().script(`drop role ${role}`);
  });

  test('a wrong password and an unknown database are invalid, not unavailable, because only the operator can fix them', async () => {
    const wrongPassword = new URL(place().url);
    wrongPassword.password = 'wrong';
    const unknownDatabase = new URL(place().url);
    unknownDatabase.pathname = '/no_such_database';
    // A test cluster of Citus may trust all clients.
    const refused = citusUrl() === undefined ? [wrongPassword, unknownDatabase] : [unknownDatabase];
    for (const { href: url } of refused) {
      await assert.rejects(
        openDatabase({ url, dataDir: '' }),
        (error) => error instanceof Fault && error.code === 'invalid',
      );
    }
  });
});

/** A message of PostgreSQL's protocol, version 3: type, length and body. */
function message(type: string, body: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeInt32BE(body.length + 4);
  return Buffer.concat([Buffer.from(type), length, body]);
}

test('a connection that breaks within the packet that reports it ready is a Fault, and the process survives', async () => {
  const answer = Buffer.concat([
    message('R', Buffer.alloc(4)),
    message('Z', Buffer.from('I')),
    message(
      'E',
      Buffer.from('SFATAL\0C57P01\0Mterminating connection due to unexpected postmaster exit\0\0'),
    ),
  ]);
  const server = createServer((socket) => socket.once('data', () => socket.end(answer)));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  try {
    const { port } = server.address() as AddressInfo;
    for (const parameters of ['', '?target_session_attrs=any'])
      await assert.rejects(
        openDatabase({ url: `postgres://postgres@127.0.0.1:${port}/postgres${parameters}`, dataDir: '' }),
        isUnavailable,
      );
  } finally {
    server.close();
  }
});

test('statements and transactions see what others have committed, whatever isolation level is the default of the database', async () => {
  await using strict = await createTestDatabase('postgres');
  const before = await strict.open();
  const [row] = await before.query<{ name: string }>(sql`select current_database() as name`);
  await before.script(`alter database "${row?.name}" set default_transaction_isolation = 'repeatable read'`);
  const database = await strict.open();
  const levelOf = async (db: Db) =>
    (await db.query<{ level: string }>(sql`select current_setting('transaction_isolation') as level`))[0]
      ?.level;
  assert.equal(await levelOf(database), 'read committed');
  assert.equal(await database.transaction(levelOf), 'read committed');
});

test('the parameters of a nested statement are renumbered', () => {
  const inner = sql`b = ${2} and c = ${3}`;
  const { text, values } = sql`select ${1} where ${inner} and d = ${undefined}`;
  assert.equal(text, 'select $1 where b = $2 and c = $3 and d = $4');
  assert.deepEqual(values, [1, 2, 3, null]);
});
