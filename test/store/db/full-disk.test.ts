import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openKeyRing } from '../../../src/app/open-key-ring.ts';
import { startService } from '../../../src/app/service.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { Fault } from '../../../src/core/fault.ts';
import { silentLog } from '../../../src/core/log.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { migrate } from '../../../src/store/db/migrate.ts';
import { markMoved, readMove } from '../../../src/store/db/moved.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { chain, chainbell } from '../../cli/chainbell.ts';
import { copyEmbedded, createTestDatabase } from '../../kit/database.ts';
import { mountDisk } from '../../kit/full-disk.ts';
import { sampledTest } from '../../kit/sample.ts';
import { waitUntil } from '../../kit/wait.ts';

const test = sampledTest(import.meta.url);

const KIB = 1024;
/** More than the rest of a write-ahead log segment (16 MiB), so that a new one is needed. */
const logMore = sql`select pg_logical_emit_message(false, 'test', repeat('x', 17000000)), 1 as written`;

const disk = mountDisk();
disk?.[Symbol.dispose]();
const needsMount = { skip: disk === undefined && 'needs root to mount a file system' };

function mounted() {
  const place = mountDisk();
  assert.ok(place !== undefined);
  return place;
}

const isFull = (error: unknown) =>
  error instanceof Fault &&
  error.code === 'unavailable' &&
  /the disk with .* is full\. Free space/.test(error.message);
const open = (folder: string): Promise<Database> => openDatabase({ url: '', dataDir: folder });
const command = (folder: string, ...words: string[]) =>
  chainbell(tmpdir(), { ...chain, CHAINBELL_DATA_DIR: folder }, ...words);

/** Leaves a migrated database like a killed process would: its next start has to recover from the write-ahead log. */
async function leaveKilled(folder: string): Promise<void> {
  await using place = await createTestDatabase('embedded');
  const database = await place.open();
  await database.query(sql`create table filler as select repeat('x', 1000) from generate_series(1, 5000)`);
  await cp(path.join(place.dataDir, 'database'), path.join(folder, 'database'), { recursive: true });
}

/** The second value is enough for most of a new database, but not for its last files. */
for (const freeBytes of [0, 24_300 * KIB]) {
  test(`a first start with ${freeBytes / KIB} KiB free says that the disk is full, and the next one with enough space succeeds`, {
    ...needsMount,
  }, async () => {
    using place = mounted();
    place.fill({ freeBytes });
    await assert.rejects(open(place.folder), isFull);
    assert.deepEqual(await readdir(place.folder), ['filler']);
    place.free();
    const database = await open(place.folder);
    await migrate(database);
    await database.close();
  });
}

test('a command on a full disk says so, exits, and leaves nothing behind', needsMount, async () => {
  using place = mounted();
  await leaveKilled(place.folder);
  place.fill({ freeBytes: 0 });
  const locked = await command(place.folder, 'keys', 'create', '--watcher', 'acme');
  place.free();
  place.fill({ freeBytes: 100 * KIB });
  const recovering = await command(place.folder, 'keys', 'create', '--watcher', 'acme');
  for (const { code, err } of [locked, recovering]) {
    assert.equal(code, 69);
    assert.match(
      err,
      /^chainbell: the disk with .* is full\. Free space on it, or set dataDir to another folder: .*\n$/,
    );
  }
  assert.deepEqual(await readdir(place.folder), ['database', 'filler']);
});

test('a start on a full disk gives up as unavailable after the usual start timeout', needsMount, async () => {
  using place = mounted();
  await leaveKilled(place.folder);
  place.fill();
  const config = loadConfig({
    env: chain,
    overrides: { http: { port: 0 }, metrics: { port: 0 }, dataDir: place.folder },
  });
  await assert.rejects(startService(config, { log: silentLog(), startMsMax: 200 }), isFull);
  place.free();
  const service = await startService(config, { log: silentLog(), roles: ['api'] });
  await service.stop();
});

test('a full disk leaves no empty secret file behind', needsMount, async () => {
  using place = mounted();
  await using other = await createTestDatabase('embedded');
  const database = await other.open();
  const config = loadConfig({ env: chain, overrides: { dataDir: place.folder } });
  place.fill({ freeBytes: 0 });
  await assert.rejects(openKeyRing(config, database), isFull);
  assert.deepEqual(await readdir(place.folder), ['filler']);
  await writeFile(path.join(place.folder, 'secret'), '');
  await assert.rejects(openKeyRing(config, database), /secret does not hold 32 bytes/);
});

