import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { openForCommand, requireDatabase } from '../../../src/store/db/command-database.ts';
import type { SharedDatabase } from '../../../src/store/db/db.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { joinDatabase } from '../../../src/store/db/socket-client.ts';
import { type DatabaseSocket, serveDatabase } from '../../../src/store/db/socket-server.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createTestDatabase, type TestDatabase } from '../../kit/database.ts';
import { waitUntil } from '../../kit/wait.ts';

/** How long the tests' commands wait for a suspended service. A working one reports every second. */
const SILENCE_MS = 5_000;
/** The user with the fewest rights. */
const NOBODY = 65_534;

let place: TestDatabase;
let own: SharedDatabase;
let socket: DatabaseSocket;
let joined: SharedDatabase;

before(async () => {
  place = await createTestDatabase('embedded');
  own = await openDatabase({ url: '', dataDir: place.dataDir });
  socket = await serveDatabase(own.for('operator'), place.dataDir);
  joined = await openForCommand({ url: '', dataDir: place.dataDir });
});
after(async () => {
  await socket.close();
  await own.close();
  await place[Symbol.asyncDispose]();
});

const countWatchers = async (database = own) =>
  (await database.query(sql`select from watcher where name like 'socket %'`)).length;
const insert = (name: string) =>
  sql`insert into watcher (name, created_at) values (${`socket ${name}`}, now())`;

test('a row of several MiB arrives in many pieces and is not taken for silence', async () => {
  const long = sql`select repeat('x', 20000000) as text`;
  const [row] = await joined.query<{ text: string }>(long);
  assert.equal(row?.text.length, 20_000_000);
  const text = 'y'.repeat(20_000_000);
  const rows = await joined.transaction((tx) =>
    tx.query<{ count: number }>(sql`select length(${text}::text) as count`),
  );
  assert.deepEqual(rows, [{ count: 20_000_000 }]);
});

test('the socket returns the same values and errors as the database', async () => {
  const values = sql`
    select ${Buffer.from('c0ffee', 'hex')}::bytea as bytes, ${new Date(1_700_000_000_123)}::timestamptz as time,
      9007199254740991::int8 as count, (2::numeric ^ 256) as amount, ${null}::text as nothing,
      ${'{"a":[1,"é"]}'}::jsonb as json, ${['x', null, 'a,"b']}::text[] as texts, ${true}::boolean as flag,
      ${'\u0000é'.slice(1)}::text as text, ${1.5}::double precision as half`;
  assert.deepEqual(await joined.query(values), await own.query(values));
  const wrong = sql`insert into watcher (id, name, created_at) values (1, 'twice', now())`;
  const errorOf = (database: SharedDatabase) =>
    database.query(wrong).then(
      () => undefined,
      (error) => error,
    );
  const [through, direct] = [await errorOf(joined), await errorOf(own)];
  assert.deepEqual([through.code, through.message], [direct.code, direct.message]);
  assert.ok(!(through instanceof Fault));
  const rows: unknown[] = [];
  await joined.each(sql`select n from generate_series(1, 3) as n`, (row) => rows.push(row));
  assert.deepEqual(rows, [{ n: 1 }, { n: 2 }, { n: 3 }]);
});

test('a transaction through the socket commits everything or nothing', async () => {
  const result = await joined.transaction(async (tx) => {
    await tx.query(insert('one'));
    return (await tx.query(insert('two'))).length;
  });
  assert.deepEqual([result, await countWatchers()], [0, 2]);
  const broken = joined.transaction(async (tx) => {
    await tx.query(insert('three'));
    throw new Error('not this one');
  });
  await assert.rejects(broken, /not this one/);
  const failed = joined.transaction(async (tx) => {
    await tx.query(insert('four'));
    await tx.query(sql`select * from no_such_table`);
  });
  await assert.rejects(failed, { code: '42P01' });
  await assert.rejects(joined.script('create table half (id int); select * from no_such_table'), {
    code: '42P01',
  });
  assert.equal(await countWatchers(), 2);
  assert.deepEqual(await own.query(sql`select to_regclass('half') as half`), [{ half: null }]);
});

