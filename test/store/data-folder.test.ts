import assert from 'node:assert/strict';
import { chmod, mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { Fault } from '../../src/core/fault.ts';
import { openDatabase } from '../../src/store/db.ts';
import { chain, chainbell } from '../cli/chainbell.ts';
import { copyEmbedded } from '../kit/database.ts';

let parent = '';
beforeEach(async () => {
  parent = await mkdtemp(path.join(tmpdir(), 'chainbell-folder-'));
});
afterEach(() => rm(parent, { recursive: true, force: true }));

const modeOf = async (folder: string) => ((await stat(folder)).mode & 0o777).toString(8);

test('a new data folder is closed to other users, and one that they could read becomes so', async () => {
  const dataDir = path.join(parent, 'new');
  for (const before of [undefined, 0o755, 0o711]) {
    if (before !== undefined) await chmod(dataDir, before);
    await (await openDatabase({ url: '', dataDir })).close();
    assert.equal(await modeOf(dataDir), '700');
  }
});

for (const mode of [0o777, 0o775, 0o1777]) {
  test(`a data folder with mode ${mode.toString(8)} is refused with the command that closes it`, async () => {
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

test('a damaged data folder has a message that says what to do, and no stack', async () => {
  const dataDir = path.join(parent, 'damaged');
  const version = path.join(dataDir, 'database', 'PG_VERSION');
  const run = () =>
    chainbell(parent, { ...chain, CHAINBELL_DATA_DIR: dataDir }, 'keys', 'create', '--watcher', 'acme');
  await copyEmbedded(dataDir);
  const sound = await readFile(version, 'utf8');
  for (const text of ['garbage\n', '', '9\n']) {
    await writeFile(version, text);
    const { code, err } = await run();
    assert.equal(code, 78, err);
    assert.match(
      err,
      /^chainbell: .*database is damaged, or another version of PostgreSQL made it\. [^\n]*\n$/,
    );
  }
  await writeFile(version, sound);
  await mkdir(path.join(dataDir, 'secret'));
  const { code, err } = await run();
  assert.equal(code, 78, err);
  assert.match(err, /^chainbell: .*secret is a folder, and the secret is a file\. [^\n]*\n$/);
});
