import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Fault } from '../../../src/core/fault.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { migrate, migrationState } from '../../../src/store/db/migrate.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { renderSchema, schemaFile } from '../../generate.ts';
import { onEachDatabase, onPostgres } from '../../kit/each-database.ts';

onEachDatabase(({ kind, database }) => {
  const forgetNewer = sql`delete from migration where name = 'from the future'`;
  afterEach(() => database().query(forgetNewer));

  test('schema.sql equals the schema that the migrations create', async () => {
    // The tests' databases may have another default.
    await database().script('alter table watcher alter column slices set default 1');
    assert.equal(await renderSchema(database()), await readFile(schemaFile, 'utf8'));
  });

  test('a migrated database has nothing pending, and migrating again does nothing', async () => {
    const { applied, known, pending } = await migrationState(database());
    assert.deepEqual({ applied, pending }, { applied: known, pending: [] });
    assert.deepEqual(await migrate(database()), []);
    const rows = await database().query<{ id: number }>(sql`select id from migration order by id`);
    assert.deepEqual(
      rows.map(({ id }) => id),
      Array.from({ length: known }, (_, index) => index + 1),
    );
  });

  test('a database that is newer than the program is refused and left unchanged', async () => {
    const { known } = await migrationState(database());
    await database().query(sql`insert into migration values (${known + 1}, 'from the future', now())`);
    const isRefusal = (error: unknown) =>
      error instanceof Fault &&
      error.code === 'conflict' &&
      error.message.includes('Start the newer version');
    await assert.rejects(migrationState(database()), isRefusal);
    await assert.rejects(migrate(database()), isRefusal);
  });

  test(`amounts, hashes and addresses of a wrong size cannot be stored (${kind})`, async () => {
    const block = (hash: Buffer) => sql`
      insert into block (number, hash, parent_hash, mined_at, proved, stored_at)
      values (1, ${hash}, ${Buffer.alloc(32)}, now(), true, now())`;
    await assert.rejects(database().query(block(Buffer.alloc(31))), /block_hash_check/);
    await database().query(block(Buffer.alloc(32)));
  });
});

onPostgres(({ database, place }) => {
  /** Creates a database of this name without tables. */
  async function openEmpty(name: string, connections: number): Promise<Database[]> {
    await database().query({ text: `create database ${name}`, values: [] });
    const url = new URL(place().url);
    url.pathname = `/${name}`;
    return Promise.all(
      Array.from({ length: connections }, () => openDatabase({ url: url.href, dataDir: '' })),
    );
  }

  async function drop(name: string, opened: Database[]): Promise<void> {
    for (const one of opened) await one.close();
    await database().query({ text: `drop database ${name} with (force)`, values: [] });
  }

  test('if ten processes migrate at once, exactly one applies each migration', async () => {
    const name = `many_${process.pid}`;
    const opened = await openEmpty(name, 10);
    try {
      const [first] = opened;
      assert.ok(first !== undefined);
      const before = await migrationState(first);
      assert.deepEqual([before.applied, before.pending.length], [0, before.known]);
      const applied = await Promise.all(opened.map((one) => migrate(one)));
      assert.deepEqual(applied.flat().sort(), before.pending);
      assert.deepEqual((await migrationState(first)).pending, []);
      assert.equal(await renderSchema(first), await readFile(schemaFile, 'utf8'));
    } finally {
      await drop(name, opened);
    }
  });

  test('a migration of the next release is applied once and keeps existing data', async () => {
    const name = `next_${process.pid}`;
    const opened = await openEmpty(name, 2);
    const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-migrations-'));
    try {
      const [one, other] = opened;
      assert.ok(one !== undefined && other !== undefined);
      const own = fileURLToPath(new URL('../../../src/store/db/migrations/', import.meta.url));
      await cp(own, folder, { recursive: true });
      await cp(
        fileURLToPath(new URL('./0002_example.sql', import.meta.url)),
        path.join(folder, '0002_example.sql'),
      );
      await migrate(one);
      await one.query(sql`insert into watcher (name, created_at) values ('acme', now())`);
      const next = pathToFileURL(`${folder}/`);
      const applied = await Promise.all([migrate(one, next), migrate(other, next)]);
      assert.deepEqual(applied.flat(), ['0002_example.sql']);
      assert.deepEqual(await one.query(sql`select name, contact from watcher`), [
        { name: 'acme', contact: null },
      ]);
      await assert.rejects(
        migrate(one),
        /the database has migration 2, but this version of chainbell knows only 1. Start the newer/,
      );
    } finally {
      await drop(name, opened);
      await rm(folder, { recursive: true });
    }
  });

  test('a migration that fails is rolled back, and the error says why', async () => {
    const name = `half_${process.pid}`;
    const opened = await openEmpty(name, 1);
    try {
      const [one] = opened;
      assert.ok(one !== undefined);
      // The first migration creates a table of this name too.
      await one.script('create table watched_address (id bigint)');
      await assert.rejects(migrate(one), /watched_address/);
      const tables = await one.query(
        sql`select tablename as name from pg_tables where schemaname = 'public'`,
      );
      assert.deepEqual(tables, [{ name: 'watched_address' }]);
      assert.equal((await migrationState(one)).applied, 0);
    } finally {
      await drop(name, opened);
    }
  });
});

test('an empty embedded database is migrated from scratch', async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'chainbell-migrate-'));
  try {
    const database = await openDatabase({ url: '', dataDir });
    const { applied, pending } = await migrationState(database);
    assert.equal(applied, 0);
    assert.deepEqual(await migrate(database), pending);
    await database.close();
  } finally {
    await rm(dataDir, { recursive: true, force: true });
  }
});