test('several commands and the service work at once', async () => {
  const open = () => openForCommand({ url: '', dataDir: place.dataDir });
  const clients = await Promise.all([open(), open(), open(), open(), open()]);
  const before = await countWatchers();
  await Promise.all(
    clients.flatMap((client, index) =>
      [0, 1, 2].map((number) =>
        client.transaction(async (tx) => {
          await tx.query(insert(`${index} ${number}`));
          await tx.query(sql`select 1`);
        }),
      ),
    ),
  );
  assert.equal(await countWatchers(), before + 15);
});

test('a transaction whose command goes silent is rolled back after a bounded time, and the service continues', async () => {
  const before = await countWatchers();
  const [open, stopped] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const late = joined.transaction(async (tx) => {
    await tx.query(insert('late'));
    open.resolve();
    await stopped.promise;
    await tx.query(insert('later'));
  });
  await open.promise;
  // This statement waits until the transaction above has ended.
  assert.equal(await countWatchers(), before);
  stopped.resolve();
  await assert.rejects(late, (error) => error instanceof Fault && error.code === 'unavailable');
  assert.equal(await countWatchers(), before);
});

test('a transaction whose command is killed is rolled back at once', async () => {
  const before = await countWatchers();
  const script = `
    import { joinDatabase } from ${JSON.stringify(new URL('../../../src/store/db/socket-client.ts', import.meta.url).href)};
    const database = await joinDatabase(process.argv[2]);
    await database.transaction(async (tx) => {
      await tx.query({ text: "insert into watcher (name, created_at) values ('socket killed', now())", values: [] });
      process.send('open');
      for (;;) {
        await tx.query({ text: 'select 1', values: [] });
      }
    });`;
  const file = path.join(place.dataDir, 'killed.mjs');
  await writeFile(file, script);
  const child = fork(file, [place.dataDir], { stdio: 'ignore' });
  await once(child, 'message');
  const startedMs = performance.now();
  child.kill('SIGKILL');
  assert.equal(await countWatchers(), before);
  // Far less than the limit of a silent transaction.
  assert.ok(performance.now() - startedMs < 60_000);
});

test('only the owner can open the socket, and one that a killed service left behind is replaced', async () => {
  assert.equal((await stat(socket.path)).mode & 0o777, 0o600);
  assert.equal((await stat(place.dataDir)).mode & 0o777, 0o700);
  await using folder = await createTestDatabase('embedded');
  const database = await openDatabase({ url: '', dataDir: folder.dataDir });
  const child = fork(
    '-e',
    [
      `require('node:net').createServer().listen(${JSON.stringify(path.join(folder.dataDir, 'socket'))}, () => process.send(1))`,
    ],
    { execArgv: [] },
  );
  await once(child, 'message');
  child.kill('SIGKILL');
  await once(child, 'exit');
  assert.ok((await readdir(folder.dataDir)).includes('socket'));
  assert.equal(await joinDatabase(folder.dataDir), undefined);
  const served = await serveDatabase(database, folder.dataDir);
  const client = await joinDatabase(folder.dataDir);
  assert.deepEqual(await client?.query(sql`select 1 as one`), [{ one: 1 }]);
  await served.close();
  assert.ok(!(await readdir(folder.dataDir)).includes('socket'));
  await database.close();
});

test("a command of another user is told to run as the service's user, and not that there is no database", async () => {
  const user = process.geteuid?.();
  const isRoot = user === 0;
  const expected = (file: string) => ({
    code: 'invalid',
    message: `this user may not access ${file}. Run the command as the user who runs the service`,
  });
  await using folder = await createTestDatabase('embedded');
  await mkdir(path.join(folder.dataDir, 'database'), { recursive: true });
  const socketFile = path.join(place.dataDir, 'socket');
  await chmod(folder.dataDir, 0);
  await chmod(socketFile, 0);
  try {
    // Modes don't hold back root.
    if (isRoot) process.seteuid?.(NOBODY);
    assert.throws(() => requireDatabase({ url: '', dataDir: folder.dataDir }), expected(folder.dataDir));
    await assert.rejects(openForCommand({ url: '', dataDir: place.dataDir }), expected(socketFile));
  } finally {
    if (isRoot) process.seteuid?.(user);
    await chmod(socketFile, 0o600);
    await chmod(folder.dataDir, 0o700);
  }
});

