import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Fault } from '../../../src/core/fault.ts';
import { openEmbedded } from '../../../src/store/db/embedded.ts';
import { lockFolder } from '../../../src/store/db/folder-lock.ts';
import { openDatabase } from '../../../src/store/db/open.ts';

const MODULE = fileURLToPath(new URL('../../../src/store/db/folder-lock.ts', import.meta.url));

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'chainbell-lock-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const isConflict = (error: unknown): error is Fault => error instanceof Fault && error.code === 'conflict';
const lockFile = () => path.join(folder, 'lock');

/** A process that tries to lock the folder, prints `locked` or `refused`, and runs until it is ended. */
async function startLocker({
  uid,
  before = '',
}: {
  uid?: number;
  /** Runs first. */
  before?: string;
} = {}): Promise<{ answer: string; pid: number; kill(): Promise<void> }> {
  const program = `${before}
    const { lockFolder } = await import(${JSON.stringify(MODULE)});
    setInterval(() => {}, 1000);
    await lockFolder(${JSON.stringify(folder)}).then(() => console.log('locked'), (error) => console.log(error.code === 'conflict' ? 'refused' : error.message));`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
    ...(uid !== undefined && { uid }),
  });
  const [answer] = await once(child.stdout.setEncoding('utf8'), 'data');
  return {
    answer: String(answer).trim(),
    pid: child.pid ?? 0,
    async kill() {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    },
  };
}

test('a database that has moved by the time its folder is locked is not opened, and the folder is free again', async () => {
  const refusal = new Fault('conflict', 'moved');
  await assert.rejects(
    openEmbedded(
      folder,
      () => {},
      () => Promise.reject(refusal),
    ),
    refusal,
  );
  assert.deepEqual(await readdir(folder), []);
  await (await lockFolder(folder))();
});

test('a locked folder refuses a second lock and names the owner, until the lock is released', async () => {
  const unlock = await lockFolder(folder);
  await assert.rejects(
    lockFolder(folder),
    (error) => isConflict(error) && error.message.includes(`process ${process.pid}`),
  );
  assert.match((await readdir(folder)).sort().join(' '), /^lock lock\.[0-9a-f]{8}$/);
  await unlock();
  assert.deepEqual(await readdir(folder), []);
  await (await lockFolder(folder))();
});

test('a running process keeps its folder, and a killed one loses it at once', async () => {
  const locker = await startLocker();
  assert.equal(locker.answer, 'locked');
  await assert.rejects(
    lockFolder(folder),
    (error) => isConflict(error) && error.message.includes(`process ${locker.pid}`),
  );
  await locker.kill();
  const unlock = await lockFolder(folder);
  assert.match(await readFile(lockFile(), 'utf8'), new RegExp(`^${process.pid} `));
  await unlock();
  assert.deepEqual(await readdir(folder), [], 'the socket of the killed process');
});

test('a lock is stale if its process id now belongs to another process', async () => {
  await writeFile(lockFile(), `${process.pid} 1\n`);
  await (await lockFolder(folder))();
});

/** Hides /proc from a process, as on macOS. */
const WITHOUT_PROC = `
  import fs from 'node:fs/promises';
  import { syncBuiltinESMExports } from 'node:module';
  for (const name of ['readFile', 'readlink']) {
    const read = fs[name];
    fs[name] = (file, ...rest) => read(String(file).startsWith('/proc') ? '/proc/none' : file, ...rest);
  }
  syncBuiltinESMExports();`;
const needsPs = {
  skip: spawnSync('ps', ['-o', 'lstart=', '-p', String(process.pid)]).status === 0 ? false : 'needs ps',
};

test(
  'without /proc too, a lock is stale if its process id now belongs to another process',
  needsPs,
  async () => {
    const start = () => startLocker({ before: WITHOUT_PROC });
    const first = await start();
    const own = await readFile(lockFile(), 'utf8');
    assert.match(own, /^\d+ \S+-\d\d:\d\d:\d\d-\d{4} - lock\./);
    const other = await start();
    assert.deepEqual([first.answer, other.answer], ['locked', 'refused']);
    for (const locker of [first, other]) await locker.kill();
    await writeFile(lockFile(), own.replace(/^\d+/, String(process.pid)).replace(/-\d{4} /, '-1999 '));
    const second = await start();
    assert.equal(second.answer, 'locked');
    await second.kill();
    await writeFile(lockFile(), `${process.pid} unknown - -\n`);
    await assert.rejects(lockFolder(folder), isConflict, 'its process may run');
  },
);

