import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { PGlite } from '@electric-sql/pglite';
import { emptyDatabaseFile, unpackEmptyDatabase } from '../../../src/store/db/empty-database.ts';
import { chain, chainbell, startChainbell } from '../../cli/chainbell.ts';
import { waitUntil } from '../../kit/wait.ts';

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'chainbell-empty-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

test('the stored empty database is the one that initdb of the installed PGlite makes, without its two unused databases', async () => {
  assert.ok(existsSync(await emptyDatabaseFile()), 'run npm run generate');
  const [made, stored] = [path.join(folder, 'made'), path.join(folder, 'stored')];
  assert.equal(await unpackEmptyDatabase(stored), true);
  const described = [];
  for (const dataDir of [made, stored]) {
    await using pglite = new PGlite({ dataDir });
    const { rows } = await pglite.query(`
      select 'setting' as kind, name, setting from pg_settings
      union all select 'database', datname, concat_ws(' ', datcollate, datctype, encoding) from pg_database
      union all select 'role', rolname, rolsuper::text from pg_roles
      union all select 'relation', relname, relkind::text from pg_class
      order by 1, 2, 3`);
    described.push(rows);
  }
  assert.deepEqual(described[1], described[0]);
  const listed = async (dataDir: string) => (await readdir(path.join(dataDir, 'base'))).sort();
  assert.deepEqual([await listed(made), await listed(stored)], [['1', '4', '5'], ['5']]);
});

test('a first start makes files that only this user can read', async () => {
  const database = path.join(folder, 'database');
  await unpackEmptyDatabase(database);
  const names = await readdir(database, { recursive: true });
  assert.ok(names.length > 300, `${names.length} files`);
  for (const name of names) {
    const { mode } = await stat(path.join(database, name));
    assert.equal(mode & 0o077, 0, name);
  }
});

test('a process that is killed while it creates the database leaves nothing that the next start refuses', async () => {
  for (const part of ['', 'base', 'pg_wal']) {
    const dataDir = await mkdtemp(path.join(folder, 'data-'));
    const env = { ...chain, CHAINBELL_DATA_DIR: dataDir };
    const draft = path.join(dataDir, 'database.draft');
    const { process: child, ended } = startChainbell(folder, env, 'migrate');
    const isMade = () => existsSync(path.join(dataDir, 'database'));
    await waitUntil(() => existsSync(path.join(draft, part)) || isMade(), { pollMs: 1 });
    child.kill('SIGKILL');
    await ended;
    const { code, err } = await chainbell(folder, env, 'migrate');
    assert.equal(code, 0, err);
    assert.match(err, /the schema is up to date/);
    assert.equal(existsSync(draft), false);
  }
});