test('a database whose log had no space recovers by itself with all committed data', needsMount, async () => {
  using place = mounted();
  await copyEmbedded(place.folder);
  const database = await open(place.folder);
  try {
    await database.query(sql`create table committed as select 7 as number`);
    const session = await database.session();
    place.fill();
    const outcomes = await Promise.allSettled([
      database.transaction((tx) => tx.query(logMore)),
      database.query(logMore),
      database.transaction((tx) => tx.query(logMore)),
    ]);
    for (const outcome of outcomes)
      assert.ok(outcome.status === 'rejected' && outcome.reason.code === 'unavailable');
    assert.ok(session.lost.aborted);
    await assert.rejects(database.query(sql`select 1`), isFull);
    place.free();
    const rows = async () => {
      try {
        return await database.query<{ number: number }>(sql`select number from committed`);
      } catch (error) {
        if (isFull(error)) return undefined;
        throw error;
      }
    };
    const [row] = (await waitUntil(rows, { describe: 'the database to recover' })) ?? [];
    assert.equal(row?.number, 7);
    await database.query(logMore);
    const next = await database.session();
    assert.equal(await next.tryLock(1, 1), true);
    assert.equal(next.lost.aborted, false);
  } finally {
    await database.close();
  }
});

test(
  'a disk that is full at the commit of a transaction ends the engine, and does not hang the process',
  needsMount,
  async () => {
    using place = mounted();
    await copyEmbedded(place.folder);
    // In a process of its own, because a database that hangs holds its thread.
    const script = `
    import { openDatabase } from '${import.meta.resolve('../../../src/store/db/open.ts')}';
    import { sql } from '${import.meta.resolve('../../../src/store/db/sql.ts')}';
    const database = await openDatabase({ url: '', dataDir: process.argv[1] });
    await database.query(sql\`create table filler (text text)\`);
    process.stdout.write('opened');
    for await (const _ of process.stdin) break;
    try {
      for (;;)
        await database.transaction((tx) => tx.query(sql\`insert into filler select repeat('x', 100) from generate_series(1, 30)\`));
    } catch (error) {
      process.stdout.write(error.message);
    }
    process.exit(0);`;
    const child = spawn(process.execPath, ['--input-type=module', '--eval', script, place.folder]);
    let told = '';
    child.stdout.on('data', (chunk) => {
      told += chunk;
    });
    const ended = once(child, 'exit');
    const timer = setTimeout(() => child.kill('SIGKILL'), 120_000);
    await waitUntil(() => told === 'opened');
    // The table has room to grow, but the next file of the log has none.
    place.fill({ freeBytes: 8 * 1024 * KIB });
    child.stdin.end('go');
    assert.deepEqual(await ended, [0, null], told);
    clearTimeout(timer);
    assert.match(told, /No space left on device/);
    place.free();
    await (await open(place.folder)).close();
  },
);

test(
  'a database can be closed on a full disk, although its last writes have no space',
  needsMount,
  async () => {
    using place = mounted();
    await copyEmbedded(place.folder);
    const database = await open(place.folder);
    await database.query(sql`select pg_switch_wal()`);
    place.fill({ freeBytes: 0 });
    await database.close();
    place.free();
    await (await open(place.folder)).close();
  },
);

test(
  'a move that the full disk keeps from being noted leaves no empty mark, and an earlier mark as it was',
  needsMount,
  async () => {
    await using server = await createTestDatabase('postgres');
    const target = await server.open();
    using place = mounted();
    place.fill({ freeBytes: 0 });
    await assert.rejects(markMoved(place.folder, target, new Date()), isFull);
    assert.equal(await readMove(place.folder), undefined);
    place.free();
    await markMoved(place.folder, target, new Date());
    const marked = await readMove(place.folder);
    place.fill({ freeBytes: 0 });
    await assert.rejects(markMoved(place.folder, target, new Date()), isFull);
    assert.deepEqual(await readMove(place.folder), marked);
  },
);

test('the error names a read-only folder, or a file in place of the folder', needsMount, async () => {
  using place = mounted();
  await leaveKilled(place.folder);
  place.makeReadOnly();
  for (const words of [['keys', 'list'], ['start']]) {
    const { code, err } = await command(place.folder, ...words);
    assert.equal(code, 78);
    assert.match(err, /is on a read-only file system\. Mount it writable, or set dataDir to another folder/);
  }
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-file-'));
  try {
    const file = path.join(folder, 'file');
    await writeFile(file, '');
    for (const at of [file, path.join(file, 'below')]) {
      const { code, err } = await command(at, 'start');
      assert.equal(code, 78);
      assert.match(err, /file.* is a file or lies below one, not a folder\. Move it away, or set dataDir/);
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});