test('a running process in another container keeps its folder, also while it doesn’t answer, and a killed one loses it', async () => {
  const locker = await startLocker();
  await moveOwner();
  const own = await readFile(lockFile(), 'utf8');
  const isRefused = (error: unknown) =>
    isConflict(error) && error.message.includes(`process ${locker.pid} of another container`);
  await assert.rejects(lockFolder(folder), isRefused);
  process.kill(locker.pid, 'SIGSTOP');
  await assert.rejects(lockFolder(folder), isRefused);
  assert.equal(await readFile(lockFile(), 'utf8'), own);
  await locker.kill();
  await (await lockFolder(folder))();
  assert.deepEqual(await readdir(folder), []);
});

test('an embedded database is locked against other containers before a service listens, and by a command too', async () => {
  const database = await openDatabase({ url: '', dataDir: folder });
  await moveOwner();
  await assert.rejects(openDatabase({ url: '', dataDir: folder }), isConflict);
  await database.close();
  assert.match(await readFile(lockFile(), 'utf8'), / pid:\[1\] /, 'the lock of another process stays');
  await (await openDatabase({ url: '', dataDir: folder })).close();
});

test('where the folder can have no socket, the lock of another container stays, and the error says what to do', async () => {
  const deep = path.join(folder, 'a'.repeat(100));
  await mkdir(deep);
  const lock = path.join(deep, 'lock');
  const unlock = await lockFolder(deep);
  assert.match(await readFile(lock, 'utf8'), / -\n$/);
  await assert.rejects(lockFolder(deep), isConflict, 'its process is found');
  await unlock();
  await writeFile(lock, '7 1 pid:[1] -\n');
  await assert.rejects(
    lockFolder(deep),
    (error) => isConflict(error) && error.message.includes(`If it has ended, delete ${lock}`),
  );
  await rm(lock);
  await (await lockFolder(deep))();
});

test('a socket that cannot be asked is no sign that its process has ended', {
  skip: process.getuid?.() !== 0,
}, async () => {
  const locker = await startLocker();
  await moveOwner();
  const [name = ''] = (await readdir(folder)).filter((one) => one.startsWith('lock.'));
  await chmod(folder, 0o777);
  await chmod(path.join(folder, name), 0);
  const asked = await startLocker({ uid: 65_534 });
  assert.match(asked.answer, /may not write to/);
  await asked.kill();
  await locker.kill();
});

test('a lock file with invalid content is stale, and a half-written one cannot exist', async () => {
  for (const text of ['', 'garbage', '-1 5', '0 0']) {
    await writeFile(lockFile(), text);
    await (await lockFolder(folder))();
  }
});

/** Makes the owner of the lock look like a process of another container. */
async function moveOwner(): Promise<void> {
  const [pid, started, , socket] = (await readFile(lockFile(), 'utf8')).split(' ');
  await writeFile(lockFile(), [pid, started, 'pid:[1]', socket].join(' '));
}

test('if many processes race for a free folder, exactly one gets it', async () => {
  const outcomes = await Promise.allSettled(Array.from({ length: 10 }, () => lockFolder(folder)));
  const won = outcomes.filter((outcome) => outcome.status === 'fulfilled');
  assert.equal(won.length, 1);
  for (const outcome of outcomes) if (outcome.status === 'rejected') assert.ok(isConflict(outcome.reason));
  assert.match((await readdir(folder)).sort().join(' '), /^lock lock\.[0-9a-f]{8}$/);
});

test('if two processes race for the folder of an ended one, exactly one gets it', async () => {
  for (let round = 0; round < 3; round += 1) {
    await writeFile(lockFile(), '999999999 1\n');
    const lockers = await Promise.all([startLocker(), startLocker()]);
    assert.deepEqual(lockers.map(({ answer }) => answer).sort(), ['locked', 'refused']);
    for (const locker of lockers) await locker.kill();
  }
});

test('the embedded database cannot be opened twice, but can be opened again after it is closed', async () => {
  const database = await openDatabase({ url: '', dataDir: folder });
  await assert.rejects(openDatabase({ url: '', dataDir: folder }), isConflict);
  await database.close();
  await (await openDatabase({ url: '', dataDir: folder })).close();
});

test('an embedded database that cannot be opened does not keep its folder locked', async () => {
  await writeFile(path.join(folder, 'database'), 'a file where a folder should be');
  await assert.rejects(openDatabase({ url: '', dataDir: folder }), (error) => !isConflict(error));
  assert.deepEqual(await readdir(folder), ['database']);
});
