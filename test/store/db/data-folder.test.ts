import assert from 'node:assert/strict';
import {
  chmod,
  chown,
  link,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { prepareDataFolder } from '../../../src/store/db/data-folder.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { chain, chainbell } from '../../cli/chainbell.ts';
import { copyEmbedded } from '../../kit/database.ts';
import { sampledTest } from '../../kit/sample.ts';

const test = sampledTest(import.meta.url);

let parent = '';
beforeEach(async () => {
  parent = await mkdtemp(path.join(tmpdir(), 'chainbell-folder-'));
});
afterEach(() => rm(parent, { recursive: true, force: true }));

const modeOf = async (folder: string) => ((await stat(folder)).mode & 0o777).toString(8);

test('a new data folder is private, and one that others can read becomes private', async () => {
  const dataDir = path.join(parent, 'new');
  for (const before of [undefined, 0o755, 0o711]) {
    if (before !== undefined) await chmod(dataDir, before);
    await (await openDatabase({ url: '', dataDir })).close();
    assert.equal(await modeOf(dataDir), '700');
  }
});

test('a data folder is created with the folders above it, and refused where none can be created', async () => {
  const dataDir = path.join(parent, 'one', 'two');
  await (await openDatabase({ url: '', dataDir })).close();
  assert.equal(await modeOf(path.dirname(dataDir)), '700');
  if (process.platform !== 'linux') return;
  await assert.rejects(openDatabase({ url: '', dataDir: '/proc/chainbell/data' }), {
    code: 'invalid',
    message: /^the folder \/proc\/chainbell can't be created, .* Set dataDir to another folder$/,
  });
});

test('a file in place of the data folder keeps its mode', async () => {
  const dataDir = path.join(parent, 'file');
  await writeFile(dataDir, '', { mode: 0o644 });
  const refusal = { code: 'invalid', message: /is a file or lies below one/ };
  for (const place of [dataDir, path.join(dataDir, 'below')]) {
    await assert.rejects(prepareDataFolder(place), refusal);
    await assert.rejects(openDatabase({ url: '', dataDir: place }), refusal);
  }
  assert.equal(await modeOf(dataDir), '644');
});

for (const mode of [0o777, 0o775, 0o1777]) {
  test(`a data folder with mode ${mode.toString(8)} is refused with the command that makes it private`, async () => {
    const dataDir = path.join(parent, 'shared folder');
    await mkdir(dataDir);
    await copyEmbedded(dataDir);
    await chmod(dataDir, mode);
    await assert.rejects(
      openDatabase({ url: '', dataDir }),
      (error) =>
        error instanceof Fault &&
        error.code === 'invalid' &&
        error.message.includes(`Run: chmod 700 '${dataDir}', or set dataDir to another folder`),
    );
    const { code, err } = await chainbell(parent, { ...chain, CHAINBELL_DATA_DIR: dataDir }, 'keys', 'list');
    assert.equal(code, 78);
    assert.match(err, /^chainbell: other users can write to .*\n$/);
    await chmod(dataDir, 0o700);
    await (await openDatabase({ url: '', dataDir })).close();
  });
}

test('files in the data folder become private at the next start, and links are not followed', async () => {
  const dataDir = path.join(parent, 'open');
  const database = path.join(dataDir, 'database');
  const [secret, outside, linked] = [path.join(dataDir, 'secret'), path.join(parent, 'outside'), 'PG_LINKED'];
  await (await openDatabase({ url: '', dataDir })).close();
  for (const file of [secret, outside, path.join(parent, linked)]) {
    await writeFile(file, 'x');
    await chmod(file, 0o666);
  }
  await chmod(path.join(database, 'base'), 0o777);
  await symlink(outside, path.join(database, 'symbolic'));
  const folder = path.join(parent, 'folder');
  await mkdir(folder);
  await writeFile(path.join(folder, 'inside'), 'x');
  await chmod(path.join(folder, 'inside'), 0o666);
  await symlink(folder, path.join(database, 'symbolic folder'));
  await link(path.join(parent, linked), path.join(database, linked));
  const opened = await openDatabase({ url: '', dataDir });
  const modes = new Map<string, number>();
  for (const entry of await readdir(database, { recursive: true, withFileTypes: true }))
    if (!entry.isSymbolicLink() && entry.name !== linked)
      modes.set(entry.name, (await stat(path.join(entry.parentPath, entry.name))).mode & 0o777);
  assert.deepEqual([modes.get('PG_VERSION'), modes.get('base')], [0o600, 0o700]);
  assert.deepEqual([await modeOf(secret), await modeOf(outside)], ['600', '666']);
  assert.equal(await modeOf(path.join(parent, linked)), '666');
  assert.equal(await modeOf(path.join(folder, 'inside')), '666');
  await opened.close();
});

const isRoot = process.geteuid?.() === 0;

test('a folder of another user, or a file in it, is refused with the command that changes its owner', {
  skip: !isRoot && 'needs root to give a folder away',
}, async () => {
  const dataDir = path.join(parent, 'foreign folder');
  await (await openDatabase({ url: '', dataDir })).close();
  for (const file of [dataDir, path.join(dataDir, 'database', 'PG_VERSION')]) {
    await chown(file, 12_345, 12_345);
    await assert.rejects(
      openDatabase({ url: '', dataDir }),
      (error) =>
        error instanceof Fault &&
        error.code === 'invalid' &&
        error.message.startsWith(`${file} belongs to another user (uid 12345, this process has 0)`) &&
        error.message.includes(`run: sudo chown -R 0 '${dataDir}', or set dataDir`),
    );
    await chown(file, 0, 0);
    await (await openDatabase({ url: '', dataDir })).close();
  }
});

test('a damaged data folder has a message that says what to do, and no stack', async () => {
  const dataDir = path.join(parent, 'damaged');
  const version = path.join(dataDir, 'database', 'PG_VERSION');
  const run = () =>
    chainbell(parent, { ...chain, CHAINBELL_DATA_DIR: dataDir }, 'keys', 'create', '--watcher', 'acme');
  await copyEmbedded(dataDir);
  const sound = await readFile(version, 'utf8');
  const isRefused = async () => {
    const { code, err } = await run();
    assert.equal(code, 78, err);
    assert.match(
      err,
      /^chainbell: .*database is damaged, or another version of PostgreSQL made it\. [^\n]*\n$/,
    );
  };
  for (const text of ['garbage\n', '', '9\n']) {
    await writeFile(version, text);
    await isRefused();
  }
  await writeFile(version, sound);
  // A write-ahead log that was never written, after a loss of power on a disk that lies.
  const logs = path.join(dataDir, 'database', 'pg_wal');
  const [log = ''] = (await readdir(logs)).filter((name) => /^[0-9A-F]{24}$/.test(name));
  const written = await readFile(path.join(logs, log));
  await writeFile(path.join(logs, log), Buffer.alloc(written.length));
  await isRefused();
  await writeFile(path.join(logs, log), written);
  // What a process left that was killed while it opened the database.
  await writeFile(path.join(dataDir, 'database', 'postmaster.pid'), '');
  await mkdir(path.join(dataDir, 'secret'));
  const { code, err } = await run();
  assert.equal(code, 78, err);
  assert.match(err, /^chainbell: .*secret is a folder, and the secret is a file\. [^\n]*\n$/);
});