test('a command on an embedded database that has moved says only that, without waiting for its service', async () => {
  await using folder = await createTestDatabase('embedded');
  await writeFile(
    path.join(folder.dataDir, 'moved-to-postgresql'),
    '2026-01-31T12:00:00.000Z\nanother database\n',
  );
  await assert.rejects(openForCommand({ url: '', dataDir: folder.dataDir }), {
    code: 'conflict',
    message:
      /^the embedded database in .* moved to PostgreSQL at 2026-.* because webhooks would be sent again$/,
  });
});

test('a client that does not speak the protocol loses only its own connection', async () => {
  const send = async (bytes: Buffer) => {
    const client = connect(socket.path);
    client.on('error', () => {});
    client.resume();
    client.write(bytes);
    await once(client, 'close');
  };
  await send(Buffer.from('GET / HTTP/1.1\r\n\r\n'));
  await send(Buffer.from([0, 0, 0, 3, 1, 2, 3]));
  await send(Buffer.alloc(8, 0xff));
  assert.deepEqual(await joined.query(sql`select 1 as one`), [{ one: 1 }]);
});

test('a path that is too long for a socket is refused with the reason', async () => {
  const root = await mkdtemp(path.join(tmpdir(), 'chainbell-test-'));
  const dataDir = path.join(root, 'x'.repeat(100));
  try {
    await assert.rejects(serveDatabase(own, dataDir), (error) => {
      assert.ok(error instanceof Fault);
      assert.match(error.message, /at most 10[37]\. Set dataDir to a shorter path/);
      return true;
    });
    const inUse = await openDatabase({ url: '', dataDir });
    await assert.rejects(
      openForCommand({ url: '', dataDir }),
      /in use by process \d+\. .* Set dataDir to a shorter/,
    );
    await inUse.close();
  } finally {
    await rm(root, { recursive: true });
  }
});

test('a command ends with advice if the service is suspended, and waits if the service works for long', async () => {
  await using folder = await createTestDatabase('embedded');
  const source = (name: string) =>
    JSON.stringify(new URL(`../../../src/store/db/${name}.ts`, import.meta.url).href);
  const script = `
    import { openDatabase } from ${source('open')};
    import { serveDatabase } from ${source('socket-server')};
    const database = await openDatabase({ url: '', dataDir: process.argv[2] });
    await serveDatabase(database.for('operator'), process.argv[2]);
    process.on('message', async () => {
      await database.transaction(() => {
        process.send('busy');
        return new Promise((resolve) => process.once('message', resolve));
      });
    });
    process.send('serving');`;
  const file = path.join(folder.dataDir, 'service.mjs');
  await writeFile(file, script);
  const service = fork(file, [folder.dataDir], { stdio: 'ignore' });
  try {
    await once(service, 'message');
    const client = await joinDatabase(folder.dataDir, SILENCE_MS);
    const one = sql`select 1 as one`;
    service.kill('SIGSTOP');
    await assert.rejects(client?.query(one) ?? Promise.resolve(), (error) => {
      assert.ok(error instanceof Fault && error.code === 'unavailable', String(error));
      assert.match(
        error.message,
        /^the service that has the database \(process \d+\) has sent nothing for 5 s/,
      );
      assert.match(error.message, new RegExp(`kill -CONT ${service.pid} `));
      return true;
    });
    service.kill('SIGCONT');
    assert.deepEqual(await client?.query(one), [{ one: 1 }]);
    service.send('work');
    await once(service, 'message');
    const startedMs = performance.now();
    let isAnswered = false;
    const answer = client?.query(one).finally(() => {
      isAnswered = true;
    });
    await waitUntil(() => isAnswered || performance.now() - startedMs > SILENCE_MS + 2_000);
    service.send('end');
    assert.deepEqual(await answer, [{ one: 1 }]);
  } finally {
    service.kill('SIGKILL');
    await once(service, 'exit');
  }
});
