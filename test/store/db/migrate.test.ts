import assert from 'node:assert/strict';
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Fault } from '../../../src/core/fault.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { migrate, migrationState, requireSchema } from '../../../src/store/db/migrate.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { schemaFile } from '../../generate.ts';
import { onEachDatabase, onPostgres } from '../../kit/each-database.ts';
import { renderSchema } from '../../kit/schema-text.ts';

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

  test('a database that a newer version broke for this one is refused and left unchanged', async () => {
    const { known } = await migrationState(database());
    await database().query(
      sql`insert into migration values (${known + 1}, 'from the future', now(), 'it''s needed')`,
    );
    const isRefusal = (error: unknown) =>
      error instanceof Fault &&
      error.code === 'conflict' &&
      error.message.includes("from the future (it's needed). Start the newer version");
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
      await requireSchema(one, { mayCreate: false });
      await one.query(sql`insert into watcher (name, created_at) values ('acme', now())`);
      const next = pathToFileURL(`${folder}/`);
      for (const mayCreate of [true, false])
        await assert.rejects(requireSchema(one, { mayCreate, folder: next }), {
          code: 'conflict',
          message: /it lacks 0002_example\.sql/,
        });
      assert.deepEqual(
        (await migrationState(one, next)).pending,
        ['0002_example.sql'],
        'commands do not migrate',
      );
      const applied = await Promise.all([migrate(one, next), migrate(other, next)]);
      assert.deepEqual(applied.flat(), ['0002_example.sql']);
      assert.deepEqual(await one.query(sql`select name, contact from watcher`), [
        { name: 'acme', contact: null },
      ]);
      // A version that doesn't know it continues.
      assert.deepEqual(await migrate(one), []);
      assert.deepEqual((await migrationState(one)).newer, ['0002_example.sql']);
      await writeFile(path.join(folder, '0003_breaks.sql'), "select 1;\n-- Breaking: it's needed\n");
      await migrate(one, next);
      await assert.rejects(migrate(one), { code: 'conflict', message: /0003_breaks\.sql \(it's needed\)/ });
      assert.deepEqual((await migrationState(one, next)).pending, []);
    } finally {
      await drop(name, opened);
      await rm(folder, { recursive: true });
    }
  });

  test('a migration waits for a table for at most seconds, so other statements wait behind it no longer', async () => {
    const name = `locked_${process.pid}`;
    const opened = await openEmpty(name, 1);
    const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-migrations-'));
    try {
      const [one] = opened;
      assert.ok(one !== undefined);
      const url = new URL(place().url);
      url.pathname = `/${name}`;
      const other = await openDatabase({ url: url.href, dataDir: '', silentMsMax: 600_000 });
      opened.push(other);
      await writeFile(path.join(folder, '0001_table.sql'), 'create table t (i int)');
      const next = pathToFileURL(`${folder}/`);
      await migrate(one, next);
      await writeFile(path.join(folder, '0002_column.sql'), 'alter table t add column j int');
      await other.transaction(async (tx) => {
        await tx.query(sql`select from t limit 1`);
        await assert.rejects(migrate(one, next), { code: 'unavailable' });
      });
      assert.deepEqual(await migrate(one, next), ['0002_column.sql']);
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

test('a database with other migrations of the same numbers is refused', async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'chainbell-migrate-'));
  try {
    const database = await openDatabase({ url: '', dataDir });
    await database.script(`
      create table migration (id integer primary key, name text not null, applied_at timestamptz not null);
      insert into migration values (1, '0001_init.sql', now()), (2, '0002_more.sql', now())`);
    await assert.rejects(migrate(database), {
      code: 'conflict',
      message: /0001_init\.sql.*0001_baseline\.sql/,
    });
    // Migrations of a version that didn't say whether they break anything may do so.
    await database.script("update migration set name = '0001_baseline.sql' where id = 1");
    await assert.rejects(migrate(database), {
      code: 'conflict',
      message: /0002_more\.sql\. Start the newer/,
    });
    await database.close();
  } finally {
    await rm(dataDir, { recursive: true, force: true });
  }
});

/** Statements of older versions fail after these. */
const BREAKS = /\b(drop (table|column)|rename|alter column \S+ (set not null|type))\b/i;

test('a migration that drops, renames or narrows something says that it is breaking, and why', async () => {
  const folder = new URL('../../../src/store/db/migrations/', import.meta.url);
  for (const name of (await readdir(folder)).filter((one) => one > '0001_baseline.sql')) {
    const text = await readFile(new URL(name, folder), 'utf8');
    if (BREAKS.test(text)) assert.match(text, /^-- Breaking: .+/m, name);
  }
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
